"""Joint augmentation of images and label maps, in the steps of the published segmentation recipe.

SegFormer's recipe, also used by FAN and TAP+ADL: random scale, a crop that no class dominates, a flip, photometric
distortion, and padding after normalisation. The order and all constants are the released ones; pixels are resized
bilinearly without antialiasing, labels by nearest neighbour. Draws come from torch's global generator: call ``reseed``
before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as VF

from holdfast.errors import HoldfastError
from holdfast.io.validation import checked_options
from holdfast.training.augment.classification import ImageFormat, random_corruption
from holdfast.training.recipe import AugmentRecipe

IGNORED = 255
Pair = tuple[Tensor, Tensor]  # normalised image (3, H, W), labels int64 (H, W)
PairTransform = Callable[[Image.Image, np.ndarray], Pair]


@dataclass(frozen=True)
class JointAugmentation:
    """Settings of the published recipe.

    Attributes:
        crop: height and width of the crop.
        box: height and width that images are fitted into before scaling; None for each image's own size.
        scale: smallest and largest scale factor.
        max_share: a crop in which one class has this fraction of the labelled pixels is drawn again, at most ten times;
            1 accepts every crop.
        hflip: probability of a horizontal flip.
        distort: whether to apply photometric distortion.
    """

    crop: Sequence[int] = (1024, 1024)
    box: Sequence[int] | None = (1024, 2048)
    scale: Sequence[float] = (0.5, 2.0)
    max_share: float = 0.75
    hflip: float = 0.5
    distort: bool = True

    def __post_init__(self) -> None:
        for name in ("crop", "box"):
            value = getattr(self, name)
            if value is not None and (len(value) != 2 or min(value) < 1):
                raise HoldfastError(f"{name} must be a height and a width, got {value}")
        if len(self.scale) != 2 or not 0 < self.scale[0] <= self.scale[1]:
            raise HoldfastError(f"scale must be two positive factors, the smaller one first, got {self.scale}")
        for name in ("max_share", "hflip"):
            if not 0 <= getattr(self, name) <= 1:
                raise HoldfastError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")


# values of a recipe's section augment that are for classification only, with those that switch them off
_OF_CLASSES: dict[str, Any] = {
    **{"vflip": 0.0, "color_jitter": 0.0, "rand_augment": None, "erasing": 0.0},
    **{"mixup": 0.0, "cutmix": 0.0, "smoothing": 0.0},
}


def pair_transforms(recipe: AugmentRecipe, image: ImageFormat) -> tuple[PairTransform, PairTransform]:
    """A recipe's transforms of images with label maps, for training and for validation."""
    asked = [name for name, nothing in _OF_CLASSES.items() if getattr(recipe, name) != nothing]
    if asked:
        raise HoldfastError(f"augment.{asked[0]} is for classification; use augment.joint for images with label maps")
    own = {"crop": (image.size, image.size), "box": None, "hflip": recipe.hflip}
    given = checked_options(recipe.joint or {}, JointAugmentation, whose="augment.joint")
    settings = JointAugmentation(**{**own, **given})
    scale = {"mean": image.mean, "std": image.std}
    corrupt = None if recipe.corruption is None else random_corruption(recipe.corruption)
    return training_pair_transform(settings, **scale, corrupt=corrupt), validation_pair_transform(**scale)


def training_pair_transform(
    settings: JointAugmentation,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    corrupt: Callable[[Image.Image], Image.Image] | None = None,
) -> PairTransform:
    """(image, label map) → an augmented pair of the crop's size; ``corrupt`` is applied to the crop at the end."""
    steps: list[Any] = [
        RandomScale(settings.scale, box=settings.box),
        ClassRatioCrop(settings.crop, max_share=settings.max_share),
        v2.RandomHorizontalFlip(settings.hflip),
        *([PhotometricDistortion()] if settings.distort else []),
        *([Corruption(corrupt)] if corrupt is not None else []),
    ]
    vary = v2.Compose(steps)

    def transform(image: Image.Image, labels: np.ndarray) -> Pair:
        return pad_pair(*normalise_pair(*vary(*as_pair(image, labels)), mean=mean, std=std), size=settings.crop)

    return transform


def validation_pair_transform(*, mean: Sequence[float], std: Sequence[float]) -> PairTransform:
    """(image, label map) → the normalised pair at its own size."""

    def transform(image: Image.Image, labels: np.ndarray) -> Pair:
        return normalise_pair(*as_pair(image, labels), mean=mean, std=std)

    return transform


def as_pair(image: Image.Image, labels: np.ndarray) -> tuple[tv_tensors.Image, tv_tensors.Mask]:
    """An image and its labels as torchvision's tv_tensors, which are transformed together."""
    if (image.height, image.width) != labels.shape:
        raise HoldfastError(f"labels must have the image's size {image.height}×{image.width}, got {labels.shape}")
    return tv_tensors.Image(VF.pil_to_tensor(image)), tv_tensors.Mask(torch.from_numpy(labels.copy()))


def normalise_pair(image: Tensor, labels: Tensor, *, mean: Sequence[float], std: Sequence[float]) -> Pair:
    """Normalise uint8 pixels for the model."""
    shift, scale = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return (image.as_subclass(Tensor).float() / 255 - shift) / scale, labels.as_subclass(Tensor).long()


