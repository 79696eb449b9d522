"""What records, summaries and scores are in Python: their table, plain data, a DataFrame, a number."""

import json

import numpy as np
import pytest

import holdfast
from tests.evaluation.toys import Brightest, colours


@pytest.fixture(scope="module")
def records():
    return holdfast.evaluate(Brightest(), colours(12), "quick,pgd5", workers=0)


def test_records_are_shown_as_a_table_of_their_cells(records):
    lines = repr(records).splitlines()
    assert len(repr(records)) < 2_000
    assert lines[0].endswith(" images; mean score, %")
    fog = next(line for line in lines if line.split()[0] == "fog")
    assert fog.split()[1] == f"{100 * records.cells['fog/3'].accuracy:.1f}"
    assert any(line.split() == ["severity", "3"] for line in lines)
    assert len(lines) == 1 + 2 + 1 + 15
    assert max(map(len, lines)) <= 80
    assert repr(records.cells["clean"]).startswith("clean: 12 images, mean score ")


def test_a_summary_is_its_table_plain_data_and_a_frame(records):
    summary = records.summary()
    lines = repr(summary).splitlines()
    assert len(lines) == 1 + len(summary)
    assert f"{summary['clean'].value:.2f} %" in lines[1]
    plain = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert list(plain["scores"]) == [score.name for score in summary]
    for score in summary:
        assert plain["scores"][score.name]["value"] == (None if np.isnan(score.value) else score.value)
        assert plain["scores"][score.name]["low"] == (None if np.isnan(score.low) else score.low)
    assert (plain["images"], plain["model"]) == (12, records.header["model"])
    frame = summary.to_pandas()
    assert list(frame.index) == [score.name for score in summary]
    assert frame.loc["clean", "value"] == summary["clean"].value
    assert float(summary["clean"]) == summary["clean"].value


def test_a_comparison_is_shown_as_its_lines(records):
    compared = holdfast.compare(records, records)
    assert repr(compared) == str(compared)
