"""CSV and RobustBench's JSON: every score with its interval, numbers as text."""

import json

import pytest

from holdfast.metrics.summary import summarise
from holdfast.reporting.export.tables import export
from tests.reporting.export.helpers import benchmark, by_score


def test_csv_holds_every_score_with_its_interval():
    held = benchmark()
    rows, summary = by_score(export(held, "csv")), summarise(held)
    assert len(rows) == len(summary)
    for score in summary:
        row = rows["timm:fan_base_16_p4_hybrid", score.name]
        assert [float(row[key]) for key in ("value", "low", "high")] == pytest.approx(
            [score.value, score.low, score.high], abs=1e-4
        )
        assert (row["unit"], row["better"], row["images"]) == (score.unit, score.better, "100")


def test_robustbench_has_its_keys_and_numbers_as_text():
    entry, second = json.loads(export([benchmark(), benchmark("b", data="cifar10:x", classes=10)], "robustbench"))
    summary = summarise(benchmark())
    assert entry["clean_acc"] == "90.00"
    assert entry["corruptions_acc"] == f"{summary['mean_corruption_accuracy'].value:.2f}"
    assert entry["corruptions_mce"] == f"{summary['mce'].value:.2f}"
    assert (entry["dataset"], second["dataset"]) == ("imagenet", "cifar10")
    assert entry["architecture"] == "fan_base_16_p4_hybrid"
    assert "corruptions_mce" not in second
    assert "on the fly" in entry["footnote"]
    assert entry["holdfast"]["mce"]["value"] == pytest.approx(summary["mce"].value, abs=1e-4)
