"""The coverage table of docs/metrics.md is what the simulations measured, and keeps the promises made beside it."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "perf" / "results"
ROWS = [
    row
    for part in json.loads((RESULTS / "interval_coverage.json").read_text(encoding="utf-8"))["parts"].values()
    for row in part
]


def test_the_page_shows_the_measured_table():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert (RESULTS / "interval_coverage.md").read_text(encoding="utf-8") in page


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['score']}, {row['images']}")
def test_intervals_cover_what_they_promise(row):
    assert row["estimate_outside"] == 0
    covered = row["coverage_of_mean"] if row["score"].startswith("AP") else row["coverage"]
    least = 60 if "rare" in row["score"] else 30
    if row["images"] >= least:
        assert covered >= 92
        few_differ = row["score"].startswith("accuracy difference, 3 %") and row["images"] < 1000
        assert covered <= 98.5 or row["truth"] in (0, 1) or few_differ
        assert few_differ or row["width_by_ideal"] is None or row["width_by_ideal"] <= 1.6
