"""Exports: every format parses back to the same numbers, and no name can break out of its cell."""

import csv
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.corruptions import STANDARD
from holdfast.errors import HoldfastError
from holdfast.metrics.summary import summarise
from holdfast.published.paper_scores import architecture_of, paper_says
from holdfast.records.records import Records
from holdfast.reporting.export.tables import FORMATS, export
from tests.records.making_records import cell, corrupted, flat, records, share
from tests.reporting.export.helpers import (
    HOSTILE,
    benchmark,
    by_score,
    columns_of,
    latex_rows,
    markdown_tables,
    tabulars,
)


def test_a_partial_result_is_partial_in_every_format():
    held = benchmark(drop=["fog/3"])
    entry = json.loads(export(held, "robustbench"))[0]
    assert not {"corruptions_acc", "corruptions_mce"} & set(entry)
    assert entry["holdfast"]["mce_partial"]["missing"] == ["fog/3"]
    rows = by_score(export(held, "csv"))
    assert rows["timm:fan_base_16_p4_hybrid", "mce_partial"]["missing"] == "fog/3"
    assert ("timm:fan_base_16_p4_hybrid", "mce") not in rows
    for format in ("terminal", "md", "latex"):
        text = export(held, format)
        assert "partial" in text
        assert "without fog/3" in text
    headline, accuracies, _ = markdown_tables(export(held, "md"))
    assert "mCE, % of AlexNet" not in headline[0]
    assert accuracies[2][1 + STANDARD.index("fog")] == "–"


def test_kinds_that_lack_the_same_severities_share_a_table_that_says_so():
    some = benchmark(drop=[f"{kind}/{severity}" for kind in STANDARD for severity in (2, 4)])
    text = export(some, intervals=False)
    assert "accuracy by kind (partial: severity 1, 3, 5), %" in text
    assert sum("partial: severity" in line for line in text.splitlines()) <= 3  # not a line for every kind
    assert "mean_corruption_accuracy" not in summarise(some, intervals=False)
    both = export([some, benchmark("other")], intervals=False)
    assert "accuracy by kind, %" in both
    assert "gaussian_noise (partial: severity 1, 3, 5)" in " ".join(both.split())


def test_kinds_of_ones_own_stand_alone_where_there_are_no_others():
    own = records({"clean": cell(share(0.1, count=10)), **corrupted(flat(0.5, kinds=["stripes"]), count=10)})
    text = export(own, intervals=False)
    assert "stri" in text.lower()
    assert "Fog" not in text


def test_views_are_rows():
    both = Records.of(
        benchmark().header, {view: benchmark(seed=seed).cells for seed, view in enumerate(["joint", "rob"])}
    )
    _, accuracies, _ = markdown_tables(export(both, "md"))
    assert [row[0].partition(" · ")[2] for row in accuracies[2:]] == ["joint", "rob"]
    assert {row["view"] for row in csv.DictReader(io.StringIO(export(both, "csv")))} == {"joint", "rob"}


def test_the_paper_says_its_own_below_the_measured_model():
    text = export(benchmark(), "md", paper=True)
    assert "*TAP, Table 3 prints*" in text
    rows = list(csv.DictReader(io.StringIO(export(benchmark(), "csv", paper=True))))
    printed = [float(row["value"]) for row in rows if row["score"] == "mce" and row["source"] != "measured"]
    assert sorted(printed) == [44.3, 44.4, 44.4, 44.5, 45.2, 46.1, 46.1, 46.1, 46.2]
    assert "prints" not in export(benchmark(preset="cifar", classes=10), "md", paper=True)
    assert "prints" not in export(benchmark(), "md")


def test_published_rows_are_found_by_architecture():
    rows = paper_says("fan_base_16_p4_hybrid")
    by_kind = next(row for row in rows if "ce/fog" in row.values and not row.how)
    assert by_kind.values["ce/fog"] == 36.98
    assert np.mean([by_kind.values[f"ce/{kind}"] for kind in STANDARD]) == pytest.approx(46.198, abs=1e-6)
    assert any(row.values.get("accuracy/fog") == 69.8 for row in rows)
    assert [row.values["attack/pgd5"] for row in rows if "attack/pgd5" in row.values] == [30.5, 31.7, 30.5, 31.8]
    assert paper_says("vit_small_patch16_224") == []
    slides = {str(row): row.values["attack/pgd5"] for row in paper_says("tora(vit_base_patch16_224)")}
    assert slides["TORA, Table 1 prints (λ = 0.1)"] == 23.3
    assert slides["TORA, Table 2 prints (λ = 0.7, prediction rob)"] == 52.23
    assert "FAN, Table 11 prints (from ImageNet-22k, at 384 px)" in map(str, paper_says("fan_large_16_p4_hybrid"))
    for model in ("timm:fan_base_16_p4_hybrid@file.pth", "fan_base_16_p4_hybrid.in1k"):
        assert architecture_of({"model": model}) == "fan_base_16_p4_hybrid"