def pad_pair(image: Tensor, labels: Tensor, *, size: Sequence[int]) -> Pair:
    """Pad to ``size`` right and below, with 0 after normalisation (the mean colour) and ignored labels."""
    missing = [0, max(size[1] - image.shape[-1], 0), 0, max(size[0] - image.shape[-2], 0)]
    pad = torch.nn.functional.pad
    return pad(image, missing), pad(labels, missing, value=IGNORED)


class RandomScale(v2.Transform):
    """Resize by a random factor r: fit the image into r times the box and keep its aspect ratio."""

    def __init__(self, scale: Sequence[float], *, box: Sequence[int] | None) -> None:
        super().__init__()
        self.scale, self.box = scale, box

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the new size."""
        size = VF.get_size(flat_inputs[0])
        factor = _uniform(*self.scale)
        return {"size": scaled_size((size[0], size[1]), factor, box=self.box or size)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Resize pixels bilinearly without antialiasing, labels by nearest neighbour."""
        return VF.resize(inpt, list(params["size"]), antialias=False)


def scaled_size(size: tuple[int, int], factor: float, *, box: Sequence[int]) -> tuple[int, int]:
    """Height and width that fit into factor · box, long side to long side, rounded half up as released."""
    limits = sorted(int(side * factor) for side in box)
    ratio = min(limits[1] / max(size), limits[0] / min(size))
    return max(1, int(size[0] * ratio + 0.5)), max(1, int(size[1] * ratio + 0.5))


class ClassRatioCrop(v2.Transform):
    """A random crop that no class dominates; drawn again up to ten times, and the eleventh is accepted."""

    def __init__(self, size: Sequence[int], *, max_share: float = 0.75, tries: int = 10) -> None:
        super().__init__()
        self.size, self.max_share, self.tries = size, max_share, tries

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the position of the crop."""
        labels = next((item for item in flat_inputs if isinstance(item, tv_tensors.Mask)), None)
        box = self._draw(VF.get_size(flat_inputs[0]))
        for _ in range(self.tries if labels is not None and self.max_share < 1 else 0):
            if is_mixed(VF.crop(labels, **box), max_share=self.max_share):
                break
            box = self._draw(VF.get_size(flat_inputs[0]))
        return box

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Crop the image or labels; a shorter side is kept whole."""
        return VF.crop(inpt, **params)

    def _draw(self, size: list[int]) -> dict[str, int]:
        tops = [int(torch.randint(max(side - wanted, 0) + 1, ())) for side, wanted in zip(size, self.size, strict=True)]
        height, width = (min(side, wanted) for side, wanted in zip(size, self.size, strict=True))
        return {"top": tops[0], "left": tops[1], "height": height, "width": width}


def is_mixed(labels: Tensor, *, max_share: float) -> bool:
    """Whether a label map has several classes, none of which with ``max_share`` of the labelled pixels."""
    counts = labels[labels != IGNORED].unique(return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) < max_share * int(counts.sum())


class PhotometricDistortion(v2.Transform):
    """Brightness, contrast, saturation and hue, each with probability ½, contrast second or last (after SSD)."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the operations, their order and their strengths."""
        order = ["brightness", "saturation", "hue"]
        order.insert(1 if _coin() else 3, "contrast")
        strengths = {
            "brightness": lambda: _uniform(-32, 32),
            "contrast": lambda: _uniform(0.5, 1.5),
            "saturation": lambda: _uniform(0.5, 1.5),
            "hue": lambda: int(torch.randint(-18, 18, ())),
        }
        return {"steps": [(name, strengths[name]()) for name in order if _coin()]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Distort the image; labels are unchanged."""
        if not isinstance(inpt, tv_tensors.Image):
            return inpt
        pixels = np.ascontiguousarray(inpt.permute(1, 2, 0).numpy())
        for name, strength in params["steps"]:
            pixels = DISTORTIONS[name](pixels, strength)
        return tv_tensors.Image(torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))


class Corruption(v2.Transform):
    """Apply a corruption to the image; labels are unchanged."""

    def __init__(self, corrupt: Callable[[Image.Image], Image.Image]) -> None:
        super().__init__()
        self.corrupt = corrupt

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Corrupt the image; labels are unchanged."""
        if not isinstance(inpt, tv_tensors.Image):
            return inpt
        return tv_tensors.Image(VF.pil_to_tensor(self.corrupt(VF.to_pil_image(inpt))))


def _coin() -> bool:
    return bool(torch.randint(2, ()))


def _uniform(low: float, high: float) -> float:
    return float(torch.empty((), dtype=torch.float64).uniform_(low, high))


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(values, 0, 255).astype(np.uint8)  # truncated, as released


def brightness(pixels: np.ndarray, shift: float) -> np.ndarray:
    """Add a number to all channels."""
    return _bytes(pixels.astype(np.float32) + shift)


def contrast(pixels: np.ndarray, factor: float) -> np.ndarray:
    """Multiply all channels by a factor."""
    return _bytes(pixels.astype(np.float32) * factor)


def saturation(pixels: np.ndarray, factor: float) -> np.ndarray:
    """Multiply OpenCV's 8-bit saturation by a factor."""
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    hsv[..., 1] = _bytes(hsv[..., 1].astype(np.float32) * factor)
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


def hue(pixels: np.ndarray, shift: int) -> np.ndarray:
    """Add a number to OpenCV's 8-bit hue, in units of two degrees."""
    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(np.int64) + shift) % 180
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)


DISTORTIONS: dict[str, Callable[..., np.ndarray]] = {
    "brightness": brightness,
    "contrast": contrast,
    "saturation": saturation,
    "hue": hue,
}
