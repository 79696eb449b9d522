"""Annotated images as functions of arrays."""

import base64
import io

import numpy as np
from PIL import Image

from holdfast.plotting.annotate import (
    WRONG,
    data_url,
    difference,
    draw_boxes,
    errors_over,
    heat,
    label_map,
    label_map_over,
    shares,
    shrunk,
)
from holdfast.plotting.class_colours import PALETTE, class_colour


def test_an_image_comes_back_from_its_url():
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    head, _, data = data_url(image).partition(",")
    assert head == "data:image/png;base64"
    np.testing.assert_array_equal(Image.open(io.BytesIO(base64.b64decode(data))), image)


def test_only_large_images_shrink_and_keep_their_aspect():
    assert shrunk(np.zeros((20, 50, 3), np.uint8), most=25).shape == (10, 25, 3)
    assert shrunk(np.zeros((1, 500, 3), np.uint8), most=25).shape == (1, 25, 3)
    small = np.zeros((20, 25, 3), np.uint8)
    assert shrunk(small, most=25) is small


def test_a_difference_is_grey_where_nothing_changed_and_full_where_most_did():
    before = np.full((1, 3, 3), 100, np.uint8)
    after = before.copy()
    after[0, 1], after[0, 2] = 110, 95
    shown, gain = difference(before, after)
    assert gain == 12.7
    assert shown[0, :, 0].tolist() == [128, 255, 64]
    assert difference(before, before)[1] == 1


def test_a_heat_map_rises_from_dark_to_bright_and_cuts_what_is_outside():
    shown = heat(np.array([[-1.0, 0.0, 0.5, 1.0, 2.0]]), low=0, high=1).astype(int).sum(-1)[0]
    assert shown[0] == shown[1] < shown[2] < shown[3] == shown[4]


def test_shares_go_from_blue_over_white_to_red():
    assert shares(np.array([[0, 0.5, 1]]))[0].tolist() == [[33, 102, 172], [247, 247, 247], [178, 24, 43]]


def test_label_maps_have_the_colours_of_their_classes_and_ignored_pixels_are_grey():
    labels = np.array([[0, 3, 255]])
    assert [tuple(pixel) for pixel in label_map(labels)[0].tolist()] == [
        class_colour(0),
        class_colour(3),
        (128, 128, 128),
    ]


def test_a_label_map_over_a_picture_mixes_class_colours_with_grey_except_where_ignored():
    picture = Image.fromarray(np.full((1, 2, 3), 100, np.uint8))
    shown = np.asarray(label_map_over(picture, np.array([[2, 255]])))[0]
    assert shown[0].tolist() == [round(0.45 * 100 + 0.55 * channel) for channel in class_colour(2)]
    assert shown[1].tolist() == [100] * 3


def test_wrong_pixels_are_bright_and_the_others_dark():
    picture = Image.fromarray(np.full((1, 2, 3), 100, np.uint8))
    assert np.asarray(errors_over(picture, np.array([[False, True]])))[0].tolist() == [[45] * 3, list(WRONG)]
    assert WRONG not in {class_colour(number) for number in range(len(PALETTE))}  # no class looks like an error


def test_boxes_and_masks_have_the_colour_of_their_class_at_any_scale():
    picture, mask = Image.new("RGB", (40, 40)), np.zeros((1, 20, 20), bool)
    mask[0, 5:15, 5:15] = True
    shown = np.asarray(draw_boxes(picture, (20, 20), np.array([[5, 5, 15, 15]]), np.array([3]), mask))
    assert tuple(shown[10, 20].tolist()) == class_colour(3)  # the upper edge, at twice the size
    assert shown[20, 20].tolist() == [round(0.45 * channel) for channel in class_colour(3)]
    assert not shown[2, 2].any()
    assert not np.asarray(picture).any()
