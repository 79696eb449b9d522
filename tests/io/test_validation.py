"""A value of another kind is refused in words that are not Python's."""

from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.io.validation import checked_options, in_words, number
from holdfast.io.yaml import read_yaml
from holdfast.training.recipe_files import as_values, leaves, load_recipe

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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{afat: {weight: heavy}}", "weight of 'afat' must be a number, got 'heavy'"),
        ("{afat: {wieght: 1}}", "unknown option 'wieght' of 'afat'; did you mean 'weight' or 'weight_decay'?"),
        ("{afat: 3}", "options of 'afat' must be keys and values, such as {weight: 1.0}, got 3"),
        (
            "{afat: {selection: chance}}",
            "selection of 'afat' must be one of adversarial, random, cross-entropy, attention, got 'chance'",
        ),
        ("{adl: {weight: true}}", "weight of 'adl' must be a number, got True"),
        ("{patches: {patch_size: 1.5}}", "patch_size of 'patches' must be a whole number, got 1.5"),
        ("{adversarial: {steps: two}}", "steps of 'adversarial' must be a whole number, got 'two'"),
        ("{noise2net_share: half}", "share of 'noise2net_share' must be a number, got 'half'"),
    ],
)
def test_so_do_the_options_of_a_method(tmp_path, capsys, options, said):
    asked = ["--objective.name=robust", f"--objective.options={options}"]
    assert main(["train", "digits/vit_nano", "--out", str(tmp_path / "run"), *asked]) == 2
    assert capsys.readouterr().err == f"holdfast: error: {said}\n"
    assert not (tmp_path / "run").exists()


def test_numbers_may_be_written_as_people_write_them():
    def called(*, eps: float, steps: int = 1, sides: tuple[int, int] = (1, 1), name: str = "") -> None: ...

    read = read_yaml("{eps: 1e-4, steps: 3, sides: [2, 3], name: 4/255}", name="options")
    assert read["eps"] == 1e-4
    assert checked_options(read, called, whose="it") == {"eps": 1e-4, "steps": 3, "sides": [2, 3], "name": "4/255"}
    assert checked_options({"eps": "4/255"}, called, whose="it") == {"eps": 4 / 255}
    for wrong in (
        {"steps": "4/2"},
        {"sides": [1]},
        {"sides": [1, "x"]},
        {"eps": "4/0"},
        {"eps": "1e999"},
        {"eps": None},
    ):
        with pytest.raises(HoldfastError, match="of it must be"):
            checked_options(wrong, called, whose="it")


@pytest.mark.parametrize(
    ("text", "value"),
    [("4/255", 4 / 255), ("-1.5e-2", -0.015), (".5", 0.5), ("1/3/5", None), ("1e999999999", None), ("9" * 9999, None)],
)
def test_a_number_in_text(text, value):
    read = number(text)
    assert (None if read is None else float(read)) == value


def test_text_that_looks_like_a_number_stays_text_in_a_recipe():
    recipe = load_recipe("digits/vit_nano", {"data": {"train": "1e5"}})
    assert as_values(recipe)["data"]["train"] == "1e5"
    assert load_recipe(as_values(recipe)) == recipe


def test_so_do_the_other_commands(capsys):
    assert main(["evaluate", "vit_nano", "--batch-size=ten"]) == 2
    assert capsys.readouterr().err == "holdfast: error: --batch-size must be a whole number, got ten\n"
