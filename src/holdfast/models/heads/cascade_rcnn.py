"""RoI heads of Faster, Mask and Cascade Mask R-CNN in one or several stages, with the published computations.

Cascade R-CNN, Cai & Vasconcelos, CVPR 2018, as in FAN's detectors (mmdetection 2.13): each stage refines the boxes of
the one before and matches more strictly; in the end the stages' logits are averaged before one softmax, and so are the
masks' probabilities. With one stage it is Mask R-CNN, without mask heads Faster R-CNN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection._utils import Matcher
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.ops import MultiScaleRoIAlign, clip_boxes_to_image, generalized_box_iou_loss, roi_align

from holdfast.models.heads.rpn import BestMatcher, Boxes, Target, TwoSidedBoxCoder

Shapes = list[tuple[int, int]]
Features = dict[str, Tensor]
MASK_SIDE = 28


@dataclass(frozen=True)
class StageSettings:
    """Matching, box encoding and loss weight of one stage.

    Attributes:
        overlap: lowest IoU with an object of a positive box.
        deviations: standard deviations of the box encoding, of centre and size.
        weight: weight of the stage's losses.
        giou: use 10 · GIoU of the decoded boxes instead of L1 of their encodings.
        best_matches: whether an object also gets its best boxes if these overlap another object more.
    """

    overlap: float
    deviations: tuple[float, float]
    weight: float = 1.0
    giou: bool = True
    best_matches: bool = False


CASCADE = (
    StageSettings(0.5, (0.1, 0.2)),
    StageSettings(0.6, (0.05, 0.1), weight=0.5),
    StageSettings(0.7, (0.033, 0.067), weight=0.25),
)
FASTER = (StageSettings(0.5, (0.1, 0.2), giou=False),)
MASK = (StageSettings(0.5, (0.1, 0.2), giou=False, best_matches=True),)


class AlignedPool(MultiScaleRoIAlign):
    """RoIAlign with half-pixel shift and adaptive sampling; torchvision's pooler has neither."""

    def __init__(self, strides: Sequence[int], side: int) -> None:
        super().__init__([str(level) for level in range(len(strides))], side, sampling_ratio=0)
        self.strides = tuple(strides)

    def forward(self, x: Features, boxes: Boxes, image_shapes: Shapes) -> Tensor:
        """Maps and boxes → (all boxes, C, side, side)."""
        maps = [x[name] for name in self.featmap_names]
        rois = as_rois(boxes)
        levels = self.level_of(rois)
        pooled = maps[0].new_zeros((len(rois), maps[0].shape[1], *self.output_size))
        for level, (features, stride) in enumerate(zip(maps, self.strides, strict=True)):
            here = torch.where(levels == level)[0]
            values = roi_align(features, rois[here], self.output_size, 1 / stride, sampling_ratio=0, aligned=True)
            pooled[here] = values.to(pooled.dtype)
        return pooled

    def level_of(self, rois: Tensor) -> Tensor:
        """FPN, Eq. 1: a box of 56 px belongs to the map of stride 4, one twice as large to the next."""
        sides = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).sqrt()
        levels = torch.floor(torch.log2(sides / (14 * self.strides[0]) + 1e-6))
        return levels.clamp(0, len(self.strides) - 1).long()


@dataclass(frozen=True)
class Sample:
    """The sampled boxes of one image for a stage's losses; class 0 is the background."""

    boxes: Tensor
    labels: Tensor
    matched: Tensor  # index of the matched object
    truth: Tensor  # whether a box is an added ground-truth box

    @property
    def positive(self) -> Tensor:
        """Whether each box is matched to an object."""
        return self.labels > 0


