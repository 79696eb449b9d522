"""Tables of the terminal and of Markdown: they fit, and have one value per column and row."""

import re

import pytest

from holdfast.corruptions import STANDARD
from holdfast.corruptions.severities import short_heading
from holdfast.metrics.summary import summarise
from holdfast.reporting.export.tables import export
from tests.reporting.export.helpers import benchmark, markdown_tables


def test_markdown_has_one_value_per_column_and_row():
    models = [benchmark(), benchmark("other", seed=1)]
    headline, accuracies, errors = markdown_tables(export(models, "md"))
    assert headline[0][:2] == ["model", "clean, %"]
    assert {len(row) for row in headline} == {len(headline[0])}
    assert accuracies[0] == errors[0] == ["model", *STANDARD]
    assert [row[0] for row in accuracies[2:]] == ["timm:fan_base_16_p4_hybrid", "other"]
    summary = summarise(models[1])
    mce = headline[0].index("mCE, % of AlexNet")
    number, low, high = (float(part) for part in re.findall(r"[\d.]+", headline[3][mce]))
    assert (number, low, high) == pytest.approx(
        (summary["mce"].value, summary["mce"].low, summary["mce"].high), abs=0.06
    )
    assert float(errors[3][1].strip("*")) == pytest.approx(summary["ce/gaussian_noise"].value, abs=0.06)


@pytest.mark.parametrize("width", [100, 120])
def test_the_terminal_table_fits_and_is_grouped(width):
    text = export([benchmark(), benchmark("x" * 300, seed=1)], width=width, paper=True)
    assert max(map(len, text.splitlines())) <= width
    title, groups, short, first, *_ = text[text.index("accuracy by kind") :].splitlines()
    assert title == "accuracy by kind, %"
    assert [group.strip("─") for group in groups.split() if group.strip("─")] == ["noise", "blur", "weather", "digital"]
    assert short.split() == [short_heading(kind) for kind in STANDARD]
    expected = [summarise(benchmark(), intervals=False)[f"accuracy/{kind}"].value for kind in STANDARD]
    assert [float(number) for number in first.split()[1:]] == pytest.approx(expected, abs=0.051)
    # every group's name stands above its own columns
    for group, kind in (("noise", "gaussian_noise"), ("digital", "jpeg_compression")):
        middle = groups.index(group) + len(group) / 2
        assert abs(middle - short.index(short_heading(kind))) < 25


def test_a_single_model_is_listed_with_intervals():
    text = export(benchmark())
    assert re.search(r"^  mCE +\d+\.\d\d % of AlexNet  \(\d+\.\d\d to \d+\.\d\d\)$", text, re.MULTILINE)
    assert "[" not in export(benchmark(), intervals=False)
    assert max(map(len, export(benchmark("x" * 300), intervals=False).splitlines())) <= 100


def test_extra_kinds_have_columns_of_their_own():
    text = export(benchmark(extra=True), width=140)
    narrow = export(benchmark(extra=True), width=100)
    assert text.count("accuracy by kind") == 1
    assert narrow.count("accuracy by kind") == 2
    assert max(map(len, narrow.splitlines())) <= 100
    assert "extra" in text
    assert "Spec GBlu Spat Satu" in text
    assert "16-kind, does not reproduce the print exactly" in text
