"""The page of a study: numbers that can be read back, hostile names that stay names."""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast.studies.columns import COLUMNS, available, scores
from holdfast.studies.config import Claim, load_study
from holdfast.studies.differences import difference
from holdfast.studies.figures import (
    trade_off_columns,
    trade_off_figure,
)
from holdfast.studies.report import (
    claims_table,
    csv_table,
    difference_table,
    interval_note,
    judged_claims,
    markdown_table,
    page,
    terminal_tables,
    verdict_of,
    views_table,
    write_page,
)
from holdfast.studies.results import measured_alike
from tests.studies.test_results import result


def results():
    return {row: [result(row, seed, images=60) for seed in (0, 1)] for row in ("baseline", "A|B, \n<x>")}


def test_the_csv_holds_every_run_and_can_be_read_back():
    lines = list(csv.DictReader(io.StringIO(csv_table(results()))))
    assert [(line["row"], line["seed"]) for line in lines][-1] == ("A|B, \n<x>", "1")
    expected = scores(COLUMNS["clean"], [results()["baseline"][0]]).mean
    assert float(lines[0]["clean"]) == pytest.approx(expected, rel=1e-5)


def test_markdown_has_as_many_cells_in_every_line_whatever_the_names():
    lines = markdown_table(results()).splitlines()
    assert len({line.replace(r"\|", "").count("|") for line in lines}) == 1
    assert len(lines) == 4


def test_every_prediction_of_a_model_with_several_has_its_line():
    kept = {"acc/clean": np.array([1.0, 0.0]), "acc/corrupted": np.array([0.5, 0.0])}
    several = [replace(run, measures=run.measures | kept) for run in results()["baseline"]]
    lines = views_table({"plain": results()["baseline"], "TORA": several}).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| TORA", "joint"], ["| TORA", "acc"]]
    assert lines[3].startswith("| TORA | acc | 50.0 ± 0.0 | 25.0 ± 0.0 | –")
    assert "## Every prediction" in page(load_study("cifar10/main"), {"TORA": several})
    assert "## Every prediction" not in page(load_study("cifar10/main"), {"plain": results()["baseline"]})


def test_cells_that_were_corrected_between_two_runs_are_left_out_and_named():
    study = load_study("cifar10/main")
    old, new = results()["baseline"]
    both = {"a": [old], "b": [replace(new, header={**new.header, "revisions": {"fog/3": 2}})]}
    assert "corrected" not in page(study, {"a": [old], "b": [new]})
    assert "*Without fog: corrected since some of these runs were measured.*" in page(study, measured_alike(both))
    assert "Without fog: corrected" in terminal_tables(study, measured_alike(both), width=80)[-1].caption
    assert "Without" not in terminal_tables(study, {"a": [old], "b": [new]}, width=80)[-1].caption


def test_what_a_row_has_no_score_for_is_a_dash_and_judges_nothing(tmp_path):
    one, two = results()["baseline"]
    alone = replace(one, row="one head", measures={"stability": np.full(len(one.measures["stability"]), np.nan)})
    study = replace(load_study("cifar10/main"), claims=(Claim("steadier", "one head", "baseline", "stability"),))
    rows = {"baseline": [one], "one head": [alone]}
    assert [line.split(" | ")[-3] for line in markdown_table(rows).splitlines()[2:]][1] == "–"
    assert difference_table(rows).splitlines()[-1].endswith("| – |")
    assert judged_claims(study, rows) == []
    assert write_page(study, rows, out=tmp_path).is_file()
    assert judged_claims(study, {"baseline": [one], "one head": [replace(two, seed=0)]})


def test_points_of_a_hundred_have_one_decimal_and_shares_three_however_small():
    one = results()["baseline"][0]
    broken = {cell: np.zeros_like(right) for cell, right in one.right.items()}
    rows = {name: [replace(one, row=name, right=broken)] for name in ("a", "b")}
    names = list(available(rows))
    for table, (percent, share) in {
        markdown_table: (r"0\.0", r"0\.\d{3}"),
        difference_table: (r"\+0\.0 .*", r"\+0\.000 .*"),
    }.items():
        cells = dict(zip(names, table(rows).splitlines()[-1].split(" | ")[1:], strict=False))
        assert re.fullmatch(percent, cells["clean"])
        assert re.fullmatch(share, cells["stability"].removesuffix(" |"))


def test_a_claim_is_judged_with_its_difference():
    claim = Claim("rows are equal", "A|B, \n<x>", "baseline", "clean")
    table = claims_table([claim], results())
    assert "+0.0 (-4.6 to +4.6) | **not resolved** (two seeds)" in table  # of 60 images, with two pseudo-pairs