def test_a_stored_set_borrows_the_clean_cell_of_the_same_model():
    stored = records(corrupted(flat(0.5), count=4), data="imagenet-c:x", label="official", model_fingerprint="f")
    clean = records({"clean": cell(share(0.25, count=4))}, data="folder:val", model_fingerprint="f")
    rows = csv.DictReader(io.StringIO(export([stored, clean], "csv", intervals=False)))
    kept = {row["data"]: float(row["value"]) for row in rows if row["score"] == "retention"}
    assert kept == {"imagenet-c:x": pytest.approx(100 * 0.5 / 0.75, abs=1e-4)}
    other = records({"clean": cell(share(0.25, count=4))}, data="folder:val", model_fingerprint="g")
    assert "retention" not in export([stored, other], "csv", intervals=False)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell(name):
    models = [benchmark(name, drop=["fog/3"]), benchmark("plain", seed=1)]
    texts = {format: export(models, format, intervals=False) for format in FORMATS}
    for format, text in texts.items():
        assert all(letter.isprintable() or letter == "\n" for letter in text), format
    for table in markdown_tables(texts["md"]):
        assert {len(row) for row in table} == {len(table[0])}
        assert len(table) == 4
    assert "<script" not in texts["md"]
    for specification, body in tabulars(texts["latex"]):
        rows = latex_rows(body)
        assert {columns_of(row) for row in rows} == {len(specification)}
        assert not any(row[0].lstrip().startswith(("[", "*")) for row in rows)
        assert not re.search(r"(?<!\\)[%#^~]", body)
    for row in csv.DictReader(io.StringIO(texts["csv"])):
        assert None not in row
        assert not row["model"].startswith(("=", "+", "-", "@"))
    assert len(json.loads(texts["robustbench"])) == 2
    assert max(map(len, texts["terminal"].splitlines())) <= 100


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.text(max_size=10))
def test_no_text_breaks_a_table(name, view):
    cells = {"clean": cell([True, False]), **corrupted(flat(0.5, kinds=["fog"]), count=2)}
    held = records(cells, model=name, view=view)
    for table in markdown_tables(export(held, "md", intervals=False)):
        assert len(table) == 3
        assert {len(row) for row in table} == {len(table[0])}
    for specification, body in tabulars(export(held, "latex", intervals=False)):
        assert {columns_of(row) for row in latex_rows(body)} == {len(specification)}
    rows = list(csv.DictReader(io.StringIO(export(held, "csv", intervals=False))))
    assert len(rows) == len(summarise(held, intervals=False))
    assert len(json.loads(export(held, "robustbench", intervals=False))) == 1
    assert max(map(len, export(held, intervals=False).splitlines())) <= 100


def test_an_empty_record_set_is_a_row_without_scores():
    for format in FORMATS:
        one, none = export(records({}), format), export([], format)
        assert isinstance(one, str)
        assert isinstance(none, str)
        assert len(one) >= len(none)
        assert "nan" not in one.lower()


def test_an_unfinished_evaluation_says_so():
    held = Records(benchmark().header, {"": benchmark(drop=["fog/3"]).cells}, incomplete={"fog/3": (1, 2)})
    assert "incomplete, evaluate again to resume: fog/3" in export(held, intervals=False)


def test_an_unknown_format_gets_one_sentence():
    with pytest.raises(HoldfastError, match=r"format must be one of terminal, md, .* got 'latx'; did you mean 'latex'"):
        export(benchmark(), "latx")
    assert export(benchmark(), "markdown", intervals=False) == export(benchmark(), "md", intervals=False)


def test_equal_names_are_told_apart_and_nobody_has_a_row_of_dashes():
    models = [benchmark(seed=seed) for seed in (0, 1)]
    clean = records({"clean": cell(share(0.5, count=4))}, model="clean only", data="folder:val")
    text = export([*models, clean], intervals=False, width=120)
    names = {line.split("  ")[0] for line in text.splitlines() if line.startswith("timm:fan_base_16_p4_hybrid ")}
    assert len({name for name in names if "folder" not in name} or names) >= 2
    for table in markdown_tables(export([*models, clean], "md", intervals=False)):
        assert len({row[0] for row in table}) == len(table)
        assert not any(set(row[1:]) == {"–"} for row in table[2:])
