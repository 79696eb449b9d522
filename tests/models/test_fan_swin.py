"""FAN-Swin: where it differs from timm's Swin."""

import pytest
import timm
import torch

import holdfast

NAME = "fan_swin_tiny_patch4_window7_224"


@pytest.mark.parametrize(
    ("size", "windows"),
    [
        ((224, 224), [(7, 0), (7, 3)] * 2 + [(7, 0), (7, 3)] * 3 + [(7, 0), (7, 0)]),
        ((448, 224), [(7, 0), (7, 3)] * 2 + [(7, 0), (7, 3)] * 3 + [(7, 0), (7, 0)]),
        ((64, 96), [(7, 0), (7, 3)] * 2 + [(4, 0), (4, 0)] * 3 + [(2, 0), (2, 0)]),
    ],
)
def test_windows_are_square_and_do_not_shift_where_they_cover_the_shorter_side(size, windows):
    with torch.device("meta"):
        model = timm.create_model(NAME, img_size=size)
    blocks = [block for layer in model.layers for block in layer.blocks]
    assert [(block.window_size[0], block.shift_size[0]) for block in blocks] == windows
    assert all(block.window_size[0] == block.window_size[1] for block in blocks)


@pytest.mark.parametrize(("given", "last"), [({"drop_path_rate": 0.22}, 0.22), ({}, 0.1)])
def test_drop_path_rises_linearly_over_all_blocks(given, last):
    with torch.device("meta"):
        model = timm.create_model(NAME, **given)
    blocks = [block for layer in model.layers for block in layer.blocks]
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in blocks]
    assert rates == pytest.approx([last * i / 11 for i in range(12)])


def test_another_image_size_is_refused_with_what_to_do():
    model = timm.create_model(NAME, img_size=(64, 96)).eval()
    with pytest.raises(
        holdfast.HoldfastError, match="built for images of height × width 64×96, got 96×64; set img_size"
    ):
        model(torch.randn(1, 3, 96, 64))
    with pytest.raises(holdfast.HoldfastError, match="img_size must be divisible by 32, got 100×100"):
        timm.create_model(NAME, img_size=100)
