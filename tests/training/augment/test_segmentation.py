"""Images and label maps are varied together, as the published recipe varies them."""

import numpy as np
import pytest
import torch
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.training.augment.segmentation import (
    DISTORTIONS,
    ClassRatioCrop,
    JointAugmentation,
    PhotometricDistortion,
    RandomScale,
    as_pair,
    is_mixed,
    scaled_size,
    training_pair_transform,
    validation_pair_transform,
)

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pair(height=40, width=60) -> tuple[Image.Image, np.ndarray]:
    """An image whose red channel is its label map, so that whatever moves one must move the other."""
    labels = (np.add.outer(np.arange(height) // 8, np.arange(width) // 8) % 5).astype(np.uint8)
    pixels = np.stack([labels * 50, labels * 0 + 90, labels * 0 + 200], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels), labels


@pytest.mark.parametrize(
    ("size", "factor", "expected"),
    [
        ((1024, 2048), 1.0, (1024, 2048)),
        ((1024, 2048), 0.5, (512, 1024)),
        ((1024, 2048), 1.3337, (1365, 2730)),  # int(2731.4…) = 2731 and int(1365.7…) = 1365: the short side limits
        ((1080, 1920), 1.0, (1024, 1820)),  # ACDC
    ],
)
def test_sizes_follow_the_released_rule(size, factor, expected):
    assert scaled_size(size, factor, box=(1024, 2048)) == expected


def test_labels_move_with_their_pixels():
    image, labels = pair()
    settings = JointAugmentation(crop=(32, 32), box=None, scale=(1.0, 1.0), distort=False)
    transform = training_pair_transform(settings, mean=(0, 0, 0), std=(1, 1, 1))
    flips = set()
    for seed in range(12):
        torch.manual_seed(seed)
        pixels, moved = transform(image, labels)
        assert pixels.shape == (3, 32, 32)
        assert moved.dtype == torch.int64
        torch.testing.assert_close(pixels[0] * 255 / 50, moved.float())
        flips.add(moved.numpy().tobytes())
    assert len(flips) > 6


def test_scaling_interpolates_pixels_but_never_labels():
    image, labels = pair()
    torch.manual_seed(1)
    scaled, moved = RandomScale((0.7, 0.7), box=None)(*as_pair(image, labels))
    assert scaled.shape[-2:] == moved.shape == (28, 42)
    assert set(moved.unique().tolist()) <= set(range(5))
    rows, columns = (np.floor(np.arange(n) * m / n).astype(int) for n, m in ((28, 40), (42, 60)))
    np.testing.assert_array_equal(moved.numpy(), labels[np.ix_(rows, columns)])  # OpenCV's nearest


def test_padding_is_mean_colour_and_ignored_right_and_below():
    image, labels = pair(10, 20)
    settings = JointAugmentation(crop=(16, 16), box=None, scale=(1.0, 1.0), distort=False, hflip=0.0)
    pixels, moved = training_pair_transform(settings, mean=MEAN, std=STD)(image, labels)
    assert (moved[10:] == 255).all()
    assert (moved[:10] != 255).all()
    assert (pixels[:, 10:] == 0).all()


def test_crops_that_one_class_fills_are_drawn_again_and_the_eleventh_is_taken():
    labels = np.zeros((8, 400), np.uint8)
    labels[:, :20] = 1
    image = Image.new("RGB", (400, 8))
    mixed = [is_mixed(ClassRatioCrop((8, 20))(*as_pair(image, labels))[1], max_share=0.75) for _ in range(60)]
    plain = [
        is_mixed(ClassRatioCrop((8, 20), max_share=1.0)(*as_pair(image, labels))[1], max_share=0.75) for _ in range(60)
    ]
    assert sum(mixed) > 2 * sum(plain) + 5
    assert ClassRatioCrop((8, 20))(*as_pair(image, np.zeros((8, 400), np.uint8)))[1].shape == (8, 20)


def test_a_mixed_crop_counts_labelled_pixels_only():
    labels = torch.tensor([0] * 74 + [1] * 26 + [255] * 900)
    assert is_mixed(labels, max_share=0.75)
    assert not is_mixed(torch.tensor([0] * 75 + [1] * 25), max_share=0.75)
    assert not is_mixed(torch.tensor([3] * 10 + [255] * 10), max_share=0.75)
    assert not is_mixed(torch.tensor([255] * 10), max_share=0.75)


def test_distortions_clip_and_truncate_as_released():
    pixels = np.array([[[101, 0, 250]]], np.uint8)
    np.testing.assert_array_equal(DISTORTIONS["brightness"](pixels, 10.9), [[[111, 10, 255]]])
    np.testing.assert_array_equal(DISTORTIONS["brightness"](pixels, -10.1), [[[90, 0, 239]]])
    np.testing.assert_array_equal(DISTORTIONS["contrast"](pixels, 1.5), [[[151, 0, 255]]])
    red = np.array([[[200, 0, 0]]], np.uint8)
    np.testing.assert_array_equal(DISTORTIONS["hue"](red, 60), [[[0, 200, 0]]])  # 120 degrees on
    np.testing.assert_array_equal(DISTORTIONS["hue"](red, -60), [[[0, 0, 200]]])
    np.testing.assert_array_equal(DISTORTIONS["saturation"](red, 0.5), [[[200, 100, 100]]])


def test_each_distortion_happens_half_the_time_and_contrast_second_or_last():
    steps = [PhotometricDistortion().make_params([])["steps"] for _ in range(800)]
    for name in DISTORTIONS:
        assert 0.42 < np.mean([name in dict(drawn) for drawn in steps]) < 0.58
    whole = [[name for name, _ in drawn] for drawn in steps if len(drawn) == 4]
    assert {tuple(order) for order in whole} == {
        ("brightness", "contrast", "saturation", "hue"),
        ("brightness", "saturation", "hue", "contrast"),
    }
    values = {name: [dict(drawn)[name] for drawn in steps if name in dict(drawn)] for name in DISTORTIONS}
    assert -32 <= min(values["brightness"]) < -28
    assert 28 < max(values["brightness"]) <= 32
    assert (min(values["hue"]), max(values["hue"])) == (-18, 17)
    assert 0.5 <= min(values["contrast"]) < 0.53
    assert 1.47 < max(values["saturation"]) <= 1.5


def test_distortion_leaves_labels_alone_and_repeats_for_a_seed():
    image, labels = pair()
    transform = training_pair_transform(JointAugmentation(crop=(32, 48), box=None), mean=MEAN, std=STD)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(transform(image, labels))
    torch.testing.assert_close(drawn[0], drawn[1], atol=0, rtol=0)
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert set(drawn[0][1].unique().tolist()) <= {0, 1, 2, 3, 4, 255}


def test_validation_keeps_the_size():
    image, labels = pair()
    pixels, moved = validation_pair_transform(mean=MEAN, std=STD)(image, labels)
    expected = (torch.tensor([labels[0, 0] * 50, 90, 200]) / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    torch.testing.assert_close(pixels[:, 0, 0], expected)
    np.testing.assert_array_equal(moved.numpy(), labels)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"crop": (0, 5)}, "crop must be a height and a width"),
        ({"scale": (2.0, 0.5)}, "scale must be two"),
        ({"max_share": 1.5}, "max_share must lie"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        JointAugmentation(**settings)


def test_labels_of_another_size_are_refused():
    with pytest.raises(HoldfastError, match="labels must have the image's size 4×5"):
        as_pair(Image.new("RGB", (5, 4)), np.zeros((5, 4), np.uint8))


# ---------------------------------------------------------------------- schedule and groups
