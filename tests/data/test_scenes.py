"""The embedded scenes: everything about a scene follows from its split, size and number."""

import colorsys

import numpy as np
import pytest

from holdfast.data.scenes import CLASSES, open_scenes
from holdfast.errors import HoldfastError


def test_a_scene_depends_on_split_size_and_number_alone():
    first, again = open_scenes("test", split="train"), open_scenes("test,50", split="train")
    again.scene(7)  # another order
    for index in (3, 0):
        np.testing.assert_array_equal(np.asarray(first.image(index)), np.asarray(again.image(index)))
        np.testing.assert_array_equal(first.target(index), again.target(index))
        assert first.id(index) == again.id(index)
    other = open_scenes("train", split="train")
    assert not np.array_equal(np.asarray(first.image(0)), np.asarray(other.image(0)))
    assert first.id(0) != other.id(0)


@pytest.mark.parametrize("size", [(96, 128), (33, 257), (240, 320)])
def test_labels_instances_digits_and_boxes_agree(size):
    source = open_scenes(f"val,{size[0]}x{size[1]}", split="train")
    for index in range(12):
        scene = source.scene(index)
        assert scene.image.shape == (*size, 3)
        assert scene.image.dtype == scene.labels.dtype == np.uint8
        assert scene.labels.shape == scene.instances.shape == size
        np.testing.assert_array_equal(scene.labels, np.array([0, *(d + 1 for d in scene.digits)])[scene.instances])
        assert set(np.unique(scene.instances)) - {0} == set(range(1, len(scene.digits) + 1))
        boxes = scene.boxes()
        assert boxes.shape == (len(scene.digits), 4)
        for number, (x0, y0, x1, y1) in enumerate(boxes, start=1):
            inside = np.zeros(size, bool)
            inside[y0:y1, x0:x1] = True
            mask = scene.instances == number
            assert not (mask & ~inside).any()
            assert all(edge.any() for edge in (mask[y0], mask[y1 - 1], mask[:, x0], mask[:, x1 - 1]))


def test_every_class_appears_and_digits_stand_out_from_what_is_behind_them():
    source = open_scenes("train", split="train")
    pixels = np.bincount(np.concatenate([source.target(index).ravel() for index in range(60)]), minlength=len(CLASSES))
    shares = pixels / pixels.sum()
    assert len(CLASSES) == 11
    assert 0.7 < shares[0] < 0.95
    assert shares[1:].min() > 0.003
    for index in range(10):
        scene = source.scene(index)
        colours = [scene.image[scene.instances == n].mean(axis=0) for n in range(1, len(scene.digits) + 1)]
        assert len(np.unique(np.round(colours), axis=0)) == len(colours)


def test_plain_scenes_have_digits_in_the_hue_of_their_class_and_names_of_their_own():
    plain, usual = open_scenes("train,plain", split="train"), open_scenes("train", split="train")
    assert plain.id(0) != usual.id(0)
    off = []
    for index in range(20):
        scene = plain.scene(index)
        for number, digit in enumerate(scene.digits, start=1):
            red, green, blue = scene.image[scene.instances == number].mean(axis=0) / 255
            hue = colorsys.rgb_to_hsv(red, green, blue)[0]
            off.append(abs((hue - digit / 10 + 0.5) % 1 - 0.5))
    assert max(off) < 0.12  # four deviations and what shines through; chance would give 0.5


def test_the_test_scenes_show_digits_that_training_never_saw():
    from holdfast.data.scenes import digit_glyphs

    seen = {glyph.tobytes() for glyph in digit_glyphs("train")[0]}
    assert not seen & {glyph.tobytes() for glyph in digit_glyphs("test")[0]}


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [("trian", "did you mean 'train'"), ("8x200", "at least 32 pixels"), ("0", "at least 1"), ("9x", "got '9x'")],
)
def test_what_scenes_cannot_be_gets_one_sentence(rest, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_scenes(rest, split="train")
