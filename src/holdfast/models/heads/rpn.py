"""Region proposal network: torchvision's RPN with the published anchors, matching and losses.

FAN's detectors follow mmdetection 2.13; torchvision rounds its anchors, derives their strides by integer division of
the padded image (61 instead of 64 at 800×1344) and matches every object to an anchor, however low their IoU.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection._utils import BoxCoder, Matcher
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import AnchorGenerator, RegionProposalNetwork, RPNHead

RATIOS = (0.5, 1.0, 2.0)  # height by width
ANCHOR_SCALE = 8  # side of an anchor in strides

Boxes = list[Tensor]  # (N, 4) per image, x1 y1 x2 y2
Target = dict[str, Tensor]


class ExactAnchors(AnchorGenerator):
    """One anchor scale per level and three ratios, not rounded, at multiples of the level's true stride."""

    def __init__(self, strides: tuple[int, ...]) -> None:
        self.strides = strides
        super().__init__(tuple((ANCHOR_SCALE * stride,) for stride in strides), (RATIOS,) * len(strides))

    def generate_anchors(
        self,
        scales: list[int],
        aspect_ratios: list[float],
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),  # noqa: B008  torchvision's own signature
    ) -> Tensor:
        """Anchors around the origin: h = s√r, w = s/√r."""
        roots = torch.as_tensor(aspect_ratios, dtype=dtype, device=device).sqrt()
        sides = torch.stack([1 / roots, roots], dim=1) * scales[0] / 2
        return torch.cat([-sides, sides], dim=1)

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> Boxes:
        """The same anchors for every image, level after level."""
        self.set_cell_anchors(feature_maps[0].dtype, feature_maps[0].device)
        grids = [list(feature_map.shape[-2:]) for feature_map in feature_maps]
        steps = [[torch.tensor(stride, device=feature_maps[0].device)] * 2 for stride in self.strides]
        anchors = torch.cat(self.grid_anchors(grids, steps))
        return [anchors for _ in image_list.image_sizes]


class BestMatcher(Matcher):
    """Matcher: positive from IoU ``high``, negative below ``low``, and each object's best boxes from ``low``."""

    def __init__(self, high: float, low: float) -> None:
        super().__init__(high, low, allow_low_quality_matches=True)

    def set_low_quality_matches_(self, matches: Tensor, all_matches: Tensor, match_quality_matrix: Tensor) -> None:
        """Match each object to the boxes that overlap it most; later objects take precedence."""
        best = match_quality_matrix.amax(dim=1, keepdim=True)
        claims = (match_quality_matrix == best) & (best >= self.low_threshold)
        number = torch.arange(len(claims), device=claims.device)[:, None]
        last = torch.where(claims, number, -1).amax(dim=0)
        matches[last >= 0] = last[last >= 0]


class TwoSidedBoxCoder(BoxCoder):
    """torchvision's box coder that also limits how much a box may shrink."""

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        """Boxes (N, 4) and encodings (N, 4K) → boxes (N, 4K)."""
        shifts, growths = rel_codes.unflatten(-1, (-1, 4)).split(2, dim=-1)
        lowest = -self.bbox_xform_clip * growths.new_tensor(self.weights[2:])
        return super().decode_single(torch.cat([shifts, growths.maximum(lowest)], dim=-1).flatten(-2), boxes)


class RegionProposals(RegionProposalNetwork):
    """torchvision's RPN with exact anchors, a lowest IoU for best matches, and the published losses.

    Args:
        channels: width of the feature maps.
        strides: strides of the five maps.
        proposals: number of proposals kept in training and in testing.
        candidates: number of candidates per level before suppression, in training and in testing.
        samples: anchors sampled per image in training, at most half of them positive.
        beta: threshold between squared and absolute box loss; 0 is L1 (Faster and Mask R-CNN), 1/9 Cascade's.
        border_anchors: whether anchors that cross the image border are used in training.
    """

    def __init__(
        self,
        channels: int,
        strides: tuple[int, ...],
        *,
        proposals: tuple[int, int],
        candidates: tuple[int, int] = (2000, 1000),
        samples: int = 256,
        beta: float = 0.0,
        border_anchors: bool = True,
    ) -> None:
        super().__init__(
            ExactAnchors(strides),
            RPNHead(channels, len(RATIOS)),
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=samples,
            positive_fraction=0.5,
            pre_nms_top_n={"training": candidates[0], "testing": candidates[1]},
            post_nms_top_n={"training": proposals[0], "testing": proposals[1]},
            nms_thresh=0.7,
        )
        self.proposal_matcher = BestMatcher(0.7, 0.3)
        self.box_coder = TwoSidedBoxCoder((1.0, 1.0, 1.0, 1.0))
        self.beta, self.border_anchors = beta, border_anchors

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: list[Target] | None = None
    ) -> tuple[Boxes, dict[str, Tensor]]:
        """Proposals per image and, in training, ``loss_objectness`` and ``loss_rpn_box_reg``."""
        if targets is not None:
            device = images.tensors.device
            targets = [
                {**target, "size": torch.tensor(size, device=device)}
                for target, size in zip(targets, images.image_sizes, strict=True)
            ]
        return super().forward(images, features, targets)

    def assign_targets_to_anchors(self, anchors: Boxes, targets: list[Target]) -> tuple[list[Tensor], Boxes]:
        """Labels 1, 0, −1 (ignored) and the matched object of each anchor."""
        if self.border_anchors:
            return super().assign_targets_to_anchors(anchors, targets)
        all_labels, all_matched = [], []
        for boxes, target in zip(anchors, targets, strict=True):
            inside = (boxes[:, :2] >= 0).all(dim=1) & (boxes[:, 2:] < target["size"].flip(0)).all(dim=1)
            labels, matched = boxes.new_full((len(boxes),), -1.0), torch.zeros_like(boxes)
            if inside.any():
                (labels[inside],), (matched[inside],) = super().assign_targets_to_anchors([boxes[inside]], [target])
            all_labels.append(labels)
            all_matched.append(matched)
        return all_labels, all_matched

    def compute_loss(
        self, objectness: Tensor, pred_bbox_deltas: Tensor, labels: list[Tensor], regression_targets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Objectness and box loss, each a sum over the sampled anchors divided by their number."""
        positive, negative = (torch.cat(chosen).bool() for chosen in self.fg_bg_sampler(labels))
        sampled = positive | negative
        count = max(1, int(sampled.sum()))
        objectness_loss = F.binary_cross_entropy_with_logits(
            objectness.flatten()[sampled], torch.cat(labels)[sampled], reduction="sum"
        )
        box_loss = F.smooth_l1_loss(
            pred_bbox_deltas[positive], torch.cat(regression_targets)[positive], beta=self.beta, reduction="sum"
        )
        return objectness_loss / count, box_loss / count
