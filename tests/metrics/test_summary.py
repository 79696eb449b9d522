"""Scores from records: counted by hand, equal to the published arithmetic, and never silently partial."""

import numpy as np
import pytest

from holdfast.corruptions import EXTRA, SEVERITIES, STANDARD
from holdfast.errors import HoldfastError
from holdfast.metrics import (
    FAN_LABEL,
    corruption_errors,
    fan_accuracy,
    jackknife_interval,
    mean_corruption_accuracy,
    mean_corruption_error,
    relative_corruption_errors,
    retention,
)
from holdfast.metrics.corruption import WITHOUT_NOISE, alexnet_errors
from holdfast.metrics.summary import summarise
from holdfast.published import published
from tests.records.making_records import cell, corrupted, flat, names, records, share

FAN_B = published("scores")["corruption_errors"][0]
FAN_B_ADL = published("scores")["corruption_errors"][2]


def test_alexnets_own_errors_give_one_hundred():
    errors = published("alexnet")["errors"]  # of 50 000 images, so five decimals
    cells = corrupted(errors, count=50_000)
    summary = summarise(records({"clean": cell(share(0.4348, count=50_000)), **cells}), intervals=False)
    for name in ("mce", "mce_without_noise", "relative_mce", *(f"ce/{kind}" for kind in STANDARD)):
        assert summary[name].value == pytest.approx(100), name
    assert summary["mean_corruption_accuracy"].value == pytest.approx(100 * (1 - 0.788993), abs=1e-4)


@pytest.mark.parametrize(("row", "expected"), [(FAN_B, 46.198), (FAN_B_ADL, 44.269)])
def test_the_printed_ces_of_fan_b_average_as_they_should(row, expected):
    base = alexnet_errors()
    count = 100_000
    errors = {kind: [round(ce / 100 * base[kind] * count) / count] * 5 for kind, ce in row["values"].items()}
    summary = summarise(records(corrupted(errors, count=count)), intervals=False)
    assert summary["mce"].value == pytest.approx(expected, abs=1e-3)
    for kind, ce in row["values"].items():
        assert summary[f"ce/{kind}"].value == pytest.approx(ce, abs=2e-3)


def random_errors(count, *, kinds=STANDARD, seed=0):
    rng = np.random.default_rng(seed)
    return {kind: (np.sort(rng.integers(1, count, 5)) / count).tolist() for kind in kinds}


def test_every_score_equals_the_pure_function_of_the_same_errors():
    errors = random_errors(40, kinds=(*STANDARD, *EXTRA))
    summary = summarise(records({"clean": cell(share(0.1, count=40)), **corrupted(errors, count=40)}), intervals=False)
    ces = corruption_errors(errors)
    relative = relative_corruption_errors(errors, clean_error=0.1)
    expected = {
        "mce": mean_corruption_error(ces),
        "mce_without_noise": mean_corruption_error(ces, kinds=WITHOUT_NOISE),
        "relative_mce": mean_corruption_error(relative),
        "mean_corruption_accuracy": 100 * mean_corruption_accuracy(errors),
        "retention": retention(mean_corruption_accuracy(errors), 0.9),
        "fan_accuracy": 100 * fan_accuracy(errors),
        "fan_retention": retention(fan_accuracy(errors), 0.9),
        **{f"ce/{kind}": ce for kind, ce in corruption_errors(errors, kinds=(*STANDARD, *EXTRA)).items()},
        **{f"accuracy/{kind}": 100 * (1 - np.mean(row)) for kind, row in errors.items()},
    }
    for name, value in expected.items():
        assert summary[name].value == pytest.approx(value), name
    assert summary["fan_accuracy"].note == summary["fan_retention"].note == FAN_LABEL


def test_relative_mce_and_retention_by_hand():
    # corruption takes 0.2 more everywhere; AlexNet loses E_c − 0.4348
    cells = {"clean": cell(share(0.3, count=10)), **corrupted(flat(0.5), count=10)}
    summary = summarise(records(cells), intervals=False)
    by_hand = 100 * np.mean([0.2 / (base - 0.4348) for base in list(alexnet_errors().values())])
    assert summary["relative_mce"].value == pytest.approx(by_hand)
    assert summary["retention"].value == pytest.approx(100 * 0.5 / 0.7)


def test_there_is_no_alexnet_mce_of_other_images():
    cells = corrupted(flat(0.5), count=4)
    for header in ({"classes": 10, "preset": "cifar"}, {"classes": 100}, {"preset": "inception"}):
        summary = summarise(records(cells, **header), intervals=False)
        assert not [name for name in summary.scores if "ce" in name.split("/")[0].split("_") or name.startswith("ce/")]
        assert summary["mean_corruption_accuracy"].value == 50


def test_a_baseline_on_the_same_images_takes_alexnets_place():
    clean = {"clean": cell(share(0.0, count=10))}
    ours = records({**clean, **corrupted(flat(0.2), count=10)}, classes=10, preset="cifar")
    base = records({**clean, **corrupted(flat(0.5), count=10)}, classes=10, preset="cifar", model="base")
    summary = summarise(ours, baseline=base, intervals=False)
    assert summary["mce"].value == pytest.approx(40)
    assert summary["mce"].unit == "% of base"
    assert summary["relative_mce"].value == pytest.approx(40)
    assert summarise(base, baseline=base, intervals=False)["mce"].value == pytest.approx(100)


