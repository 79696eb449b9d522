"""``holdfast.detector``: any encoder in Faster, Mask or Cascade Mask R-CNN, on torchvision's detection modules.

FAN's detectors (Zhou et al., ICML 2022, Table 10) are Mask R-CNN and Cascade Mask R-CNN on FAN-Hybrid. No checkpoint of
a detector was ever released, so only the backbone's weights can be loaded; docs/detection.md lists the differences
between paper, code and torchvision.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

from holdfast.errors import HoldfastError, nearest
from holdfast.models.backbone import imagenet_cfg
from holdfast.models.encoders import create_encoder
from holdfast.models.heads.cascade_rcnn import CASCADE, FASTER, MASK, AlignedPool, Cascade, RoIStage, StageSettings
from holdfast.models.heads.detection_transform import Scaling
from holdfast.models.heads.fpn import PUBLISHED_TOP, feature_pyramid
from holdfast.models.heads.rpn import RegionProposals

Kind = Literal["faster", "mask", "cascade"]
STAGES: dict[str, tuple[StageSettings, ...]] = {"faster": FASTER, "mask": MASK, "cascade": CASCADE}
BOX_SIDE, MASK_POOL_SIDE = 7, 14
PLAIN_PIXELS = imagenet_cfg(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # the detector normalises images itself


@dataclass(frozen=True)
class DetectorSettings:
    """Settings of a detector on an encoder; the defaults are the published ones.

    Attributes:
        kind: ``faster`` (boxes), ``mask`` (boxes and masks) or ``cascade`` (three stages of both).
        num_classes: number of classes without the background; labels start at 1.
        channels: width of the feature pyramid.
        head_width: width of the box head's fully connected layers.
        head_convs: number of convolutions with BatchNorm before one such layer; 0 means two layers instead. None is the
            published choice: four for ``cascade``, else 0.
        mask_convs: widths of the mask head's convolutions.
        top_channels: width of FAN-Hybrid's coarsest map.
        min_size: short side of the images; one of several is drawn in training, the last one is used in testing.
        max_size: largest long side.
        square: resize images to squares of that side, whatever their shape (FAN's paper, for FAN-ViT).
        fixed_size: height and width that every image is resized to instead, for encoders of one size.
        mean: per-channel mean of [0,1] pixels.
        std: per-channel standard deviation of [0,1] pixels.
        proposals: number of proposals kept in training and in testing; None is the published choice.
        anchors: number of anchors sampled per image for the RPN's losses.
        border_anchors: whether anchors that cross the image border are used in training (not in the published Cascade).
        samples: number of boxes sampled per image and stage in training.
        score_threshold: lowest score of a detection.
        overlap_threshold: IoU threshold of non-maximum suppression.
        detections: largest number of detections per image.
    """

    kind: Kind = "mask"
    num_classes: int = 80
    channels: int = 256
    head_width: int = 1024
    head_convs: int | None = None
    mask_convs: tuple[int, ...] = (256, 256, 256, 256)
    top_channels: int = PUBLISHED_TOP
    min_size: int | tuple[int, ...] = 800
    max_size: int = 1333
    square: bool = False
    fixed_size: tuple[int, int] | None = None
    mean: tuple[float, ...] = field(default=IMAGENET_DEFAULT_MEAN)
    std: tuple[float, ...] = field(default=IMAGENET_DEFAULT_STD)
    proposals: tuple[int, int] | None = None
    anchors: int = 256
    border_anchors: bool = True
    samples: int = 512
    score_threshold: float = 0.05
    overlap_threshold: float = 0.5
    detections: int = 100

    def __post_init__(self) -> None:
        if self.kind not in STAGES:
            hint = nearest(self.kind, STAGES)
            raise HoldfastError(f"kind must be one of {', '.join(STAGES)}, got {self.kind!r}{hint}")
        for name in ("mask_convs", "min_size", "fixed_size", "mean", "std", "proposals"):
            if isinstance(getattr(self, name), list):  # from YAML or JSON
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("num_classes", "channels", "head_width", "max_size", "anchors", "samples", "detections"):
            if getattr(self, name) < 1:
                raise HoldfastError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.fixed_size is not None and [type(side) for side in self.fixed_size] != [int, int]:
            raise HoldfastError(
                f"fixed_size must be one height and one width, got {list(self.fixed_size)}; "
                "square=True with several sides in min_size draws from square sizes"
            )
        if not self.mask_convs or min(self.mask_convs) < 1:
            raise HoldfastError(f"mask_convs must be one or more widths, got {self.mask_convs}")

    @property
    def has_masks(self) -> bool:
        """Whether the detector also predicts masks."""
        return self.kind != "faster"


class Detector(GeneralizedRCNN):
    """A detector with torchvision's interface: it takes a list of images in [0,1], (3, H, W) each, of any sizes.

    ``model(images)`` returns per image ``boxes`` (x1 y1 x2 y2 in its pixels), ``labels`` from 1, ``scores`` and, with
    mask heads, ``masks`` (N, 1, H, W) of probabilities. In training ``model(images, targets)`` returns losses by name.
    Images that are batched with larger ones are padded, and padding changes FAN's features everywhere: evaluate images
    one at a time.
    """

    def __init__(self, encoder: nn.Module, settings: DetectorSettings) -> None:
        pyramid: Any = feature_pyramid(encoder, channels=settings.channels, top=settings.top_channels)
        cascade = settings.kind == "cascade"
        kept = 2000 if cascade else 1000
        rpn = RegionProposals(
            settings.channels,
            pyramid.strides,
            proposals=settings.proposals or (kept, 1000),
            samples=settings.anchors,
            beta=1 / 9 if cascade else 0.0,
            border_anchors=settings.border_anchors,
        )
        stages = [_stage(stage, settings, pyramid.strides[:4]) for stage in STAGES[settings.kind]]
        scaling = Scaling(
            settings.min_size,
            settings.max_size,
            list(settings.mean),
            list(settings.std),
            size_divisible=pyramid.strides[3],
            fixed_size=settings.fixed_size and (settings.fixed_size[1], settings.fixed_size[0]),
        )
        scaling.square = settings.square
        super().__init__(pyramid, rpn, Cascade(stages), scaling)
        self.settings = settings
        self.num_classes, self.num_features = settings.num_classes, settings.channels
        self.describe()

    @property
    def encoder(self) -> nn.Module:
        """The network below the feature pyramid."""
        return getattr(self.backbone, "levels", self.backbone).encoder

    def describe(self) -> None:
        """Set timm's configuration: [0,1] pixels as input, and the classifiers of all stages."""
        side = min(self.transform.min_size)
        self.pretrained_cfg = self.default_cfg = {
            **PLAIN_PIXELS,
            "architecture": "detector",
            "input_size": (3, *(self.settings.fixed_size or (side, side))),
            "classifier": tuple(self._classifiers()),
            "num_classes": self.num_classes,
        }

    def get_classifier(self) -> nn.Module:
        """The classification layer of the last stage."""
        return self.roi_heads.stages[-1].box_predictor.cls_score

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the class, box and mask predictors of every stage."""
        reference = next(self.parameters())
        self.settings = replace(self.settings, num_classes=num_classes)
        self.num_classes = num_classes
        for stage in self.roi_heads.stages:
            new = _predictors(self.settings)
            stage.box_predictor = new["box_predictor"].to(reference.device, reference.dtype)
            if "mask_predictor" in new:
                stage.mask_predictor = new["mask_predictor"].to(reference.device, reference.dtype)
        self.describe()

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the encoder's activations in the backward pass, as published, instead of storing them."""
        encoder: Any = self.encoder
        encoder.set_grad_checkpointing(enable)

    def no_weight_decay(self) -> set[str]:
        """The encoder's parameters without weight decay."""
        own: set[str] = getattr(self.encoder, "no_weight_decay", set)()
        prefix = "backbone.levels.encoder" if hasattr(self.backbone, "levels") else "backbone.encoder"
        return {f"{prefix}.{name}" for name in own}

    def _classifiers(self) -> list[str]:
        layers = ["box_predictor.cls_score", "box_predictor.bbox_pred"]
        layers += ["mask_predictor.mask_fcn_logits"] if self.settings.has_masks else []
        return [f"roi_heads.stages.{n}.{layer}" for n in range(len(self.roi_heads.stages)) for layer in layers]


def detector(
    encoder: nn.Module | str,
    kind: Kind = "mask",
    num_classes: int = 80,
    *,
    encoder_options: dict[str, Any] | None = None,
    **settings: Any,
) -> Detector:
    """Build a detector on an encoder.

    FAN-Hybrid gets the published pyramid, (FAN-)Swin and other four-stage encoders an FPN on their stages, FAN-ViT, RVT
    and ViT the simple pyramid of ViTDet; the last two are ours, not published.

    Args:
        encoder: a timm model name, or a model with its weights, which becomes part of the detector.
        kind: ``faster``, ``mask`` or ``cascade``.
        num_classes: number of classes without the background.
        encoder_options: arguments of the named encoder, such as ``drop_path_rate=0.3`` (published) or ``pretrained``.
        settings: see `DetectorSettings`.
    """
    unknown = sorted(settings.keys() - DetectorSettings.__dataclass_fields__.keys())
    if unknown:
        hint = nearest(unknown[0], DetectorSettings.__dataclass_fields__)
        raise HoldfastError(f"settings must be those of DetectorSettings, got {unknown[0]!r}{hint}")
    chosen = DetectorSettings(kind=kind, num_classes=num_classes, **settings)
    if isinstance(encoder, str):
        encoder = create_encoder(encoder, **{"num_classes": 0, **(encoder_options or {})})
    elif encoder_options:
        raise HoldfastError("encoder_options are for an encoder given by name: omit them for a model")
    return Detector(encoder, chosen)


def _stage(stage: StageSettings, settings: DetectorSettings, strides: tuple[int, ...]) -> RoIStage:
    masks: dict[str, Any] = {}
    if settings.has_masks:
        masks = {
            "mask_roi_pool": AlignedPool(strides, MASK_POOL_SIDE),
            "mask_head": MaskRCNNHeads(settings.channels, settings.mask_convs, dilation=1),
        }
    return RoIStage(
        stage,
        box_roi_pool=AlignedPool(strides, BOX_SIDE),
        box_head=_box_head(settings),
        samples=settings.samples,
        score_threshold=settings.score_threshold,
        overlap_threshold=settings.overlap_threshold,
        detections=settings.detections,
        **masks,
        **_predictors(settings),
    )


def _predictors(settings: DetectorSettings) -> dict[str, nn.Module]:
    classes = 1 + settings.num_classes  # the background is the first
    layers = {"box_predictor": _box_predictor(settings.head_width, classes)}
    return layers | (
        {"mask_predictor": _mask_predictor(settings.mask_convs[-1], classes)} if settings.has_masks else {}
    )


def _box_head(settings: DetectorSettings) -> nn.Module:
    convs = settings.head_convs if settings.head_convs is not None else 4 * (settings.kind == "cascade")
    if not convs:
        head: nn.Module = TwoMLPHead(settings.channels * BOX_SIDE**2, settings.head_width)
    else:
        head = FastRCNNConvFCHead(
            (settings.channels, BOX_SIDE, BOX_SIDE),
            [settings.channels] * convs,
            [settings.head_width],
            norm_layer=nn.BatchNorm2d,
        )
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return head


def _box_predictor(width: int, classes: int) -> nn.Module:
    predictor = FastRCNNPredictor(width, classes)
    for layer, deviation in ((predictor.cls_score, 0.01), (predictor.bbox_pred, 0.001)):
        nn.init.normal_(layer.weight, std=deviation)
        nn.init.zeros_(layer.bias)
    return predictor


def _mask_predictor(width: int, classes: int) -> nn.Module:
    predictor = MaskRCNNPredictor(width, width, classes)
    for name, parameter in predictor.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return predictor


# ---------------------------------------------------------------------- entry point

default_cfgs = generate_default_cfgs({"detector": {**PLAIN_PIXELS, "num_classes": 80}})


def _from_timm(encoder: str, *, in_chans: int = 3, **rest: Any) -> Detector:
    if in_chans != 3:
        raise HoldfastError(f"in_chans of a detector must be 3, got {in_chans}")
    return detector(encoder, **rest)


def _entry_point(pretrained: bool = False, **kwargs: Any) -> Detector:
    """Entry point of ``timm.create_model``, which loads finished runs; arguments as in `detector`."""
    model = build_model_with_cfg(_from_timm, "detector", pretrained, **kwargs)
    if not pretrained:
        model.describe()
    return model


_entry_point.__name__ = _entry_point.__qualname__ = "detector"
register_model(_entry_point)
