"""A study that would fail, or miss a claim's column, is refused before its first training."""

import pytest

from holdfast.benchmarks import BENCHMARKS
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.studies.checks import check_study
from holdfast.studies.config import load_study
from tests.studies.test_config import BASE, write
from tests.test_benchmarks import TOY


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("suites: [clean, corruption]", "unknown suite 'corruption'; did you mean 'corruptions'"),
        ("analyses: [overfokus]", "unknown analysis 'overfokus'; did you mean 'overfocus'"),
        ("test: npz:nowhere.npz", "npz:nowhere.npz cannot be opened"),
        ("test: 'imagenet-c:nowhere'", "must be a folder"),
        ("claims: [{says: x, row: a, against: a, column: cleen}]", "must name a column, got 'cleen'"),
        ("claims: [{says: x, row: a, against: a, column: pgd5}]", "needs 'pgd5' among the suites or analyses"),
        (
            "claims: [{says: x, row: a, against: a, column: 'pgd:eps=1/255'}]",
            "must name a column, got 'pgd:eps=1/255'; known columns are",
        ),
        ("claims: [{says: x, row: a, against: a, column: stability}]", "needs 'stability' among the suites"),
    ],
)
def test_what_would_fail_after_the_first_training_is_refused_before_it(tmp_path, values, sentence, capsys):
    key = values.partition(":")[0]
    base = "".join(line for line in BASE.splitlines(True) if not line.startswith(key))
    file = write(tmp_path / "study.yaml", f"{base}rows: {{a: {{}}}}\n{values}\n")
    assert main(["study", str(file), "--out", str(tmp_path / "out")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suite", ["quick", "standard", "toy-c"])
def test_suites_that_hold_corruptions_provide_the_columns_of_corruptions(tmp_path, monkeypatch, suite):
    monkeypatch.setitem(BENCHMARKS, "toy-c", TOY)
    assert check_study(claiming(tmp_path, "retention", f"clean, {suite}")) is None
    with pytest.raises(HoldfastError, match=r"needs 'corruptions' or 'corruptions-135' or .* 'coco-c'"):
        check_study(claiming(tmp_path, "retention", "clean"))


def claiming(folder, column, suites):
    base = "".join(line for line in BASE.splitlines(True) if not line.startswith("suites"))
    claim = f"claims: [{{says: x, row: a, against: a, column: {column}}}]"
    return load_study(write(folder / "study.yaml", f"{base}suites: [{suites}]\nrows: {{a: {{}}}}\n{claim}\n"))