def test_a_missing_severity_makes_scores_partial_under_another_name():
    cells = {"clean": cell(share(0.0, count=4)), **corrupted(flat(0.5), count=4)}
    del cells["fog/3"]
    summary = summarise(records(cells), intervals=False)
    for name in ("mce", "mean_corruption_accuracy", "retention", "relative_mce", "mce_without_noise", "accuracy/fog"):
        assert name not in summary
        partial = summary[f"{name}_partial"]
        assert partial.partial
        assert partial.missing == ("fog/3",)
        assert "partial" in partial.label
        with pytest.raises(HoldfastError, match=f"'{name}' is only available in part, .* fog/3 missing"):
            summary[name]
    assert summary["mce_partial"].label == "mCE (partial: 14 of 15 kinds)"
    assert summary["mce_without_noise_partial"].label == "mCE w/o noise (partial: 11 of 12 kinds)"
    assert summary["accuracy/fog_partial"].label == "fog (partial: severity 1, 2, 4, 5)"
    assert not summary["accuracy/snow"].partial
    assert "ce/fog" not in summary
    assert "ce/fog_partial" not in summary


def test_noise_may_be_missing_where_it_does_not_count():
    cells = corrupted(flat(0.5, kinds=WITHOUT_NOISE), count=4)
    summary = summarise(records(cells), intervals=False)
    assert "mce_without_noise" in summary
    assert "mce_partial" in summary
    assert len(summary["mce_partial"].missing) == 15


def test_a_baseline_that_lacks_a_kind_makes_its_scores_partial():
    ours = records(corrupted(flat(0.2), count=5))
    base = records(corrupted(flat(0.4, kinds=STANDARD[:-1]), count=5))
    summary = summarise(ours, baseline=base, intervals=False)
    assert summary["mce_partial"].missing == tuple(f"jpeg_compression/{s}" for s in SEVERITIES)
    assert "mean_corruption_accuracy" in summary


def test_retention_of_a_single_right_image_has_no_interval_and_of_none_no_value():
    right = np.arange(6) == 0  # without this image there is no clean accuracy to keep
    cells = {"clean": cell(right), **{name: cell(right) for name in corrupted(flat(0.5), count=6)}}
    kept = summarise(records(cells))["retention"]
    assert kept.value == pytest.approx(100)
    assert np.isnan([kept.low, kept.high]).all()
    never = {"clean": cell(np.zeros(6, bool)), **corrupted(flat(1.0), count=6)}
    nothing = summarise(records(never))["retention"]
    assert np.isnan([nothing.value, nothing.low, nothing.high]).all()


def test_a_model_that_keeps_nothing_has_an_upper_bound_of_its_retention():
    cells = {"clean": cell(np.arange(40) < 20), **corrupted(flat(1.0), count=40)}
    kept = summarise(records(cells))["retention"]
    share = summarise(records(cells))["mean_corruption_accuracy"].high / 100
    assert (kept.value, kept.low) == (0, 0)
    assert kept.high == pytest.approx(100 * share / 0.5)


def test_intervals_are_those_of_the_jackknife_over_images():
    rng = np.random.default_rng(0)
    cells = {name: cell(rng.random(200) < 0.6) for name in ("clean", *corrupted(flat(0.5), count=2))}
    score = summarise(records(cells))["mean_corruption_accuracy"]
    rows = np.stack([cells[name].right for name in cells if name != "clean"], axis=1)
    alone = jackknife_interval(rows, scale="proportion")
    assert score.value == pytest.approx(100 * alone.value)
    assert (score.low, score.high) == pytest.approx((100 * alone.low, 100 * alone.high))
    assert summarise(records(cells), intervals=False)["clean"].low != score.low  # NaN: none was computed


def test_a_perfect_model_on_eight_images_is_not_certain_and_the_summary_says_few_images():
    summary = summarise(records({"clean": cell(np.ones(8, bool))}))
    assert (summary["clean"].value, summary["clean"].high) == (100, 100)
    assert summary["clean"].low < 70
    assert summary.interval_note == "few images: 8"


def test_a_clean_cell_of_other_records_serves_a_stored_set_on_the_shared_images():
    stored = records(corrupted(flat(0.5), count=4), label="official")
    clean = records({"clean": cell([True, True, False, False, False], ids=[*names(4), "another"])})
    summary = summarise(stored, clean=clean, intervals=False)
    assert summary["clean"].value == 50
    assert summary["retention"].value == pytest.approx(100)
    assert summary.images == 4
    with pytest.raises(HoldfastError, match="must be records with the cell 'clean'"):
        summarise(stored, clean=stored)


def test_cells_are_aligned_by_id_not_by_place():
    shuffled = cell([False, True, True], ids=["c", "a", "b"])
    cells = {"clean": cell([True, False, True], ids=["a", "b", "c"]), "pgd5": shuffled}
    assert summarise(records(cells), intervals=False)["attack/pgd5"].value == pytest.approx(200 / 3)
    with pytest.raises(HoldfastError, match="at least one common image"):
        summarise(records({"clean": cell([True], ids=["a"]), "pgd5": cell([True], ids=["z"])}))


def test_records_without_cells_have_no_scores():
    assert len(summarise(records({}))) == 0
    with pytest.raises(HoldfastError, match="score must be one that the records allow, got 'mce'"):
        summarise(records({}))["mce"]


def test_a_view_is_summarised_as_it_is_seen():
    joint, robust = (records({"clean": cell(right)}) for right in ([True, True], [True, False]))
    two = type(joint).of(joint.header, {"joint": joint.cells, "rob": robust.cells})
    assert two.summary(intervals=False)["clean"].value == 100
    assert two.view("rob").summary(intervals=False)["clean"].value == 50
    assert two.view("rob").summary(intervals=False).view == "rob"
