"""torchvision's own segmenters and detectors by name: ``torchvision:NAME`` or ``torchvision:NAME@FILE``.

A segmenter comes with the transforms of its weights (short side 520, ImageNet's mean and std), in floating point, so
that attacks have a gradient. A detector resizes and normalises by itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import interpolate
from torchvision import models as tv

from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.models.checkpoints import read_weights
from holdfast.models.outputs import logits_of

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol

# the layer that tells how many classes a checkpoint has, and its rows per class
_CLASS_LAYERS = (
    ("classifier.4.weight", 1),  # FCN, DeepLabV3
    ("classifier.low_classifier.weight", 1),  # LR-ASPP
    ("roi_heads.box_predictor.cls_score.weight", 1),
    ("head.classification_head.module_list.0.1.weight", 6),  # SSDlite
    ("head.classification_head.module_list.0.weight", 4),  # SSD
)
_ANCHORS = {"retinanet": 9, "fcos": 1}  # per place, in head.classification_head.cls_logits


class TorchvisionSegmenter(nn.Module):
    """A segmenter of torchvision behind its own resize: normalised images in, logits at the images' size out.

    Attributes:
        model: as torchvision builds it.
        short_side: of the images as the model sees them; a tuple is height and width, None leaves them as they are.
    """

    task = "segmentation"
    consumes = ("size", "resize")

    def __init__(
        self, model: nn.Module, configuration: dict[str, Any], short_side: int | tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.model, self.pretrained_cfg, self.short_side = model, configuration, short_side
        self.num_classes = int(configuration["num_classes"])

    @property
    def own_steps(self) -> dict[str, Any]:
        """What the segmenter itself does with an image, for records."""
        if self.short_side is None:
            return {}
        side = self.short_side
        words = f"short side {side}" if isinstance(side, int) else f"{side[0]}×{side[1]}"
        return {"model_size": f"{words}, bilinear, antialiased; logits resampled back"}

    def configured(self, protocol: "EvalProtocol", pictures: Any) -> "TorchvisionSegmenter":
        """The segmenter at the size that a protocol asks for; ``resize: none`` shows it images as they are."""
        if protocol.resize not in (None, "none", "stretch"):
            raise HoldfastError(f"resize must be none or stretch for torchvision's segmenters, got {protocol.resize!r}")
        side = None if protocol.resize == "none" else protocol.size or self.short_side
        return TorchvisionSegmenter(self.model, self.pretrained_cfg, side)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (n, 3, H, W) → logits (n, classes, H, W)."""
        own = (images.shape[-2], images.shape[-1])
        seen = self._seen(own)
        if seen != own:
            images = interpolate(images, size=seen, mode="bilinear", antialias=True, align_corners=False)
        logits = logits_of(self.model(images))
        if logits.shape[-2:] == own:
            return logits
        return interpolate(logits, size=own, mode="bilinear", align_corners=False)

    def _seen(self, own: tuple[int, int]) -> tuple[int, int]:
        """Height and width as the model sees them; the longer side is floored, as torchvision does it."""
        side = self.short_side
        if side is None or not isinstance(side, int):
            return own if side is None else side
        height, width = own
        return (side, int(side * width / height)) if height <= width else (int(side * height / width), side)


def builder_names() -> list[str]:
    """The segmenters and detectors that torchvision builds."""
    return [*tv.list_models(module=tv.segmentation), *tv.list_models(module=tv.detection)]


def build_torchvision(rest: str) -> tuple[nn.Module, tuple[str, ...] | None]:
    """The model of ``NAME[@FILE]``, and what its classes are called where its weights tell."""
    name, _, file = rest.partition("@")
    if name not in builder_names():
        kinds = f"; expected one of {', '.join(builder_names())}"
        raise HoldfastError(f"torchvision:{name} is no segmenter or detector{nearest(name, builder_names()) or kinds}")
    weights: Any = tv.get_model_weights(name).DEFAULT
    if file:
        model, classes = _filled(name, Path(file).expanduser()), None
    else:
        model, classes = _fetched(name, weights), tuple(map(str, weights.meta["categories"]))
    model.eval()
    if name in tv.list_models(module=tv.detection):
        model.task = "detection"  # type: ignore[assignment]
        return model, classes[1:] if classes else None  # without the background
    return _with_transforms(model, weights.transforms(), name=name, classes=_class_count(model)), classes


def _with_transforms(model: nn.Module, preset: Any, *, name: str, classes: int) -> TorchvisionSegmenter:
    (side,) = preset.resize_size
    configuration = {
        "architecture": name,
        "task": "segmentation",
        "num_classes": classes,
        "input_size": (3, side, side),
        "mean": tuple(preset.mean),
        "std": tuple(preset.std),
        "interpolation": "bilinear",
    }
    return TorchvisionSegmenter(model, configuration, side)


def _fetched(name: str, weights: Any) -> nn.Module:
    try:
        return tv.get_model(name, weights=weights, progress=False)
    except Exception as error:  # urllib, ssl and torch.hub have exceptions of their own
        reason = first_line(error)
        raise HoldfastError(
            f"the weights of torchvision:{name} cannot be fetched ({reason}); with a file at hand: "
            f"torchvision:{name}@FILE"
        ) from error


def _filled(name: str, path: Path) -> nn.Module:
    """The builder's model with a file's weights, of as many classes as they are for."""
    state = read_weights(path)
    options: dict[str, Any] = {
        "weights": None,
        "weights_backbone": None,
        "num_classes": _told_classes(state, name, path),
    }
    if name in tv.list_models(module=tv.segmentation) and not name.startswith("lraspp"):
        options["aux_loss"] = any(key.startswith("aux_classifier.") for key in state)
    model = tv.get_model(name, **options)
    missing, unexpected = model.load_state_dict(dict(_fitting(state, model)), strict=False)
    if missing or unexpected:
        raise HoldfastError(
            f"{path.name} must hold the weights of {name}, but {(missing or unexpected)[0]} does not fit"
        )
    return model


def _fitting(state: Mapping[str, Tensor], model: nn.Module) -> Mapping[str, Tensor]:
    """What of a file has the model's shapes; a tensor of another shape is missing."""
    own = model.state_dict()
    return {key: value for key, value in state.items() if key not in own or own[key].shape == value.shape}


def _told_classes(state: Mapping[str, Tensor], name: str, path: Path) -> int:
    for key, rows in _CLASS_LAYERS:
        if key in state and state[key].ndim:
            return len(state[key]) // rows
    logits = state.get("head.classification_head.cls_logits.weight")
    if logits is not None and logits.ndim:
        return len(logits) // _ANCHORS.get(name.partition("_")[0], 1)
    raise HoldfastError(f"{path.name} must hold the weights of {name}, but its layer of classes is missing")


def _class_count(model: nn.Module) -> int:
    state = model.state_dict()
    return next(len(state[key]) // rows for key, rows in _CLASS_LAYERS if key in state)
