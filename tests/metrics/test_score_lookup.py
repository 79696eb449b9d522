"""Scores by the names that people give them, records in lists and in notebooks, class names in tables."""

import numpy as np
import pytest

import holdfast
from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError
from tests.evaluation.toys import Brightest, plain

QUICK = {"workers": 0, "show": False}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The same toy measured twice, and once on other images."""
    out = tmp_path_factory.mktemp("runs")
    source = plain([0, 1, 2] * 4, margin=[8] * 6 + [120] * 6)
    named = ArraySource("pictures", source.images, source.targets, ("red", "green", "blue"), source.numbers)
    holdfast.evaluate(Brightest(), named, "clean,corruptions,fgsm", out=out / "a", **QUICK)
    holdfast.evaluate(Brightest(), named, "clean,corruptions", out=out / "b", **QUICK)
    other = ArraySource("others", source.images[:6], source.targets[:6], ("red", "green", "blue"), np.arange(6))
    holdfast.evaluate(Brightest(), other, "clean", out=out / "a", **QUICK)
    return out


def of(folder, data="pictures"):
    (records,) = [each for each in holdfast.load_records(folder) if each.header["data"] == data]
    return records


def test_a_label_finds_its_score(run):
    summary = of(run / "a").summary(intervals=False)
    assert summary["mCA"] is summary["mean_corruption_accuracy"]
    assert summary["FGSM"] is summary["attack/fgsm"]
    assert summary["fog"] is summary["accuracy/fog"]


def test_what_is_not_there_says_why_and_what_instead(run):
    summary = of(run / "a").summary(intervals=False)
    with pytest.raises(
        HoldfastError, match=r"mCE divides by a baseline.*not to 'pictures'.*'mean_corruption_accuracy'"
    ):
        summary["mce"]
    with pytest.raises(HoldfastError, match="got 'retenton'; did you mean 'retention'"):
        summary["retenton"]


def test_lists_are_compared_by_their_data(run):
    found = holdfast.compare(holdfast.load_records(run / "a"), holdfast.load_records(run / "b"))
    assert found.images == 12
    assert found.differences["mean_corruption_accuracy"].interval.value == 0
    with pytest.raises(HoldfastError, match="must have the same data and protocol, got others and pictures"):
        holdfast.compare([of(run / "a", "others")], holdfast.load_records(run / "b"))
    with pytest.raises(HoldfastError, match="compare needs records"):
        holdfast.compare(["a"], holdfast.load_records(run / "b"))


def test_notebooks_show_tables(run):
    records = of(run / "a")
    assert "<td style='text-align:left'>fog/3</td>" in records._repr_html_()
    assert "mCA" in records.summary()._repr_html_()
    assert "verdict" in holdfast.compare(records, of(run / "b"))._repr_html_()


def test_classes_are_named_in_pandas(run):
    table = of(run / "a").to_pandas()
    clean = table[table.cell == "clean"]
    assert clean.target_name.tolist() == ["red", "green", "blue"] * 4
    assert clean.prediction_name.tolist() == ["red", "green", "blue"] * 4
