"""Tables of figures that were measured once are those of their files."""

import csv

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_complete import made_by

MEASURED = ROOT / "docs" / "measured"


def rows(name: str) -> list[list[str]]:
    with (MEASURED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def test_tables_that_were_measured_once_are_those_of_their_files():
    maker = made_by("make_measured")
    pages = maker.pages()
    shown = {"tora.md", "cifar10.md", "imagenette.md", "reliability.md", "different-data.md", "improve.md", "claims.md"}
    shown.add("install.md")
    assert {page.name for page in pages} == shown
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text == maker.with_figures(text), "run python docs/tools/make_measured.py"


def test_claims_about_improve_are_what_it_measured():
    tests = ("improve_imagenette_test", "improve_imagenette_low_lr_test", "improve_pacs_test")
    for (_, _, seen, *_), test in zip(rows("improve_claims"), tests, strict=True):
        (measured,) = (corrupted for what, _, corrupted in rows(test) if what.endswith(" − plain"))
        assert seen.replace("*", "") == measured


@pytest.mark.parametrize("name", ["corruptions", "corruption_fidelity"])
def test_tables_of_the_corruptions_are_those_of_the_benchmark(name):
    stored = (ROOT / "perf" / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    made = [line for line in stored if line.startswith("|")]
    shown = (ROOT / "docs" / "corruptions.md").read_text(encoding="utf-8").splitlines()
    assert len(made) > 10
    assert [row for row in made if row not in shown] == []


def test_the_table_of_the_demo_in_the_readme_is_what_a_demo_measured():
    scores = ("clean", "mean_corruption_accuracy", "retention", "attack/pgd5-rspc", "attack/occlusion-random")
    found = {(model, score): [float(value) for value in values] for model, score, *values in rows("demo")}
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for model in ("baseline", "tap_adl", "afat"):
        shown = " ".join("{:.1f} ({:.0f}–{:.0f})".format(*found[model, score]) for score in scores)
        assert f"{model} {shown}" in readme
