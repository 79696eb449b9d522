"""A benchmark is one row: its suite, scores, partial names and the report's column follow from it."""

import subprocess
import sys

import numpy as np
import pytest

from holdfast.benchmarks import BENCHMARKS, Benchmark, ScoreText
from holdfast.cli.main import main
from holdfast.corruptions.severities import KINDS, SEVERITIES
from holdfast.errors import HoldfastError
from holdfast.evaluation.evaluate import evaluate
from tests.golden_outputs.golden_models import classifier

TOY = Benchmark(
    "toy-c",
    "classification",
    {"fog": (1, 5), "contrast": (3,)},
    "this test",
    mean=ScoreText("toy_c", "Toy-C", "mean {m.label} over two kinds"),
    kept=ScoreText("toy_c_retention", "Toy-C retention", "Toy-C by clean {m.name}"),
    groups={"weather": ("fog",), "others": ("contrast",)},
    grouped=ScoreText("toy_group/{group}", "{group} (Toy-C)", "mean {m.label} over {members}"),
    suite="two kinds that tell a lot",
    headline=True,
)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    monkeypatch.setitem(BENCHMARKS, "toy-c", TOY)
    return evaluate(classifier(), "digits:test", "clean,toy-c", limit=20, workers=0, show=False, out=tmp_path / "run")


def test_a_row_gives_a_suite_scores_their_partial_names_and_a_column_of_the_report(toy, tmp_path):
    assert list(toy.cells) == ["clean", "fog/1", "fog/5", "contrast/3"]
    fog, contrast = (
        np.mean([toy.cells["fog/1"].accuracy, toy.cells["fog/5"].accuracy]),
        toy.cells["contrast/3"].accuracy,
    )
    summary = toy.summary()
    assert summary["toy_c"].value == pytest.approx(100 * (fog + contrast) / 2)
    assert summary["toy_c"].low < summary["toy_c"].value < summary["toy_c"].high
    assert summary["toy_c_retention"].value == pytest.approx(100 * (fog + contrast) / 2 / toy.cells["clean"].accuracy)
    assert summary["toy_group/weather"].value == pytest.approx(100 * fog)
    assert summary["toy_group/others"].label == "others (Toy-C)"
    fewer = toy.only(["clean", "fog/1", "fog/5"]).summary()
    assert fewer["toy_c_partial"].missing == ("contrast/3",)
    assert fewer["toy_c_partial"].label == "Toy-C (partial: 1 of 2 kinds)"
    assert fewer["toy_c_retention_partial"].value == pytest.approx(100 * fog / toy.cells["clean"].accuracy)
    assert "toy_group/weather" not in fewer
    assert main(["report", str(tmp_path / "run"), "--format", "md", "--out", str(tmp_path / "table.md")]) == 0
    assert "Toy-C" in (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()[2]
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    headline = (tmp_path / "page.html").read_text(encoding="utf-8").partition('class="scores sortable"')[2]
    assert 'data-score="toy_c"' in headline.partition("</table>")[0]


def test_a_suite_of_another_task_is_refused(monkeypatch):
    monkeypatch.setitem(BENCHMARKS, "toy-c", TOY)
    with pytest.raises(HoldfastError, match="suite 'toy-c' needs images with a class"):
        evaluate(classifier(), "scenes:test,64x80,4", "toy-c", workers=0, show=False)


def test_rows_name_known_corruptions_and_severities_and_their_groups_are_their_kinds():
    for row in BENCHMARKS.values():
        assert set(row.kinds) <= set(KINDS), row.name
        assert all(set(severities) <= set(SEVERITIES) and severities for severities in row.cells.values()), row.name
        if row.groups:
            assert {kind for kinds in row.groups.values() for kind in kinds} == set(row.kinds), row.name
        assert set(row.rivals) <= set(BENCHMARKS)


def test_the_rows_are_read_without_torch():
    code = "import sys, holdfast.benchmarks; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
