"""Verdicts on records made by hand, whose answers are known."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.output import junit, markdown, terminal
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule, rules_of
from holdfast.gate.verdicts import all_passed, decide, verdict_of
from holdfast.metrics.comparison import compare
from holdfast.metrics.intervals import Interval
from tests.records.making_records import cell, corrupted, flat, records

IDENTITY = {"data_fingerprint": "abc", "seed": 0, "versions": {"holdfast": "0.1.0", "numpy": "2.0", "torch": "2.6"}}
KNOWN = {"model": "m", "model_fingerprint": "m", "preset": "cifar", "classes": 10, **IDENTITY}


def one_cell(right, **header):
    return records({"clean": cell(right)}, **{**KNOWN, "model_fingerprint": header.get("model", "m"), **header})


def models(count, *, gain=0.0, loss=0.0, seed=0):
    """Two models: the new one is right on ``gain`` more of the images and wrong on ``loss`` of those it knew."""
    rng = np.random.default_rng(seed)
    old = np.arange(count) % 10 < 6
    changed = rng.random(count)
    new = np.where(old, changed >= loss / 0.6, changed < gain / 0.4)
    return one_cell(new, model="new"), one_cell(old, model="old")


def verdicts(new, old, *rules, **settings):
    asked = Rules(tuple(map(parse_rule, rules)), **settings)
    return decide(paired_scores_of(new), paired_scores_of(old), asked)


def verdict(new, old, *rules, **settings):
    (answer,) = verdicts(new, old, *rules, **settings)
    return answer


@pytest.mark.parametrize(
    ("changes", "count", "margin", "expected"),
    [
        ({"gain": 0.05}, 2000, 0.5, "better"),
        ({"loss": 0.05}, 2000, 0.5, "worse"),
        ({}, 2000, 0.5, "no worse"),  # the same answers
        ({}, 2000, 0.0, "not resolved"),  # the same answers, but another model may differ on other images
        ({"gain": 0.02, "loss": 0.02}, 20000, 1.0, "no worse"),  # other answers, as many right ones
        ({"gain": 0.02, "loss": 0.02}, 300, 0.5, "not resolved"),  # too few images to tell
        ({}, 49, 0.5, "not resolved"),  # so few images say nothing, even of equal answers
    ],
)
def test_what_is_said_of_better_worse_equal_and_too_few(changes, count, margin, expected):
    answer = verdict(*models(count, **changes), margin=margin)
    assert answer.verdict == expected
    assert answer.passed is (expected in ("better", "no worse"))
    assert answer.images == count


def test_the_same_model_is_no_worse_than_itself_without_any_margin():
    right = np.arange(60) % 10 < 6
    one, other = (one_cell(right, model_fingerprint=name) for name in ("same", "other"))
    assert verdict(one, one, margin=0.0).verdict == "no worse"
    assert verdict(one, other, margin=0.0).verdict == "not resolved"


def test_what_is_not_resolved_fails_or_passes_as_the_user_says():
    new, old = models(300, gain=0.02, loss=0.02)
    assert not verdict(new, old, unresolved="fail").passed
    answer = verdict(new, old, unresolved="pass")
    assert answer.passed
    assert "times as many images" in answer.reason
    assert "too few images: 40" in verdict(*models(40)).reason


def test_the_number_of_images_that_is_named_resolves():
    old = np.arange(400) % 10 < 6
    new = old.copy()
    new[[3, 7, 13, 17]] ^= True  # two known ones lost, two others won
    answer = verdict(one_cell(new), one_cell(old))
    assert answer.verdict == "not resolved"
    told = float(answer.reason.split("about ")[1].split(" times")[0])
    assert told > 1
    new, old = (one_cell(np.tile(right, int(2 * told))) for right in (new, old))
    assert verdict(new, old).verdict == "no worse"


def test_intervals_are_those_of_the_comparison():
    new, old = models(500, gain=0.04, loss=0.02)
    difference = compare(new, old).differences["clean"]
    answer = verdict(new, old)
    assert (answer.new, answer.old) == (difference.first, difference.second)
    assert answer.interval.value == pytest.approx(difference.interval.value)
    assert answer.interval.low == pytest.approx(difference.interval.low, abs=0.4)  # the images stand in another order


@pytest.mark.parametrize(
    ("bounds", "no_worse", "better"),
    [
        ((0.1, 2.0), "better", "better"),
        ((0.0, 0.0), "no worse", "no worse"),
        ((-0.5, 0.5), "no worse", "not resolved"),
        ((-0.6, 0.5), "not resolved", "not resolved"),
        ((-0.6, -0.1), "not resolved", "worse"),
        ((-0.9, -0.6), "worse", "worse"),
    ],
)
def test_the_words_for_every_place_of_the_interval(bounds, no_worse, better):
    gain = Interval(sum(bounds) / 2, *bounds, 0.95)
    assert verdict_of(gain, margin=0.5) == no_worse
    assert verdict_of(gain, margin=0.0, asked="better") == better


def test_lower_is_better_for_errors():
    good, bad = (
        records(corrupted(flat(error), count=100), **{**KNOWN, "preset": "imagenet", "classes": 1000})
        for error in (0.2, 0.6)
    )
    assert verdict(good, bad, "mce no worse").verdict == "better"
    assert verdict(bad, good, "mCE no worse by more than 3").verdict == "worse"
    assert verdict(bad, good, "mce <= 70").verdict == "missed"
    assert verdict(good, bad, "mce <= 70").verdict == "met"
    rise = round(verdict(bad, good, "mce no worse").interval.value, 1)
    unclear = verdict(bad, good, f"mce no worse by more than {rise}")
    assert unclear.verdict == "not resolved"
    assert f"the interval includes {rise:+g}" in unclear.reason  # the sign of the interval that is shown


def benchmark(error=0.2, *, fog=None, count=100, **header):
    cells = {"clean": cell(np.arange(count) >= 10), **corrupted(flat(error), count=count)}
    if fog is not None:
        cells["fog/5"] = cell(np.arange(count) >= round(fog * count))
    return records(cells, **{**KNOWN, **header})


def test_rules_name_scores_labels_cells_and_kinds():
    new, old = benchmark(0.2, fog=0.6), benchmark(0.2)
    asked = [
        "retention >= 85",
        "C no worse than the baseline by more than 0.5 points",
        "fog/5 no worse",
        "fog no worse",
    ]
    answers = {answer.rule.name: answer for answer in verdicts(new, old, *asked)}
    assert answers["retention"].new == pytest.approx(100 * (0.8 - 0.4 / 75) / 0.9)
    assert answers["retention"].verdict == "met"
    assert answers["C"].interval.value == pytest.approx(-40 / 75)
    assert answers["fog/5"].interval.value == pytest.approx(-40)
    assert answers["fog/5"].verdict == "worse"
    assert answers["fog"].interval.value == pytest.approx(-8)
    assert verdict(new, old, "mCA no worse").label == "mCA"


def test_without_rules_every_headline_score_is_asked():
    new = old = records({**benchmark().cells, "pgd5": cell([True] * 100, family="attack", kind="pgd5")}, **KNOWN)
    names = [answer.rule.name for answer in verdicts(new, old)]
    assert names == ["clean", "mean_corruption_accuracy", "retention", "attack/pgd5"]


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"data_fingerprint": "other"}, "data"),
        ({"preset": "tiny"}, "protocol"),
        ({"label": "official"}, "protocol"),
        ({"frost": "frost(procedural)"}, "protocol"),
        ({"preprocessing": {"protocol": "x", "after_corruption": "JPEG quality 85"}}, "protocol"),
        ({"seed": 1}, "seed"),
        ({"versions": {**IDENTITY["versions"], "holdfast": "0.2.0"}}, "version"),
        ({"versions": {**IDENTITY["versions"], "numpy": "3.0"}}, "version"),
    ],
)
def test_a_baseline_of_other_data_protocol_seed_or_version_is_refused(other, word):
    with pytest.raises(HoldfastError, match=f"but these differ: {word} "):
        verdicts(benchmark(**other), benchmark())


def test_torch_and_the_models_own_size_may_differ():
    header = {"versions": {**IDENTITY["versions"], "torch": "3.0"}, "preprocessing": {"model_size": "384×384 bicubic"}}
    assert all_passed(verdicts(benchmark(**header), benchmark()))


def test_two_record_sets_that_fit_are_not_chosen_from():
    sides = paired_scores_of(benchmark())
    with pytest.raises(HoldfastError, match="got 2 that match"):
        decide([*sides, *sides], sides, Rules())


def test_cells_that_are_missing_or_made_otherwise_are_refused():
    whole = benchmark()
    with pytest.raises(HoldfastError, match=r"must have all cells of the baseline .* fog/1 is missing"):
        verdicts(whole.only([name for name in whole.cells if name != "fog/1"]), whole)
    newer = records({**whole.cells, "fog/1": cell(np.arange(100) >= 20, revision=2)}, **KNOWN)
    with pytest.raises(HoldfastError, match="fog/1 has another definition"):
        verdicts(newer, whole)
    assert all_passed(verdicts(newer, whole, "snow no worse"))  # what is asked is there
    with pytest.raises(HoldfastError, match="fog/1 has another definition"):
        verdicts(newer, whole, "fog/1 no worse")
    with pytest.raises(HoldfastError, match="to test the others, use 'retention_partial'"):
        verdicts(*[whole.only(["clean", *(f"fog/{s}" for s in range(1, 6))])] * 2, "retention >= 1")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("retention > 85", "a rule must have the form"),
        ("no worse", "a rule must have the form"),
        ("fog no worse by more than -1", "at least 0"),
        ("retenton >= 85", "did you mean 'retention'"),
        ("fog/6 no worse", "did you mean 'fog/"),
    ],
)
def test_rules_that_say_nothing_are_refused(rule, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        verdicts(benchmark(), benchmark(), rule)


@pytest.mark.parametrize(
    "values",
    [
        3,
        [],
        {"rule": []},
        {"rules": []},
        {"rules": "clean better"},
        {"rules": [3]},
        {"unresolved": "maybe"},
        {"margin": -1},
        {"images": 0},
    ],
)
def test_files_of_rules_that_say_nothing_are_refused(values):
    with pytest.raises(HoldfastError):
        rules_of(values, name="gate.yaml")


def test_a_file_of_rules_says_how_answers_are_read():
    rules = rules_of({"unresolved": "pass", "margin": 1, "rules": ["clean no worse", "retention ≥ 80 %"]}, name="g")
    assert (rules.unresolved, rules.margin, [rule.what for rule in rules.rules]) == ("pass", 1, ["no worse", ">="])


def test_verdicts_as_text():
    from xml.etree import ElementTree

    answers = verdicts(
        benchmark(0.2, fog=0.6, data="a|b<c>"), benchmark(data="a|b<c>"), "fog/5 no worse", "retention >= 85"
    )
    assert "FAIL: 1 of 2 rules failed" in terminal(answers)
    assert "−40.00" in terminal(answers)
    root = ElementTree.fromstring(junit(answers))
    assert root.attrib["failures"] == "1"
    assert [case.attrib["name"] for case in root.iter("testcase")] == ["fog/5 no worse", "retention >= 85"]
    (failure,) = root.iter("failure")
    assert failure.attrib["message"].startswith("fog/5 no worse: worse (80.00 before, 40.00 now, −40.00")
    table = [line for line in markdown(answers).splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert "a\\|b&lt;c>" in markdown(answers)
