"""``ModelInput``: the input configuration of a model, from the protocol, its timm configuration or neither."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timm.data import resolve_model_data_config
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.evaluation.config import MODEL
from holdfast.evaluation.eval_transform import check_interpolation
from holdfast.runtime.device import unwrap_model

LARGEST_SIDE = 4096


@dataclass(frozen=True)
class ModelInput:
    """Input configuration of a model.

    ``size`` None means the protocol's size, ``window`` None whole images, and ``crop_pct`` None a model without its own
    preprocessing: clean images then get the benchmark's. ``own_steps`` is the preprocessing inside another project's
    detector or segmenter, for records.
    """

    size: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    window: tuple[int, int] | None = None
    stride: int | None = None
    crop_pct: float | None = None
    crop_mode: str = "center"
    preparation: str = MODEL
    own_steps: Mapping[str, Any] = field(default_factory=dict)


def model_input(
    model: nn.Module,
    *,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str | None = None,
    crop_pct: float | None = None,
    pixel_range: int = 1,
    preparation: str = MODEL,
) -> ModelInput:
    """Input configuration: the given values, else those of the model's timm configuration, else unnormalised pixels."""
    inner: Any = unwrap_model(model)
    config: Any = getattr(inner, "pretrained_cfg", None) or {}
    known = dict(resolve_model_data_config(inner)) if config else {}
    side = (size, size) if isinstance(size, int) else size
    side = side or (tuple(known["input_size"][1:]) if known else None)
    mean, std = normalisation(
        mean if mean is not None else known.get("mean", (0.0, 0.0, 0.0)),
        std if std is not None else known.get("std", (1.0, 1.0, 1.0)),
        pixel_range=pixel_range,
    )
    chosen = ModelInput(
        side,
        mean,
        std,
        interpolation or str(known.get("interpolation", "bilinear")),
        window=getattr(inner, "window", None),
        stride=getattr(inner, "stride", None),
        crop_pct=crop_pct if crop_pct is not None else known["crop_pct"] if _has_crop_pct(config) else None,
        crop_mode=str(known.get("crop_mode", "center")),
        preparation=preparation,
        own_steps=getattr(inner, "own_steps", {}),
    )
    if chosen.size is not None:
        check_side(chosen.size)
    if interpolation is not None:
        check_interpolation(interpolation)
    return chosen


def _has_crop_pct(config: Any) -> bool:
    """Whether a configuration has a crop_pct; timm would assume 0.875 for one without, such as an ONNX file's."""
    return (config.get("crop_pct") if isinstance(config, dict) else getattr(config, "crop_pct", None)) is not None


def normalisation(
    mean: Sequence[float], std: Sequence[float], *, pixel_range: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Convert mean and std of pixels up to ``pixel_range`` to [0,1] pixels; raises an error for implausible values."""
    mean, std = tuple(map(float, mean)), tuple(map(float, std))
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise HoldfastError(f"mean and std must be three values, std positive, got {mean} and {std}")
    if pixel_range == 1 and max(*mean, *std) > 1:
        raise HoldfastError(
            f"mean and std must refer to pixels from 0 to 1, got {mean} and {std}: give --pixel-range 255 "
            "(EvalProtocol(pixel_range=255)) if they refer to pixels from 0 to 255"
        )
    if pixel_range != 1 and 0 < max(mean) <= 1:
        raise HoldfastError(
            f"mean and std must refer to pixels from 0 to 255, got {mean} and {std}: omit --pixel-range 255, "
            "or give --mean and --std in that range"
        )
    return tuple(value / pixel_range for value in mean), tuple(value / pixel_range for value in std)


def check_side(size: int | tuple[int, ...]) -> None:
    """Raise an error for a size below 1 or above 4096 pixels."""
    sides = (size,) if isinstance(size, int) else size
    if not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise HoldfastError(f"size must be positive and at most {LARGEST_SIDE} pixels, got {size}")
