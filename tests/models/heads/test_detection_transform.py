"""FAN's paper trains FAN-ViT's detectors on squares of several sizes."""

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.models.detector import DetectorSettings
from holdfast.models.heads.detection_transform import Scaling

STATISTICS = ([0.5] * 3, [0.2] * 3)


def sizes(*, training: bool) -> set[tuple[int, int]]:
    scaling = Scaling((64, 96, 128), 1333, *STATISTICS).train(training)
    scaling.square = True
    torch.manual_seed(0)
    return {tuple(scaling.resize(torch.rand(3, 48, 80))[0].shape[-2:]) for _ in range(20)}


def test_images_become_squares_of_a_drawn_side_in_training_and_of_the_last_one_in_testing():
    assert sizes(training=True) == {(64, 64), (96, 96), (128, 128)}
    assert sizes(training=False) == {(128, 128)}


def test_boxes_follow_both_sides():
    scaling = Scaling((96,), 1333, *STATISTICS).train()
    scaling.square = True
    _, target = scaling.resize(torch.rand(3, 48, 32), {"boxes": torch.tensor([[0.0, 0.0, 32.0, 24.0]])})
    assert target["boxes"].tolist() == [[0.0, 0.0, 96.0, 48.0]]


def test_several_fixed_sizes_are_refused_with_the_way_that_works():
    with pytest.raises(HoldfastError, match=r"fixed_size must be one height and one width.*square=True"):
        DetectorSettings(fixed_size=[[640, 640], [896, 896]])
