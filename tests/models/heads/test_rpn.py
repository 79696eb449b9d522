"""Region proposal network: torchvision's RPN with the published anchors, matching and losses."""

import pytest
import torch
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.image_list import ImageList

from holdfast.models.heads.rpn import BestMatcher, RegionProposals, TwoSidedBoxCoder


def test_an_object_claims_its_best_box_only_if_that_is_good_enough():
    overlaps = torch.tensor([[0.8, 0.5, 0.0, 0.0], [0.75, 0.1, 0.29, 0.2], [0.0, 0.35, 0.1, 0.31]])
    # box 0 is best for objects 0 and 1: the later claim wins; box 1 is object 2's best though it overlaps object 0 more
    assert BestMatcher(0.7, 0.3)(overlaps).tolist() == [1, 2, -1, -2]
    weak = torch.tensor([[0.29, 0.1]])
    assert BestMatcher(0.7, 0.3)(weak).tolist() == [-1, -1]


def test_boxes_neither_grow_nor_shrink_by_more_than_sixty_two_times():
    boxes = torch.tensor([[0.0, 0, 62.5, 62.5]])
    codes = torch.tensor([[0.0, 0, 99, -99]])
    x0, y0, x1, y1 = TwoSidedBoxCoder((1.0, 1.0, 1.0, 1.0)).decode_single(codes, boxes)[0].tolist()
    assert x1 - x0 == pytest.approx(62.5**2, rel=1e-5)
    assert y1 - y0 == pytest.approx(1, rel=1e-4)
    ordinary = torch.tensor([[0.3, -0.2, 0.5, -0.4]])
    torch.testing.assert_close(
        TwoSidedBoxCoder((30.0, 30.0, 15.0, 15.0)).decode_single(ordinary, boxes),
        BoxCoder((30.0, 30.0, 15.0, 15.0)).decode_single(ordinary, boxes),
    )


def test_anchors_that_cross_the_border_train_unless_told_otherwise():
    target = {"boxes": torch.tensor([[20.0, 20, 52, 52]]), "labels": torch.tensor([1])}
    anchors = torch.tensor([[20.0, 20, 52, 52], [-1, 20, 31, 52], [40, 40, 64, 72], [0, 0, 8, 8]])
    sized = {**target, "size": torch.tensor([64, 64])}
    everywhere = RegionProposals(8, (4, 8), proposals=(10, 10))
    inside = RegionProposals(8, (4, 8), proposals=(10, 10), border_anchors=False)
    assert everywhere.assign_targets_to_anchors([anchors], [sized])[0][0].tolist() == [1, 0, 0, 0]
    assert inside.assign_targets_to_anchors([anchors], [sized])[0][0].tolist() == [1, -1, -1, 0]


def test_anchor_strides_are_those_of_the_maps_at_any_padded_size():
    images = ImageList(torch.zeros(1, 3, 800, 1344), [(800, 1333)])
    rpn = RegionProposals(8, (4, 8, 16, 32, 64), proposals=(10, 10))
    maps = [torch.zeros(1, 8, -(-800 // s), -(-1344 // s)) for s in (4, 8, 16, 32, 64)]
    coarsest = rpn.anchor_generator(images, maps)[0][-13 * 21 * 3 :].view(13, 21, 3, 4)
    centres = (coarsest[..., :2] + coarsest[..., 2:]) / 2
    assert centres[1, 0, 0].tolist() == [0, 64]
    assert centres[12, 20, 2].tolist() == pytest.approx([1280, 768], abs=1e-3)
