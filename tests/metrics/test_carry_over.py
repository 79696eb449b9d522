"""Whether a gain on ImageNet-C carries over to C-bar: the rule, its words, and the intervals behind them."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.corruptions import C_BAR_SUITES, SEVERITIES, STANDARD
from holdfast.metrics import carry_over_verdict, compare, paper_says
from holdfast.metrics.intervals import Interval, t_quantile
from tests.records.making_records import cell, corrupted, flat, records

BAR = C_BAR_SUITES["imagenet-c-bar"]


def interval(low, high):
    return Interval((low + high) / 2, low, high, 0.95)


@pytest.mark.parametrize(
    ("on_c_bar", "apart", "verdict"),
    [
        ((0.1, 2), (1, 3), "carries over"),  # although C gains more
        ((0.1, 2), (-1, 1), "carries over"),
        ((-0.5, 1), (0.2, 3), "specific to ImageNet-C"),
        ((-3, -1), (2, 5), "specific to ImageNet-C"),
        ((0, 1), (0.2, 3), "specific to ImageNet-C"),  # 0 is no gain
        ((-0.5, 1), (-0.2, 3), "not resolved"),
        ((-0.5, 1), (0, 3), "not resolved"),
        ((-3, -1), (-5, -2), "not resolved"),
        ((float("nan"), float("nan")), (float("nan"), float("nan")), "not resolved"),
    ],
)
def test_the_rule(on_c_bar, apart, verdict):
    assert carry_over_verdict(interval(*on_c_bar), interval(*apart)) == verdict


def simulated(rng, *, count, c, bar):
    """Right or wrong of two models: the second is right on 60 %, the first on some more of C and of C-bar."""

    def cells(gain):
        hard = rng.random(count)
        second = hard < 0.6
        return second | (rng.random(count) < gain), second

    sides = [{}, {}]
    for kinds, gain in ((STANDARD, c), (BAR, bar)):
        for kind in kinds:
            for severity in SEVERITIES:
                for side, right in zip(sides, cells(gain), strict=True):
                    side[f"{kind}/{severity}"] = cell(right)
    return [records(side, model=name) for side, name in zip(sides, ("new", "old"), strict=True)]


def right(records, kinds):
    """The accuracy of every image over the cells of these kinds, in percent."""
    return 100 * np.mean([records.cells[f"{kind}/{s}"].right for kind in kinds for s in SEVERITIES], axis=0)


def leave_one_out(differences):
    """The interval of a mean of paired differences, by leaving out one image after the other."""
    left = np.array([np.delete(differences, place).mean() for place in range(len(differences))])
    count = len(left)
    half = t_quantile(count - 1) * np.sqrt((count - 1) / count * ((left - left.mean()) ** 2).sum())
    return differences.mean(), differences.mean() - half, differences.mean() + half


@pytest.mark.parametrize(
    ("c", "bar", "verdict"), [(0.3, 0.3, "carries over"), (0.3, 0.0, "specific to ImageNet-C"), (0.02, 0.0, None)]
)
def test_intervals_are_those_of_leaving_out_image_by_image(c, bar, verdict):
    new, old = simulated(np.random.default_rng(1), count=120, c=c, bar=bar)
    found = compare(new, old).carry_over
    on_c, on_bar = (right(new, kinds) - right(old, kinds) for kinds in (STANDARD, BAR))
    assert (found.on_c.value, found.on_c.low, found.on_c.high) == pytest.approx(leave_one_out(on_c))
    assert (found.apart.value, found.apart.low, found.apart.high) == pytest.approx(leave_one_out(on_c - on_bar))
    if bar:
        assert (found.on_c_bar.value, found.on_c_bar.low, found.on_c_bar.high) == pytest.approx(leave_one_out(on_bar))
    assert (found.better, found.other) == ("new", "old")
    if verdict is not None:
        assert found.verdict == verdict
        assert str(found) in str(compare(new, old))
        assert verdict in str(found)


def test_wrong_verdicts_are_as_rare_as_the_intervals_promise():
    """A gain on C alone is hardly ever said to carry over, and an equal gain hardly ever to be specific."""
    rng = np.random.default_rng(2)
    alone = [compare(*simulated(rng, count=60, c=0.03, bar=0.0)).carry_over for _ in range(20)]
    equal = [compare(*simulated(rng, count=60, c=0.03, bar=0.03)).carry_over for _ in range(20)]
    assert sum(each.verdict == "carries over" for each in alone) <= 2
    assert sum(each.verdict == "specific to ImageNet-C" for each in equal) <= 2
    assert sum(each.verdict == "carries over" for each in equal) >= 16


def test_the_gain_is_that_of_the_model_that_is_better_on_c():
    good = records({**corrupted(flat(0.2), count=10), **corrupted(flat(0.3, kinds=BAR), count=10)}, model="good")
    bad = records({**corrupted(flat(0.6), count=10), **corrupted(flat(0.5, kinds=BAR), count=10)}, model="bad")
    one, other = compare(good, bad).carry_over, compare(bad, good).carry_over
    assert (one.better, one.on_c.value, one.on_c_bar.value, one.apart.value) == pytest.approx(("good", 40, 20, 20))
    assert one == other
    assert compare(good, good).carry_over is None


def test_half_of_a_benchmark_gives_no_verdict():
    whole = {**corrupted(flat(0.2), count=10), **corrupted(flat(0.3, kinds=BAR), count=10)}
    other = {**corrupted(flat(0.6), count=10), **corrupted(flat(0.3, kinds=BAR), count=10)}
    for missing in ("fog/3", "sparkles/2"):
        sides = [{name: held for name, held in cells.items() if name != missing} for cells in (whole, other)]
        assert compare(records(sides[0], model="a"), records(sides[1], model="b")).carry_over is None
    assert compare(records(whole, model="a"), records(other, model="b")).carry_over is not None


def test_stored_sets_of_the_same_images_are_brought_together():
    def sets(model, c, bar):
        known = {"model": model, "model_fingerprint": model, "label": "official"}
        return [
            records(corrupted(flat(c), count=10), data="imagenet-c:x", **known),
            records(corrupted(flat(bar, kinds=BAR), count=10), data="imagenet-c-bar:x", **known),
        ]

    found = compare(sets("good", 0.2, 0.3), sets("bad", 0.6, 0.5)).carry_over
    assert (found.better, found.on_c.value, found.on_c_bar.value) == pytest.approx(("good", 40, 20))
    other = sets("bad", 0.6, 0.5)
    other[1] = replace(other[1], header={**other[1].header, "model_fingerprint": "another"})
    assert compare(sets("good", 0.2, 0.3), other).carry_over is None


def test_the_mean_over_c_bar_is_plain_and_partial_without_a_kind():
    errors = {kind: [0.1 * number] * 5 for number, kind in enumerate(BAR)}
    scores = records(corrupted(errors, count=10)).summary(intervals=False)
    assert scores["mean_c_bar_accuracy"].value == pytest.approx(100 - 45)
    assert "ImageNet-C-bar" in scores["mean_c_bar_accuracy"].definition
    fewer = records(corrupted(dict(list(errors.items())[:9]), count=10)).summary(intervals=False)
    assert "mean_c_bar_accuracy" not in fewer
    assert fewer["mean_c_bar_accuracy_partial"].value == pytest.approx(100 - 40)
    small = records(corrupted(flat(0.5, kinds=C_BAR_SUITES["cifar-c-bar"]), count=10)).summary(intervals=False)
    assert "CIFAR-10-C-bar" in small["mean_c_bar_accuracy"].definition
    assert "mean_c_bar_accuracy_partial" not in small


def test_the_published_errors_stand_beside_a_resnet50_as_accuracies():
    found = [row for row in paper_says("resnet50") if "mean_c_bar_accuracy" in row.values]
    assert len(found) == 6
    plain, augmix = found[0], next(row for row in found if "AugMix" in row.how)
    gains = [augmix.values[name] - plain.values[name] for name in ("mean_corruption_accuracy", "mean_c_bar_accuracy")]
    assert gains == pytest.approx([8.9, 5.3])
    for row in found:
        kinds = np.mean([row.values[f"accuracy/{kind}"] for kind in BAR])
        assert kinds == pytest.approx(row.values["mean_c_bar_accuracy"], abs=0.07)
