"""RoI heads of Faster, Mask and Cascade Mask R-CNN in one or several stages, with the published computations."""

import torch

from holdfast.models.heads.cascade_rcnn import AlignedPool, mask_targets


def test_pooling_a_box_on_a_slope_gives_its_pixel_centres():
    """A map whose value is x in pixels of the image: aligned cells of [8, 24] have their centres' x."""
    slope = (torch.arange(16.0) * 4 + 2).expand(1, 1, 16, 16).contiguous()  # stride 4: cell centres at 2, 6, 10 …
    pool = AlignedPool((4,), 4)
    values = pool({"0": slope}, [torch.tensor([[8.0, 8, 24, 24]])], [(64, 64)])
    torch.testing.assert_close(values[0, 0, 0], torch.tensor([10.0, 14, 18, 22]))


def test_large_boxes_are_pooled_from_coarse_maps():
    pool = AlignedPool((4, 8, 16, 32), 7)
    sides = torch.tensor([10.0, 56, 111, 113, 224, 448, 2000])
    rois = torch.stack([torch.zeros(7), torch.zeros(7), torch.zeros(7), sides, sides], dim=1)
    assert pool.level_of(rois).tolist() == [0, 0, 0, 1, 2, 3, 3]


def test_mask_targets_are_zero_or_one():
    masks = torch.zeros(2, 60, 60, dtype=torch.uint8)
    masks[1, 10:38, 10:24] = 1
    wanted = mask_targets(masks, torch.tensor([[10.0, 10, 38, 38], [10.0, 10, 38, 38]]), torch.tensor([1, 0]))
    assert wanted[0, :, :14].min() == 1
    assert wanted[0, :, 14:].max() == 0
    assert wanted[1].max() == 0
