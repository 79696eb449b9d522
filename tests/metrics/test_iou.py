"""Segmentation scores: the published metric, brute force, torchmetrics, and the papers' averages."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassConfusionMatrix, MulticlassJaccardIndex

from holdfast.errors import HoldfastError
from holdfast.metrics.iou import (
    BANDS,
    GROUPS,
    KINDS,
    band_counts,
    boundary_counts,
    boundary_distance,
    cityscapes_c_mean,
    class_accuracy,
    class_iou,
    group_means,
    kind_means,
    mean_accuracy,
    mean_iou,
    near_boundary,
    pixel_accuracy,
    pixel_counts,
)
from tests import golden_weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "segmentation.json").read_text())["metric"]


def golden_counts() -> np.ndarray:
    predicted, true = golden_weights.label_pair("golden/seg/metric")
    return np.stack([pixel_counts(p, t, classes=19) for p, t in zip(predicted, true, strict=True)])


def test_the_published_metric():
    pooled = golden_counts().sum(axis=0)
    nan = [np.nan if value is None else value for value in GOLDEN["iou"]]
    np.testing.assert_allclose(class_iou(pooled), nan, atol=5e-8)
    np.testing.assert_allclose(class_accuracy(pooled), [np.nan if v is None else v for v in GOLDEN["acc"]], atol=5e-8)
    assert mean_iou(pooled) == pytest.approx(GOLDEN["mIoU"], abs=5e-8)
    assert pixel_accuracy(pooled) == pytest.approx(GOLDEN["aAcc"], abs=5e-8)
    assert mean_accuracy(pooled) == pytest.approx(GOLDEN["mAcc"], abs=5e-8)
    assert mean_iou(golden_counts()).mean() == pytest.approx(GOLDEN["mean_of_per_image_mIoU"], abs=5e-8)


def test_torchmetrics_agrees_where_labels_are_ignored():
    predicted, true = map(torch.from_numpy, golden_weights.label_pair("golden/seg/metric"))
    pooled = golden_counts().sum(axis=0)
    jaccard = MulticlassJaccardIndex(num_classes=19, ignore_index=255)
    assert mean_iou(pooled) == pytest.approx(float(jaccard(predicted, true)), abs=1e-6)
    matrix = MulticlassConfusionMatrix(num_classes=19, ignore_index=255)(predicted, true).numpy()
    np.testing.assert_array_equal(pooled, [matrix.sum(1), matrix.sum(0), matrix.diagonal()])


def maps(draw_shape, classes=4):
    """Two label maps, the true one with ignored pixels."""
    height, width, seed = draw_shape
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, (height, width)).repeat(2, 0).repeat(2, 1)[:height, :width]
    true = np.where(rng.random((height, width)) < 0.1, 255, true)
    predicted = np.where(
        rng.random((height, width)) < 0.7, np.where(true == 255, 0, true), rng.integers(0, classes, (height, width))
    )
    return predicted, true


def brute_counts(predicted, true, where, classes=4):
    counts = np.zeros((3, classes), int)
    for p, t, w in zip(predicted.ravel(), true.ravel(), where.ravel(), strict=True):
        if t != 255 and w:
            counts[0, t] += 1
            counts[1, p] += 1
            counts[2, t] += p == t
    return counts


def brute_distance(labels, *, border=False):
    """Chessboard distance of every pixel to the nearest one with another label."""
    height, width = labels.shape
    out = np.full(labels.shape, 10**6)
    for y in range(height):
        for x in range(width):
            different = np.argwhere(labels != labels[y, x])
            if len(different):
                out[y, x] = np.abs(different - (y, x)).max(axis=1).min()
            if border:
                out[y, x] = min(out[y, x], y + 1, x + 1, height - y, width - x)
    return out


SHAPES = st.tuples(st.integers(1, 14), st.integers(1, 17), st.integers(0, 10**6))


@settings(max_examples=25, deadline=None)
@given(SHAPES)
def test_counts_and_bands_equal_brute_force(shape):
    predicted, true = maps(shape)
    np.testing.assert_array_equal(
        pixel_counts(predicted, true, classes=4), brute_counts(predicted, true, np.ones(true.shape, bool))
    )
    distance = brute_distance(true)
    edges = [0, *BANDS, 10**7]
    bands = band_counts(predicted, true, classes=4)
    for number, (low, high) in enumerate(pairwise(edges)):
        np.testing.assert_array_equal(
            bands[number], brute_counts(predicted, true, (distance > low) & (distance <= high))
        )
    np.testing.assert_array_equal(bands.sum(axis=0), pixel_counts(predicted, true, classes=4))


@settings(max_examples=25, deadline=None)
@given(SHAPES)
def test_boundary_iou_equals_its_definition(shape):
    predicted, true = maps(shape)
    distance = boundary_distance(true.shape)
    seen = np.where(true == 255, 255, predicted)
    counts = boundary_counts(predicted, true, classes=4)
    for label in range(4):
        regions = [
            (labels == label) & (brute_distance((labels == label).astype(int), border=True) <= distance)
            for labels in (true, seen)
        ]
        assert counts[:, label].tolist() == [regions[0].sum(), regions[1].sum(), (regions[0] & regions[1]).sum()]


def test_the_border_of_the_image_is_a_contour_only_for_boundary_iou():
    flat = np.zeros((50, 50), np.uint8)
    assert not near_boundary(flat, 3).any()
    assert near_boundary(flat, 3, border=True).sum() == 50 * 50 - 44 * 44
    assert boundary_distance((1024, 2048)) == 46


def test_absent_classes_are_left_out_and_wrongly_predicted_ones_count_as_zero():
    counts = pixel_counts(np.array([[0, 0, 2]]), np.array([[0, 0, 0]]), classes=4)
    np.testing.assert_array_equal(class_iou(counts), [2 / 3, np.nan, 0, np.nan])
    assert mean_iou(counts) == pytest.approx(1 / 3)
    nothing = pixel_counts(np.array([[1]]), np.array([[255]]), classes=4)
    assert np.isnan(mean_iou(nothing))
    assert np.isnan(pixel_accuracy(nothing))


def test_scores_work_alike_on_many_draws():
    counts = np.random.default_rng(0).integers(1, 50, (7, 5, 3, 6))
    counts[..., 2, :] = np.minimum(counts[..., 0, :], counts[..., 1, :]) // 2
    assert mean_iou(counts).shape == (7, 5)
    assert mean_iou(counts)[3, 2] == pytest.approx(mean_iou(counts[3, 2]))


# ---------------------------------------------------------------------- averages

TABLE_13 = {  # FAN Table 13: motion defocus glass gauss, four noises, four digital, four weather; mean
    "FAN-S-Hybrid": ("68.6 68.9 61.0 70.0 57.5 61.3 62.2 71.5 80.5 74.9 79.4 62.1 47.4 70.8 77.9 48.8", 66.42),
    "FAN-L-Hybrid": ("70.0 69.9 65.3 71.6 60.0 64.5 63.3 71.6 81.4 76.2 80.1 62.3 53.1 73.9 78.9 54.4", 68.53),
}


@pytest.mark.parametrize("model", TABLE_13)
def test_kinds_average_to_the_printed_number(model):
    row, printed = TABLE_13[model]
    by_kind = dict(zip(KINDS, map(float, row.split()), strict=True))
    cells = {f"{kind}/{severity}": value for kind, value in by_kind.items() for severity in range(1, 6)}
    assert cityscapes_c_mean(cells) == pytest.approx(printed, abs=0.006)
    assert group_means(cells)["noise"] == pytest.approx(np.mean([by_kind[kind] for kind in GROUPS["noise"]]))


def test_severity_rules_of_paper_and_released_tester():
    cells = {f"{kind}/{severity}": 10.0 * severity for kind in KINDS for severity in range(1, 6)}
    paper, released = kind_means(cells), kind_means(cells, rule="fan-released")
    assert (paper["fog"], paper["shot_noise"]) == (30.0, 20.0)
    assert set(released.values()) == {20.0}
    assert cityscapes_c_mean(cells) == pytest.approx((12 * 30 + 4 * 20) / 16)
    assert len([1 for kind in KINDS for s in range(1, 6) if kind not in GROUPS["noise"] or s <= 3]) == 72


def test_cells_are_rounded_before_they_are_averaged_as_released():
    cells = {f"{kind}/{severity}": 50.004 for kind in KINDS for severity in range(1, 6)}
    assert cityscapes_c_mean(cells) == pytest.approx(50.0, abs=1e-12)
    assert cityscapes_c_mean(cells, rounded=False) == pytest.approx(50.004)


def test_what_cannot_be_averaged_gets_one_sentence():
    cells = {f"{kind}/{severity}": 1.0 for kind in KINDS for severity in range(1, 6)}
    del cells["fog/4"]
    with pytest.raises(HoldfastError, match="missing: fog/4"):
        cityscapes_c_mean(cells)
    assert cityscapes_c_mean(cells, rule="fan-released") == 1.0
    with pytest.raises(HoldfastError, match="rule must be one of paper, fan-released, all"):
        kind_means(cells, rule="tap")
    with pytest.raises(HoldfastError, match="maps"):
        pixel_counts(np.zeros((2, 2)), np.zeros((2, 3)), classes=2)
    with pytest.raises(HoldfastError, match="counts must be"):
        mean_iou(np.zeros((4, 5)))
