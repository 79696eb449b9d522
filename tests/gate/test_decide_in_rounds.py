"""A gate that stops early, on models whose answers can be read off the pixels."""

import numpy as np
import pytest
import torch

from holdfast import ComputeConfig, Until, compare, evaluate, gate
from holdfast.errors import HoldfastError
from holdfast.gate import read_baseline, save_baseline
from holdfast.gate.decide_in_rounds import decide_in_rounds
from holdfast.gate.evaluate_candidate import requests_like_baseline
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule
from holdfast.records.records import load_records
from holdfast.testing import assert_no_worse
from tests.evaluation.toys import Brightest, colours

SUITES = "clean,corruptions-135"
IMAGES, CELLS = 120, 46
MEAN = "mean_corruption_accuracy_partial"
QUICK = {"workers": 0, "show": False}


class Guesser(Brightest):
    """Forgets a part of the images, whatever is done to them."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, images):
        shade = (1e5 * images.mean(dim=(1, 2, 3))).round() % 100
        return torch.where((shade < 100 * self.share)[:, None], torch.zeros(3), super().forward(images))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    out = tmp_path_factory.mktemp("full")
    return evaluate(Brightest(), colours(IMAGES), SUITES, out=out, compute=ComputeConfig(shard_size=40), **QUICK)


def passes_of(answers):
    used, _, whole, _ = answers[0].passes.split()
    assert int(whole.replace(",", "")) == IMAGES * CELLS
    return int(used.replace(",", ""))


def test_a_much_worse_model_is_refused_after_few_passes(full, tmp_path):
    with pytest.raises(AssertionError, match=rf"(?s){MEAN} no worse.*worse.*FAIL") as failed:
        assert_no_worse(
            Guesser(0.6),
            colours(IMAGES),
            baseline=full,
            rules=[f"{MEAN} no worse"],
            until="decided",
            out=tmp_path,
            **QUICK,
        )
    text = str(failed.value)
    used = int(text.split("images, ")[1].split(" of", maxsplit=1)[0].replace(",", ""))
    assert used < IMAGES * CELLS / 5
    (records,) = load_records(tmp_path)
    assert records.passes.done == used


def test_the_same_seed_decides_alike_and_a_stopped_gate_goes_on(full, tmp_path):
    rules, options = [f"{MEAN} no worse by more than 5"], {"until": "decided", "baseline": full, **QUICK}
    (once,) = assert_no_worse(Guesser(0.1), colours(IMAGES), rules=rules, out=tmp_path / "a", **options)
    assert once.verdict in ("no worse", "better")
    assert 500 < passes_of([once]) < IMAGES * CELLS
    with pytest.raises(AssertionError, match="not resolved"):
        assert_no_worse(
            Guesser(0.1), colours(IMAGES), rules=rules, out=tmp_path / "b", budget=passes_of([once]) - 60, **options
        )
    (again,) = assert_no_worse(Guesser(0.1), colours(IMAGES), rules=rules, out=tmp_path / "b", **options)
    assert again == once


def test_baselines_of_a_part_of_the_grid(full, tmp_path):
    """A baseline file that stopped early says which images it holds; beyond them there is nothing to compare."""
    part = evaluate(Brightest(), colours(IMAGES), SUITES, out=tmp_path / "old", until=Until(budget=1500), **QUICK)
    (side,) = paired_scores_of(tmp_path / "old")
    save_baseline([side], tmp_path / "baseline.json")
    (read,) = read_baseline(tmp_path / "baseline.json")
    assert {cell: len(rows) for cell, rows in read.rows.items()} == {n: len(c) for n, c in part.cells.items()}
    assert (tmp_path / "baseline.json").stat().st_size < 40_000
    for cell, rows in side.rows.items():
        assert np.array_equal(read.rows[cell], rows)
        assert np.array_equal(read.columns[cell, "right"], side.columns[cell, "right"])
    (answer,) = assert_no_worse(
        Guesser(0.05),
        colours(IMAGES),
        baseline=tmp_path / "baseline.json",
        rules=[f"{MEAN} no worse by more than 1"],
        until="decided",
        unresolved="pass",
        out=tmp_path / "new",
        **QUICK,
    )
    assert answer.verdict == "not resolved"
    assert passes_of([answer]) <= part.passes.done


def test_a_gate_with_a_single_look_tests_the_pairs_that_both_have_and_says_so(full, tmp_path):
    some = evaluate(Guesser(0.1), colours(IMAGES), SUITES, out=tmp_path, until=Until(budget=1500), **QUICK)
    found = gate(some, full, rules=[f"{MEAN} no worse by more than 1"])
    (answer,) = found.verdicts
    assert answer.passes == str(some.passes)
    difference = compare(some, full).differences[MEAN].interval
    assert (answer.interval.low, answer.interval.high) == (difference.low, difference.high)
    assert repr(found).startswith(f"colours, {answer.images} images, {some.passes} of the new model")
    for text in (repr(found), found.markdown(), found.junit()):
        assert text.count(str(some.passes)) == 1
    assert "95 % interval" in repr(found)
    assert gate(full, full).verdicts[0].passes == ""


def test_the_old_model_is_measured_further_where_it_stopped_early(full, tmp_path):
    evaluate(Brightest(), colours(IMAGES), SUITES, out=tmp_path / "old", until=Until(budget=500), **QUICK)
    old = paired_scores_of(tmp_path / "old")
    new, partner = (
        requests_like_baseline(old, model, data=[colours(IMAGES)], out=tmp_path / name, workers=0)
        for model, name in ((Guesser(0.1), "new"), (Brightest(), "old"))
    )
    rules = Rules((parse_rule(f"{MEAN} no worse by more than 5"),))
    (answer,), _ = decide_in_rounds(new, old, rules, old_requests=partner, show=False)
    assert answer.verdict in ("no worse", "better")
    after = [load_records(tmp_path / name)[0].passes.done for name in ("old", "new")]
    assert after[0] == after[1] == passes_of([answer]) > 500
    (against_full,) = assert_no_worse(
        Guesser(0.1),
        colours(IMAGES),
        baseline=full,
        rules=[rules.rules[0].text],
        until="decided",
        out=tmp_path / "new",
        **QUICK,
    )
    assert against_full.interval == answer.interval  # the same pairs, wherever the old answers come from


def test_what_cannot_be_decided_in_rounds_is_one_sentence(full):
    with pytest.raises(HoldfastError, match="until must be 'decided' or None, got 'never'"):
        assert_no_worse(Brightest(), colours(IMAGES), baseline=full, until="never", **QUICK)
    with pytest.raises(HoldfastError, match="budget must be enough for the first round"):
        assert_no_worse(Brightest(), colours(IMAGES), baseline=full, until="decided", budget=10, **QUICK)
