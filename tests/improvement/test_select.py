"""Halving keeps the control, the choice respects clean images, and who only overfits the choice does not win."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.improvement.decide import KEEP_START, PLAIN_TRAINING, USE, Gain, sentence_of, verdict_of
from holdfast.improvement.scores import Measured
from holdfast.improvement.select import Entry, choose, rung_sizes, survivors
from holdfast.metrics.jackknife import Groups, replicated_means


def of_images(clean: np.ndarray, bad: np.ndarray) -> Measured:
    """Scores of images that are right or wrong: clean (N,), bad (N, cells)."""
    groups = Groups(np.arange(len(clean)) % 50, 50, len(clean))
    columns = 100 * replicated_means(np.column_stack([clean, bad]).astype(float), groups)
    return Measured(columns[:, 0], columns[:, 1:].mean(axis=1), len(clean), "accuracy")


def model(random: np.random.Generator, clean: float, bad: float, *, images: int = 200, cells: int = 10) -> Measured:
    return of_images(random.random(images) < clean, random.random((images, cells)) < bad)


def test_rungs_halve_down_to_three():
    assert rung_sizes(10) == [10, 5, 3]
    assert rung_sizes(4) == [4, 3]
    assert rung_sizes(3) == [3]
    assert rung_sizes(2) == [2]


def test_plain_training_survives_as_the_control_and_the_first_of_equals_stays():
    scores = {"plain": 10.0, "a": 50.0, "b": 60.0, "c": 60.0, "d": 20.0}
    assert survivors(scores, 3) == ["plain", "b", "c"]
    assert survivors(scores, 2) == ["plain", "b"]


def test_a_candidate_that_loses_clean_accuracy_for_sure_is_not_chosen():
    random = np.random.default_rng(0)
    plain = Entry("plain", 1, ("plain",), model(random, 0.9, 0.5))
    harmful = Entry("harmful", 1, ("harmful",), model(random, 0.5, 0.8))
    good = Entry("good", 0.5, ("good",), model(random, 0.9, 0.6))
    assert choose([plain, harmful, good]) is good
    assert good.label == "good, interpolated 0.5"


def test_who_overfits_the_kinds_that_choose_does_not_win_on_the_others():
    """A planted candidate: far better on what chooses, like plain training on what is reported."""
    wins = 0
    for number in range(100):
        random = np.random.default_rng(number)
        plain = model(random, 0.9, 0.5)
        planted = replace(model(random, 0.9, 0.95), clean=plain.clean)
        entries = [Entry("plain", 1, ("plain",), plain), Entry("planted", 1, ("planted",), planted)]
        assert choose(entries).name == "planted"
        tested = [model(random, 0.9, 0.5), model(random, 0.9, 0.5)]
        over_plain = Gain.of([tested[1]], [tested[0]])
        wins += verdict_of(chosen_is_plain=False, over_plain=over_plain, over_start=None, plain_over_start=None) == USE
    assert wins <= 8  # 2.5 % of them by chance; 8 of 100 has a probability of 0.1 %


def test_a_gain_that_is_there_is_found_and_told_with_its_intervals():
    random = np.random.default_rng(1)
    start, plain, best = (model(random, 0.9, bad, images=400) for bad in (0.5, 0.55, 0.7))
    gains = Gain.of([best], [plain]), Gain.of([best], [start]), Gain.of([plain], [start])
    verdict = verdict_of(chosen_is_plain=False, over_plain=gains[0], over_start=gains[1], plain_over_start=gains[2])
    assert verdict == USE
    names = ("over_plain", "over_start", "plain_over_start")
    said = sentence_of(
        verdict,
        model="runs/x",
        challenger="augmix",
        bad="corruption",
        speed="the same speed",
        **dict(zip(names, gains, strict=True)),
    )
    assert said.startswith("Use runs/x (augmix): +")
    assert "over the start" in said
    assert "), the same speed; plain training" in said
    assert "plain training of equal cost" in said


@pytest.mark.parametrize(("bad", "verdict"), [(0.3, KEEP_START), (0.505, KEEP_START), (0.7, PLAIN_TRAINING)])
def test_without_a_winner_plain_training_is_left_if_it_is_better_than_the_start(bad, verdict):
    random = np.random.default_rng(2)
    start, plain = model(random, 0.9, 0.5), model(random, 0.9, bad)
    over_plain, over_start = Gain.of([plain], [plain]), Gain.of([plain], [start])
    found = verdict_of(chosen_is_plain=True, over_plain=over_plain, over_start=over_start, plain_over_start=over_start)
    assert found == verdict


def test_a_winner_over_a_harmful_plain_training_alone_does_not_replace_the_start():
    random = np.random.default_rng(4)
    start, plain, best = (model(random, 0.9, bad) for bad in (0.5, 0.3, 0.505))
    gains = {"over_plain": Gain.of([best], [plain]), "over_start": Gain.of([best], [start])}
    gains["plain_over_start"] = Gain.of([plain], [start])
    verdict = verdict_of(chosen_is_plain=False, **gains)
    assert verdict == KEEP_START
    said = sentence_of(verdict, model="runs/x", challenger="low-lr", bad="corruption", speed="", **gains)
    assert said.startswith("Keep the start: nothing is resolved to be better under corruption.")


def test_seeds_widen_the_interval_of_a_gain():
    random = np.random.default_rng(3)
    one = [model(random, 0.9, bad) for bad in (0.6, 0.7, 0.8)]
    other = [model(random, 0.9, 0.5) for _ in range(3)]
    several, alone = Gain.of(one, other).bad, Gain.of(one[1:2], other[1:2]).bad
    assert several.high - several.low > alone.high - alone.low
    assert several.value == pytest.approx(np.mean([a.values[1] - b.values[1] for a, b in zip(one, other, strict=True)]))
