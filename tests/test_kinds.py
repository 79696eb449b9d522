"""A value of another kind is refused in words that are not Python's."""

from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.kinds import in_words
from holdfast.training.recipe_files import leaves, load_recipe

VALUES = {path: kind for path, kind, _ in leaves()}


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "a whole number"),
        (int | None, "a whole number or null"),
        (int | float | None, "a number or null"),
        (bool, "true or false"),
        (Literal["step", "epoch"], "one of step, epoch"),
        (tuple[float, float], "a list of 2 numbers"),
        (tuple[int, ...], "a list of whole numbers"),
        (list[float] | None, "a list of numbers or null"),
        (dict[str, float], "numbers by names"),
        (dict[str, Any], "keys and values"),
        (Path, "Path"),
    ],
)
def test_a_kind_in_words(kind, words):
    assert in_words(kind) == words


@pytest.mark.parametrize("path", VALUES)
def test_every_value_of_a_recipe_refuses_another_kind_by_its_name_in_one_plain_sentence(path):
    wrong: Any = "neither" if VALUES[path] not in (str, str | None) else [1, 2]
    with pytest.raises(HoldfastError) as refused:
        load_recipe("digits/vit_nano", nested(path, wrong))
    assert str(refused.value) == f"recipe: {path} must be {in_words(VALUES[path])}, got {wrong}"
    assert not {"<", "class", "typing", "NoneType", "Any"} & {*str(refused.value).replace("'", " ").split()}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--optimizer.lr=fast", "--optimizer.lr must be a number, got fast"),
        ("--train.precision=half", "--train.precision must be one of auto, no, bf16, fp16, got half"),
        ("--augment.scale=[1]", "--augment.scale must be a list of 2 numbers, got [1]"),
        ("--optimizer.lr_factors={head: many}", "--optimizer.lr_factors must be numbers by names, got many"),
        ("--train.phases.weights=all", "--train.phases.weights must be a list of numbers or null, got all"),
    ],
)
def test_an_option_of_a_recipe_refuses_it_by_the_options_name(tmp_path, capsys, option, said):
    assert main(["train", "digits/vit_nano", "--out", str(tmp_path / "run"), option]) == 2
    assert capsys.readouterr().err == f"holdfast: error: {said}\n"
    assert not (tmp_path / "run").exists()


def test_so_do_the_other_commands(capsys):
    assert main(["evaluate", "vit_nano", "--batch-size=ten"]) == 2
    assert capsys.readouterr().err == "holdfast: error: --batch-size must be a whole number, got ten\n"
