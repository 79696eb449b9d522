"""Figures as files: every figure of the page in every format, with its numbers and without the page's colours."""

import csv

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare
from holdfast.records.records import load_records
from holdfast.reporting.export.figures import parse_figure_formats
from holdfast.reporting.page import report
from tests.reporting.helpers import make_run

CELLS = ("clean", *(f"fog/{severity}" for severity in range(1, 6)), "pgd5")


def test_every_figure_of_the_page_is_a_file_with_its_numbers(tmp_path):
    runs = [make_run(tmp_path / name, hold=hold, cells=CELLS) for name, hold in (("plain", 0.3), ("robust", 0.9))]
    words = [
        "--out",
        str(tmp_path / "report.html"),
        "--figures",
        str(tmp_path / "figures"),
        "--figure-format",
        "svg,csv",
    ]
    assert main(["report", *map(str, runs), *words]) == 0
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    page = (tmp_path / "report.html").read_text()
    assert {"data-1-by-accuracy-1", "training-loss"} <= names
    assert all(f'id="{name}"' in page for name in names)
    assert f"--figures {tmp_path / 'figures'}" in page
    rows = list(csv.DictReader((tmp_path / "figures" / "data-1-by-accuracy-1.csv").open()))
    fog = compare(*(load_records(run)[0] for run in runs[::-1])).differences["accuracy/fog"].interval
    (row,) = [row for row in rows if row["kind"] == "fog"]
    assert [float(row[key]) for key in ("difference", "low", "high")] == pytest.approx(
        [fog.value, fog.low, fog.high], abs=1e-3
    )
    for path in (tmp_path / "figures").glob("*.svg"):
        text = path.read_text()
        assert not any(stand_in in text for stand_in in ("#010203", "#040506", "#070809", "#0a0b0c")), path.name


def test_bad_formats_are_one_sentence_before_anything_is_read(tmp_path):
    with pytest.raises(HoldfastError, match="figure format must be some of"):
        parse_figure_formats("jpg")
    with pytest.raises(HoldfastError, match="need format html"):
        report(tmp_path, figures=tmp_path / "f", format="md")
