"""Jackknife replicates of average precision: AP of a cell's images, and AP without each group of images."""

import numpy as np
import pytest

from holdfast.metrics.ap_jackknife import cell_replicates, replicated_precision
from holdfast.metrics.average_precision import record_scores
from holdfast.metrics.jackknife import image_groups
from tests.metrics.test_average_precision import (
    found_fields,
    random_case,
    truth_fields,
)


@pytest.mark.parametrize("overlap", ["bbox", "segm"])
@pytest.mark.parametrize("seed", [1, 4])
def test_a_replicate_is_the_precision_of_the_images_that_stay(overlap, seed):
    images, found = random_case(seed)
    fields = truth_fields(images) | found_fields(found, len(images))
    groups = image_groups([f"{number:03d}" for number in range(len(images))])
    ours = replicated_precision(fields, groups, overlap=overlap)
    for column in range(1 + groups.count):
        chosen = np.arange(len(images)) if column == 0 else groups.without(column - 1)
        kept = {name: [values[image] for image in chosen] for name, values in fields.items()}
        again = record_scores({**kept, **{name: np.array(kept[name]) for name in ("size", "masked")}})[overlap]
        for name in ("AP", "AP50", "AP75"):
            assert ours[name][column] == pytest.approx(again[name], abs=1e-12)
    assert len(set(ours["AP"].round(6))) > 2


def test_the_replicates_of_a_cell_begin_with_its_own_precision():
    images, found = random_case(2)
    fields = truth_fields(images) | found_fields(found, len(images))
    groups = image_groups([f"{number:03d}" for number in range(len(images))])
    replicates = cell_replicates(fields, groups)
    scores = record_scores(fields)
    assert replicates["box_AP"].shape == replicates["mask_AP"].shape == (1 + len(images),)
    assert replicates["box_AP"][0] == pytest.approx(scores["bbox"]["AP"])
    assert replicates["mask_AP75"][0] == pytest.approx(scores["segm"]["AP75"])
