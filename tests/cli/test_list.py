"""``holdfast list recipes --cost``: what the papers' recipes cost on GPUs, and what the others say of themselves."""

import pytest

from holdfast.cli.main import main
from holdfast.training.recipe_files import header


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def row(capsys, name: str) -> str:
    assert main(["list", "recipes", name, "--cost"]) == 0
    return next(line for line in capsys.readouterr().out.splitlines() if name in line)


def test_a_papers_recipe_has_its_batch_flops_memory_and_hours(capsys):
    _, batch, flops, memory, hours = row(capsys, "imagenet/rspc_fan_base_hybrid").split()
    assert (batch, flops) == ("4096", "56.1")
    assert 10 < float(memory) < 80
    assert 100 < float(hours) < 1000


def test_a_small_recipe_says_its_own_cost(capsys):
    assert header("digits/fan_nano")["cost"] in row(capsys, "digits/fan_nano")


@pytest.mark.parametrize(("kind", "name"), [("analyses", "stability"), ("benchmarks", "imagenet-c")])
def test_analyses_and_benchmarks_are_listed(capsys, kind, name):
    assert main(["list", kind, name]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == name
