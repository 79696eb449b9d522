"""Images and their objects are varied together."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.data.detection_targets import Objects, run_lengths
from holdfast.errors import HoldfastError
from holdfast.training.augment.detection import (
    ObjectAugmentation,
    as_tensors,
    crop,
    flip,
    resize,
    training_object_transform,
)


def scene(height=60, width=80):
    """Two coloured rectangles, a crowd, and a sliver."""
    corners = np.array([[10, 5, 30, 25], [50, 30, 70, 55], [0, 0, 80, 60], [3, 3, 3.5, 20]], float)
    masks = np.zeros((4, height, width), np.uint8)
    image = np.zeros((height, width, 3), np.uint8)
    for number, (x0, y0, x1, y1) in enumerate(corners.astype(int)):
        masks[number, y0:y1, x0:x1] = 1
        if number < 2:
            image[y0:y1, x0:x1, number] = 255
    objects = Objects(
        (height, width),
        corners,
        np.array([4, 7, 1, 2]),
        masks.sum(axis=(1, 2)).astype(float),
        np.array([False, False, True, False]),
        run_lengths(masks),
    )
    return Image.fromarray(image), objects


def assert_consistent(pixels, target):
    """The coloured pixels are where masks and boxes say."""
    for box, label, mask in zip(target["boxes"], target["labels"], target["masks"], strict=True):
        coloured = pixels[0 if label == 5 else 1] > 0.5
        ys, xs = torch.where(coloured)
        found = torch.tensor([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]).float()
        assert (found - box).abs().max() <= 1.5
        assert (coloured != mask.bool()).float().mean() < 0.02


def test_a_detector_trains_on_objects_that_are_no_crowds_and_at_least_a_pixel_wide():
    pixels, target = as_tensors(*scene())
    assert target["labels"].tolist() == [5, 8]
    assert target["masks"].shape == (2, 60, 80)
    assert (pixels.dtype, pixels.max().item()) == (torch.float32, 1.0)
    assert_consistent(pixels, target)


def test_flipping_twice_changes_nothing_and_once_mirrors_all():
    pixels, target = as_tensors(*scene())
    once = flip(pixels, target)
    assert once[1]["boxes"].tolist() == [[50, 5, 70, 25], [10, 30, 30, 55]]
    assert_consistent(*once)
    again, twice = flip(*once)
    assert torch.equal(again, pixels)
    assert all(torch.equal(twice[key], target[key]) for key in target)


def test_resizing_moves_boxes_and_masks_along():
    pixels, target = resize(*as_tensors(*scene()), 120, 200)
    assert pixels.shape == (3, 120, 160)
    assert target["boxes"].tolist() == [[20, 10, 60, 50], [100, 60, 140, 110]]
    assert_consistent(pixels, target)


def test_a_crop_cuts_boxes_off_and_drops_what_lies_outside():
    pixels, target = crop(*as_tensors(*scene()), 10, 15, 40, 40)
    assert pixels.shape == (3, 40, 40)
    assert target["labels"].tolist() == [5, 8]
    assert target["boxes"].tolist() == [[0, 0, 15, 15], [35, 20, 40, 40]]
    assert_consistent(pixels, target)
    _, nothing = crop(*as_tensors(*scene()), 0, 31, 20, 15)
    assert nothing["boxes"].shape == (0, 4)
    assert nothing["masks"].shape == (0, 20, 15)


def test_the_published_policy_gives_images_as_they_are_or_crops_of_384_to_600_pixels():
    transform = training_object_transform(ObjectAugmentation())
    torch.manual_seed(1)
    sizes = []
    for _ in range(12):
        pixels, target = transform(*scene())
        sizes.append(tuple(pixels.shape[1:]))
        assert target["masks"].shape[1:] == pixels.shape[1:]
    crops = [size for size in sizes if size != (60, 80)]
    assert 0 < len(crops) < 12
    assert all(384 <= side <= 600 for size in crops for side in size)


def test_the_same_seed_gives_the_same_variation():
    transform = training_object_transform(ObjectAugmentation(short_sides=(50, 70), crop_sides=(30, 40)))
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append([transform(*scene()) for _ in range(4)])
    for (one, first), (two, second) in zip(*results, strict=True):
        assert torch.equal(one, two)
        assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hflip": 2}, "hflip must lie between 0 and 1, got 2"),
        ({"short_sides": ()}, "short_sides must be one or more"),
        ({"crop_sides": (5, 3)}, "crop_sides must be two lengths, the smaller one first"),
    ],
)
def test_wrong_settings_are_refused(settings, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        ObjectAugmentation(**settings)
