"""Where an image lies in what a model sees, and the way back."""

import numpy as np
import pytest
import torch

from holdfast.deploy.image_fitting import GREY, RESIZES, check_choice, place_image
from holdfast.errors import HoldfastError

IMAGE = np.random.default_rng(0).integers(0, 256, (30, 50, 3)).astype(np.uint8)


@pytest.mark.parametrize("resize", RESIZES)
def test_a_box_comes_back_to_the_pixels_that_it_is_of(resize):
    seen, placement = place_image(IMAGE, (64, 48), resize=resize, interpolation="bilinear")
    assert seen.shape[:2] == placement.seen
    box = torch.tensor([[5.0, 7.0, 20.0, 25.0]])
    scale, offset = (torch.tensor([*pair, *pair]) for pair in (placement.scale, placement.offset))
    torch.testing.assert_close(placement.undo(box * scale + offset), box)


def test_a_letterbox_keeps_the_aspect_between_grey_borders():
    seen, placement = place_image(IMAGE, (64, 100), resize="letterbox", interpolation="nearest")
    assert placement.scale == (2.0, 2.0)
    assert placement.offset == (0, 2)
    assert (seen[:2] == GREY).all()
    assert (seen[62:] == GREY).all()
    np.testing.assert_array_equal(seen[2:62:2, ::2], IMAGE)


def test_a_border_of_odd_width_has_its_larger_half_last():
    seen, placement = place_image(IMAGE, (33, 50), resize="letterbox", interpolation="bilinear")
    assert placement.offset == (0, 1)
    assert (seen[31:] == GREY).all()


def test_boxes_end_at_the_borders_of_the_image():
    _, placement = place_image(IMAGE, None, resize="stretch", interpolation="bilinear")
    assert placement.clip(torch.tensor([[-5.0, -1.0, 60.0, 20.0]])).tolist() == [[0, 0, 50, 20]]


def test_another_word_is_refused():
    with pytest.raises(HoldfastError, match="resize must be one of none, stretch, letterbox, got 'leterbox'; did you"):
        check_choice("resize", "leterbox", RESIZES)
