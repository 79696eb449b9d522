"""The decision card: what it says follows from the paired differences, and nothing that was measured is left out."""

import re
from dataclasses import replace

import pytest

from holdfast.metrics.comparison import compare, compare_all
from holdfast.records.records import load_records
from holdfast.reporting.comparable import data_sets
from holdfast.reporting.page import report
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.decision import against_baseline, decide
from holdfast.reporting.sections.pairwise import matrices
from holdfast.reporting.sections.what_next import what_next
from tests.reporting.helpers import make_run

FOG = tuple(f"fog/{severity}" for severity in range(1, 6))
CELLS = ("clean", *FOG, "pgd5", "fgsm")
LEAD = (("first", 0.5), ("ahead", 0.56))


def card_of(*runs):
    (data,) = data_sets(read_runs(runs))
    pairs = compare_all([entry.records for entry in data.shown_models])
    tables = [against_baseline(data, pairs, place) for place in range(len(data.shown_models))]
    return data, pairs, decide(data, pairs, tables)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("decision")
    return {
        name: make_run(root / name, hold=hold, cells=CELLS, count=200)
        for name, hold in (("plain", 0.2), ("robust", 0.9), ("twin", 0.91))
    }


def test_the_best_model_is_named_with_its_difference(runs):
    _, _, found = card_of(runs["plain"], runs["robust"])
    assert (found.title, found.clear, found.entry.name) == ("Use robust", True, "robust")
    both = compare(load_records(runs["robust"])[0], load_records(runs["plain"])[0]).differences
    mean = both["mean_corruption_accuracy_partial"]
    assert f"{mean.first:.1f} vs. {mean.second:.1f} of plain, +{mean.interval.value:.1f} points" in found.reason
    assert "Against plain, clean" in found.reason
    assert card_of(runs["robust"], runs["plain"])[2].title == "Keep robust"


def test_without_a_difference_there_is_no_winner_and_the_images_that_would_tell(runs):
    data, pairs, found = card_of(runs["robust"], runs["twin"])
    assert found.title == "No clear winner"
    assert "do not tell it from" in found.reason
    steps = what_next(data, pairs, found, examples=False)
    (open_step,) = [step for step in steps if step.text.startswith("Not resolved by 200 images")]
    assert re.search(r"under corruption \(mCA, partial: 1 of 15 kinds\), (about [\d,]+|far more)[;.]", open_step.text)


def test_every_quantity_is_there_for_every_model_also_where_it_was_not_measured(runs, tmp_path):
    less = make_run(tmp_path / "less", hold=0.5, cells=("clean", *FOG, "pgd5"), count=200)
    _, _, found = card_of(runs["plain"], runs["robust"], less)
    for table in found.tables:
        labels = [[chip.score for chip in candidate.chips] for candidate in table.candidates]
        assert labels == [["clean", "mean_corruption_accuracy_partial", "attack/fgsm", "attack/pgd5"]] * 2
    words = {(c.entry.name, chip.score): chip.word for c in found.tables[0].candidates for chip in c.chips}
    assert words["less", "attack/fgsm"] == "not measured"
    assert words["robust", "mean_corruption_accuracy_partial"] == "better"
    assert found.tables[0].tests == 7


def test_a_model_without_the_ranked_score_is_named(runs, tmp_path):
    clean = make_run(tmp_path / "unfinished", hold=0.5, cells=("clean",), count=200)
    _, _, found = card_of(runs["plain"], runs["robust"], clean)
    assert found.title == "Use robust"
    assert "Not ranked, because mCA (partial: 1 of 15 kinds) is not measured: unfinished." in found.caveat


def test_a_lead_that_the_corrected_verdicts_do_not_resolve_is_no_winner(tmp_path):
    attacks = ("clean", *FOG, "pgd5", "fgsm")
    runs = [make_run(tmp_path / name, hold=hold, cells=attacks, count=200) for name, hold in LEAD]
    data, pairs, found = card_of(*runs)
    name = "mean_corruption_accuracy_partial"
    chip = found.tables[0].candidates[0].verdicts[name]
    assert chip.difference.interval.excludes_zero  # resolved alone
    assert chip.word == "not resolved"  # not among the four of the table
    assert (found.title, found.clear) == ("No clear winner", False)
    assert "corrected for the 4 verdicts below, this is not resolved" in found.reason
    assert "The correction is stricter than the 95 % intervals shown." in found.caveat
    (step,) = [step for step in what_next(data, pairs, found, examples=False) if step.text.startswith("Not resolved")]
    assert "under corruption (mCA, partial: 1 of 15 kinds)" in step.text


def test_a_loss_of_clean_accuracy_is_a_trade_off(runs, tmp_path):
    views = make_run(tmp_path / "views", hold=0.9, cells=CELLS, count=200, views=("joint", "low"))
    (data,) = data_sets(read_runs([runs["plain"], views]))
    low = next(entry for entry in data.entries if entry.view == "low")  # 6 points worse on clean images
    data = replace(data, entries=[data.models[0], replace(low, records=low.records.view("low"), view="")])
    object.__setattr__(data.entries[1].records, "by_view", {"low": low.records.cells})
    pairs = compare_all([entry.records for entry in data.shown_models])
    found = decide(data, pairs, [against_baseline(data, pairs, 0)])
    assert found.title == "No clear winner: a trade-off"
    assert re.search(r"Against plain, clean worse: −[\d.]+ points", found.reason)


def test_few_images_are_said_to_be_too_few_for_a_gate(runs, tmp_path):
    few = [make_run(tmp_path / name, hold=hold, cells=CELLS) for name, hold in (("one", 0.2), ("other", 0.9))]
    assert card_of(*few)[2].caveat.endswith("A gate needs at least 50 images to decide.")
    assert "gate" not in card_of(runs["plain"], runs["robust"])[2].caveat


def test_the_matrix_is_antisymmetric_and_covers_all_pairs(runs):
    data, pairs, _ = card_of(*runs.values())
    first, *others = matrices(data, pairs)
    assert first.score == "mean_corruption_accuracy_partial"
    assert {each.score for each in others} == {"clean", "attack/pgd5", "attack/fgsm"}
    opposite = {"better": "worse", "worse": "better"}
    for one in range(3):
        assert first.rows[one][one].text == ""
        for other in range(one):
            a, b = first.rows[one][other], first.rows[other][one]
            assert {a.text, b.text} == {a.text, a.text.replace("+", "−") if "+" in a.text else a.text.replace("−", "+")}
            assert opposite.get(a.word, a.word) == b.word or "no worse" in (a.word, b.word)


def test_the_page_shows_one_table_per_baseline_and_hides_all_but_the_first(runs):
    text = report(list(runs.values()))
    shown = re.findall(r'<div data-baseline="(\d)"( hidden)?>', text)
    assert [place for place, hidden in shown if not hidden] == ["0", "0"]  # in the card and by kind
    assert {place for place, _ in shown} == {"0", "1", "2"}