class RoIStage(RoIHeads):
    """One stage: torchvision's box head, predictor and sampling with the published matching, losses and targets."""

    def __init__(
        self,
        settings: StageSettings,
        *,
        box_roi_pool: MultiScaleRoIAlign,
        box_head: nn.Module,
        box_predictor: nn.Module,
        mask_roi_pool: MultiScaleRoIAlign | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        samples: int = 512,
        score_threshold: float = 0.05,
        overlap_threshold: float = 0.5,
        detections: int = 100,
    ) -> None:
        super().__init__(
            box_roi_pool,
            box_head,
            box_predictor,
            settings.overlap,
            settings.overlap,
            samples,
            0.25,
            None,
            score_threshold,
            overlap_threshold,
            detections,
            mask_roi_pool,
            mask_head,
            mask_predictor,
        )
        self.settings = settings
        centre, size = settings.deviations
        self.box_coder = TwoSidedBoxCoder((1 / centre, 1 / centre, 1 / size, 1 / size))
        matcher = BestMatcher if settings.best_matches else Matcher
        self.proposal_matcher = matcher(settings.overlap, settings.overlap)

    def sample(self, proposals: Boxes, targets: list[Target]) -> list[Sample]:
        """Match and sample the proposals and ground truth of each image; at most a quarter is positive."""
        truth = [target["boxes"].to(proposals[0].dtype) for target in targets]
        everything = self.add_gt_proposals(proposals, truth)
        matched, labels = self.assign_targets_to_proposals(everything, truth, [target["labels"] for target in targets])
        return [
            Sample(boxes[chosen], label[chosen], match[chosen], chosen >= len(proposal))
            for boxes, label, match, chosen, proposal in zip(
                everything, labels, matched, self.subsample(labels), proposals, strict=True
            )
        ]

    def predict(self, features: Features, boxes: Boxes, shapes: Shapes) -> tuple[Tensor, Tensor]:
        """Logits (N, 1 + classes), background first, and encodings (N, 1 + classes, 4) of all boxes."""
        logits, codes = self.box_predictor(self.box_head(self.box_roi_pool(features, boxes, shapes)))
        return logits, codes.unflatten(1, (-1, 4))

    def box_losses(
        self, logits: Tensor, codes: Tensor, samples: list[Sample], targets: list[Target]
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and the box loss of the positives, both divided by the number of all sampled boxes."""
        labels = torch.cat([sample.labels for sample in samples])
        positive = labels > 0
        own = codes[positive, labels[positive]]
        boxes = torch.cat([sample.boxes[sample.positive] for sample in samples])
        truth = torch.cat(
            [target["boxes"][sample.matched[sample.positive]] for sample, target in zip(samples, targets, strict=True)]
        ).to(boxes.dtype)
        count = max(1, len(labels))
        class_loss = F.cross_entropy(logits, labels, reduction="sum") / count
        if not positive.any():
            return class_loss, codes.sum() * 0
        if self.settings.giou:
            decoded = self.box_coder.decode_single(own, boxes)
            return class_loss, 10 * generalized_box_iou_loss(decoded, truth, reduction="sum") / count
        return class_loss, F.l1_loss(own, self.box_coder.encode_single(truth, boxes), reduction="sum") / count

    def mask_logits(self, features: Features, boxes: Boxes, shapes: Shapes) -> Tensor:
        """Mask logits of all boxes, (N, 1 + classes, 28, 28)."""
        return self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, shapes)))

    def mask_loss(self, features: Features, samples: list[Sample], targets: list[Target], shapes: Shapes) -> Tensor:
        """Binary cross-entropy of the true class's mask over all positives."""
        positives = [sample.boxes[sample.positive] for sample in samples]
        logits = self.mask_logits(features, positives, shapes)
        labels = torch.cat([sample.labels[sample.positive] for sample in samples])
        if not len(labels):
            return logits.sum() * 0
        wanted = [
            mask_targets(target["masks"], boxes, sample.matched[sample.positive])
            for target, boxes, sample in zip(targets, positives, samples, strict=True)
        ]
        own = logits[torch.arange(len(labels), device=labels.device), labels]
        return F.binary_cross_entropy_with_logits(own, torch.cat(wanted).to(own.dtype))

    def refine_boxes(self, boxes: Boxes, codes: Tensor, labels: Tensor, shapes: Shapes) -> Boxes:
        """Boxes decoded with the encodings of one class each, clipped to the image; no gradient, no suppression."""
        own = codes.detach()[torch.arange(len(labels), device=labels.device), labels]
        moved = self.box_coder.decode_single(own, torch.cat(boxes)).split([len(one) for one in boxes])
        return [clip_boxes_to_image(one, shape) for one, shape in zip(moved, shapes, strict=True)]


class Cascade(nn.Module):
    """Sequence of stages that replaces torchvision's ``RoIHeads``."""

    def __init__(self, stages: Sequence[RoIStage]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(
        self, features: Features, proposals: Boxes, image_shapes: Shapes, targets: list[Target] | None = None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        """Detections per image in evaluation mode, losses by name in training mode."""
        if self.training:
            assert targets is not None
            return [], self.losses(features, proposals, image_shapes, targets)
        return self.detect(features, proposals, image_shapes), {}

    def losses(self, features: Features, proposals: Boxes, shapes: Shapes, targets: list[Target]) -> dict[str, Tensor]:
        """Three weighted losses per stage; each stage is trained on the refined samples of the one before."""
        losses: dict[str, Tensor] = {}
        for number, stage in enumerate(self._stages()):
            samples = stage.sample(proposals, targets)
            boxes = [sample.boxes for sample in samples]
            logits, codes = stage.predict(features, boxes, shapes)
            parts = dict(
                zip(("loss_classifier", "loss_box_reg"), stage.box_losses(logits, codes, samples, targets), strict=True)
            )
            if stage.has_mask():
                parts["loss_mask"] = stage.mask_loss(features, samples, targets, shapes)
            prefix = f"stage{number + 1}." if len(self.stages) > 1 else ""
            losses |= {prefix + name: stage.settings.weight * loss for name, loss in parts.items()}
            labels = torch.cat([sample.labels for sample in samples])
            chosen = torch.where(labels > 0, labels, best_foreground(logits))
            refined = stage.refine_boxes(boxes, codes, chosen, shapes)
            proposals = [one[~sample.truth] for one, sample in zip(refined, samples, strict=True)]
        return losses

    def detect(self, features: Features, proposals: Boxes, shapes: Shapes) -> list[dict[str, Tensor]]:
        """Boxes, labels from 1, scores and, with mask heads, ``masks`` (N, 1, 28, 28) of every image."""
        *_, last = self._stages()
        logits, codes, boxes = self.final_predictions(features, proposals, shapes)
        found, scores, labels = last.postprocess_detections(logits, codes.flatten(1), boxes, shapes)
        results = [
            {"boxes": box, "labels": label, "scores": score}
            for box, label, score in zip(found, labels, scores, strict=True)
        ]
        if last.has_mask():
            masks = self.mask_probabilities(features, found, labels, shapes)
            for result, mask in zip(results, masks.split([len(box) for box in found]), strict=True):
                result["masks"] = mask
        return results

    def final_predictions(self, features: Features, proposals: Boxes, shapes: Shapes) -> tuple[Tensor, Tensor, Boxes]:
        """The mean of the stages' logits, the last stage's encodings, and the boxes that these refer to."""
        every_logits = []
        boxes = proposals
        for number, stage in enumerate(self._stages()):
            logits, codes = stage.predict(features, boxes, shapes)
            every_logits.append(logits)
            if number + 1 < len(self.stages):
                boxes = stage.refine_boxes(boxes, codes, best_foreground(logits), shapes)
        return torch.stack(every_logits).mean(dim=0), codes, boxes

    def mask_probabilities(self, features: Features, boxes: Boxes, labels: list[Tensor], shapes: Shapes) -> Tensor:
        """The stages' mean mask probability of the predicted class, (N, 1, 28, 28)."""
        numbers = torch.cat(labels)
        rows = torch.arange(len(numbers), device=numbers.device)
        stages = [stage.mask_logits(features, boxes, shapes)[rows, numbers].sigmoid() for stage in self._stages()]
        return torch.stack(stages).mean(dim=0)[:, None]

    def _stages(self) -> list[RoIStage]:
        return list(self.stages)  # type: ignore[arg-type]


def as_rois(boxes: Boxes) -> Tensor:
    """Boxes of several images as rows of image index and box."""
    numbers = torch.cat([one.new_full((len(one), 1), number) for number, one in enumerate(boxes)])
    return torch.cat([numbers, torch.cat(boxes)], dim=1)


def mask_targets(masks: Tensor, boxes: Tensor, matched: Tensor) -> Tensor:
    """Mask targets, 0 or 1, (N, 28, 28), of boxes (N, 4), from the objects' masks (objects, H, W)."""
    rois = torch.cat([matched[:, None].to(boxes), boxes], dim=1)
    pooled = roi_align(masks[:, None].to(boxes), rois, MASK_SIDE, 1.0, sampling_ratio=0, aligned=True)
    return (pooled[:, 0] >= 0.5).to(boxes.dtype)


def best_foreground(logits: Tensor) -> Tensor:
    """The class with the largest logit, except the background."""
    return logits[:, 1:].argmax(dim=1) + 1
