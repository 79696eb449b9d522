"""How a model itself wants an image to be prepared: timm's evaluation transform, without its normalisation."""

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
    """Resize and crop, in timm's words.

    Attributes:
        size: height and width of what the model gets.
        crop_pct: share of the resized image that the crop keeps.
        crop_mode: ``center`` (the short side fits, the centre is cropped), ``squash`` (the aspect is not kept) or
            ``border`` (the long side fits, the rest is filled with the mean colour).
        interpolation: of the resize.
        mean: the colour of borders, of [0,1] pixels.
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
        """The picture as the model gets it, still bytes, (H, W, 3)."""
        return np.array(_of_timm(self)(picture.convert("RGB")))

    def words(self) -> str:
        """What is done, for records."""
        height, width = (math.floor(side / self.crop_pct) for side in self.size)
        crop = f"{self.size[0]}×{self.size[1]}"
        if self.crop_mode == "squash":
            return f"{height}×{width} {self.interpolation}, centre crop {crop}"
        if self.crop_mode == "border":
            return f"long side {max(height, width)} {self.interpolation}, centre crop or border to {crop}"
        short = f"short side {height}" if height == width else f"scaled to cover {height}×{width}"
        return f"{short} {self.interpolation}, centre crop {crop}"


def check_interpolation(name: str) -> None:
    """Refuse a name that timm does not know."""
    if name not in INTERPOLATIONS:
        hint = nearest(name, INTERPOLATIONS)
        raise HoldfastError(f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got {name!r}{hint}")


@lru_cache(maxsize=8)
def _of_timm(asked: EvalTransform) -> Callable[[Image.Image], Image.Image]:
    made: Any = transforms_imagenet_eval(
        img_size=asked.size,
        crop_pct=asked.crop_pct,
        crop_mode=asked.crop_mode,
        interpolation=asked.interpolation,
        mean=asked.mean,
        use_prefetcher=True,  # leaves the normalisation to others
    )
    return transforms.Compose(made.transforms[:-1])  # the last step makes a tensor