def test_a_verdict_says_how_few_seeds_it_has():
    def told(seeds, others=(0, 1, 2)):
        rows = {"baseline": [result("baseline", seed) for seed in others], "B": [result("B", s) for s in others]}
        rows["A"] = [result("A", seed) for seed in seeds]
        return verdict_of(Claim("", "A", "baseline", "clean"), rows).summary

    assert told((0, 1, 2)) == "**not resolved** (3 seeds)"
    assert told((0, 1)) == "**not resolved** (two seeds)"
    assert told((0,)) == "**not resolved** (one seed)"
    assert told((0,), others=(0,)) == "**not resolved** (one seed: images only)"


def test_the_page_says_what_its_intervals_are_made_of():
    rows = {row: [result(row, seed, images=60) for seed in (0, 1, 2)] for row in ("baseline", "A", "B<", "C")}
    rows |= {"B<": rows["B<"][:2], "C": rows["C"][:1]}
    study = load_study("cifar10/main")
    assert (
        "*95 % intervals: jackknife over the images, seed variance pooled over 3 rows. One seed: C. Two seeds: B&lt;.*"
    ) in page(study, rows)
    alone = {row: runs[:1] for row, runs in rows.items()}
    assert "*95 % intervals: jackknife over the images; one seed: images only.*" in page(study, alone)
    few = {row: [result(row, 0, images=20)] for row in ("a", "b")}
    assert interval_note(few).endswith("Few images: 20.")


def test_the_page_and_its_plots_are_written_and_repeatable(tmp_path):
    study = load_study("cifar10/main", rows=["baseline", "TAP"])
    runs = {"baseline": results()["baseline"], "TAP": [result("TAP", seed, images=60) for seed in (0, 1)]}
    path = write_page(study, runs, out=tmp_path / "out")
    assert path.read_text(encoding="utf-8") == page(study, runs)
    assert study.title in page(study, runs)
    for name in ("rows.png", "differences.png", "training.png", "table.csv"):
        assert (tmp_path / "out" / name).stat().st_size > 100


def test_the_plot_of_the_trade_off_puts_clean_accuracy_against_every_way_to_go_bad(tmp_path):
    runs = {"plain": [result("plain", seed) for seed in (0, 1)], "A": [result("A", 1)], "B": [result("B", 0)]}
    columns = available(runs)
    axes = trade_off_figure(runs).axes
    assert [axis.get_xlabel() for axis in axes] == ["clean"] * 3
    assert [axis.get_title() for axis in axes] == ["C", "occluded", "PGD-5"]
    for axis, bad in zip(axes, ("corrupted", "occluded", "pgd5"), strict=True):
        dots = [line.get_xydata().tolist() for line in axis.lines if line.get_marker() in ("s", "^")]
        at = ("clean", bad)
        assert dots == [[[difference(columns[c], runs, row, "plain").value for c in at]] for row in ("A", "B")]
    study = load_study("cifar10/main")
    assert "(trade_off.png)" in write_page(study, runs, out=tmp_path).read_text(encoding="utf-8")
    assert (tmp_path / "trade_off.png").stat().st_size > 100
    assert trade_off_columns({row: runs[row] for row in ("plain", "A")}) == []  # one row is a difference, not a trade
    assert trade_off_columns({"plain": runs["A"], "A": runs["A"], "B": runs["B"]}) == []


def test_rows_without_a_common_seed_are_shown_and_not_compared(tmp_path):
    study = load_study("cifar10/main", rows=["baseline", "TAP"])
    runs = {"baseline": [result(seed=0, images=60)], "TAP": [result("TAP", 1, images=60)]}
    text = write_page(study, runs, out=tmp_path).read_text(encoding="utf-8")
    assert "| TAP | – | – |" in text
    assert "TAP raises accuracy" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_sees_every_number_whatever_its_width(width):
    runs = {row: [result(row, seed, images=60) for seed in (0, 1)] for row in ("baseline", "[TAP]")}
    tables = terminal_tables(load_study("cifar10/main"), runs, width=width)
    console = Console(width=width, record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "[TAP]" in text
    for column in available(runs).values():
        spread = scores(column, runs["baseline"])
        assert f"{spread.mean:.1f} ± {spread.std:.1f}" in text or f"{spread.mean:.3f} ± {spread.std:.3f}" in text
    assert (len(tables) == 1) == (width == 200)


def test_a_single_row_still_gives_a_page(tmp_path):
    study = load_study("cifar10/main", rows=["baseline"])
    assert "## Against" not in page(study, {"baseline": results()["baseline"]})
    write_page(study, {"baseline": results()["baseline"]}, out=tmp_path)


def test_an_unwritable_folder_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="out must be a writable folder"):
        write_page(load_study("cifar10/main"), {"baseline": results()["baseline"]}, out=tmp_path / "file")


def test_names_of_rows_are_never_formulas():
    from holdfast.studies.report import quote_csv

    assert quote_csv("=1+2") == "'=1+2"
    assert quote_csv('@x,"y"') == '"\'@x,""y"""'
    assert [quote_csv(name)[0] for name in ("+a", "-a", "\ta")] == ["'"] * 3
    assert quote_csv("TAP+ADL") == "TAP+ADL"
