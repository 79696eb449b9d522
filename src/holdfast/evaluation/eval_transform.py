"""timm's evaluation transform (resize and crop) of a model, without its normalisation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image
from timm.data.transforms_factory import transforms_imagenet_eval
from torchvision import transforms

from holdfast.errors import HoldfastError, nearest

CROP_MODES = ("center", "squash", "border")
INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "lanczos", "box", "hamming")


@dataclass(frozen=True)
class EvalTransform:
    """Resize and crop with timm's parameters.

    Attributes:
        size: height and width of the model's input.
        crop_pct: fraction of the resized image that the centre crop keeps.
        crop_mode: ``center`` (resize the short side, crop the centre), ``squash`` (ignore the aspect ratio) or
            ``border`` (resize the long side, pad with the mean colour).
        interpolation: interpolation of the resize.
        mean: padding colour of ``border``, in [0,1].
    """

    size: tuple[int, int]
    crop_pct: float
    crop_mode: str
    interpolation: str
    mean: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < self.crop_pct <= 1:
            raise HoldfastError(f"crop_pct must be above 0 and at most 1, got {self.crop_pct}")
        if self.crop_mode not in CROP_MODES:
            raise HoldfastError(f"crop_mode must be one of {', '.join(CROP_MODES)}, got {self.crop_mode!r}")
        check_interpolation(self.interpolation)

    def __call__(self, picture: Image.Image) -> np.ndarray:
        """Resize and crop a picture; returns uint8 (H, W, 3), not normalised."""
        return np.array(_timm_transform(self)(picture.convert("RGB")))

    def words(self) -> str:
        """The transform in words, as records keep it."""
        height, width = (math.floor(side / self.crop_pct) for side in self.size)
        crop = f"{self.size[0]}×{self.size[1]}"
        if self.crop_mode == "squash":
            return f"{height}×{width} {self.interpolation}, centre crop {crop}"
        if self.crop_mode == "border":
            return f"long side {max(height, width)} {self.interpolation}, centre crop or border to {crop}"
        short = f"short side {height}" if height == width else f"scaled to cover {height}×{width}"
        return f"{short} {self.interpolation}, centre crop {crop}"


def check_interpolation(name: str) -> None:
    """Raise an error for an interpolation that timm does not know."""
    if name not in INTERPOLATIONS:
        hint = nearest(name, INTERPOLATIONS)
        raise HoldfastError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {name!r}{hint}")


@lru_cache(maxsize=8)
def _timm_transform(config: EvalTransform) -> Callable[[Image.Image], Image.Image]:
    steps: Any = transforms_imagenet_eval(
        img_size=config.size,
        crop_pct=config.crop_pct,
        crop_mode=config.crop_mode,
        interpolation=config.interpolation,
        mean=config.mean,
        use_prefetcher=True,  # without normalisation, which NormalizedModel does on the device
    )
    return transforms.Compose(steps.transforms[:-1])  # the last step would make a tensor; corruptions need bytes
