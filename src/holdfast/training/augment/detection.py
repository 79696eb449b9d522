"""Joint augmentation of images and objects, in the steps of the published detection recipe.

FAN's detectors (mmdetection's policy after DETR): a flip; then, with probability ½, a smaller scale and a crop of
random height and width. The detector itself draws the final short side, one of several. Boxes are clipped to the crop
and kept if any of their area is left, not recomputed from masks; crops without objects are kept. Draws come from
torch's global generator: call ``reseed`` before.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as VF

from holdfast.data.detection_targets import Objects
from holdfast.errors import HoldfastError
from holdfast.models.heads.detection_transform import scaled_size
from holdfast.training.augment.classification import random_corruption
from holdfast.training.recipe import AugmentRecipe

Target = dict[str, Tensor]
Pair = tuple[Tensor, Target]  # [0,1] pixels (3, H, W); boxes, labels from 1, masks
PairTransform = Callable[[Image.Image, Objects], Pair]


@dataclass(frozen=True)
class ObjectAugmentation:
    """Settings of the published recipe.

    Attributes:
        hflip: probability of a horizontal flip.
        crop: probability of the smaller scale and the crop.
        short_sides: short sides before the crop, of which one is drawn.
        long_side: largest long side before the crop.
        crop_sides: smallest and largest side of a crop; each side is drawn independently, at most the image's side.
    """

    hflip: float = 0.5
    crop: float = 0.5
    short_sides: tuple[int, ...] = (400, 500, 600)
    long_side: int = 1333
    crop_sides: tuple[int, int] = (384, 600)

    def __post_init__(self) -> None:
        for name in ("hflip", "crop"):
            if not 0 <= getattr(self, name) <= 1:
                raise HoldfastError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if not self.short_sides or min(self.short_sides) < 1:
            raise HoldfastError(f"short_sides must be one or more lengths in pixels, got {self.short_sides}")
        if not 0 < self.crop_sides[0] <= self.crop_sides[1]:
            raise HoldfastError(f"crop_sides must be two lengths, the smaller one first, got {self.crop_sides}")


def object_transform(recipe: AugmentRecipe) -> PairTransform:
    """The transform of a recipe's section ``augment``; a corruption is applied first, at the image's own size."""
    vary = training_object_transform(
        ObjectAugmentation(recipe.hflip, recipe.object_crop, recipe.object_scales, crop_sides=recipe.object_crop_sides)
    )
    if recipe.corruption is None:
        return vary
    corrupt = random_corruption(recipe.corruption)
    return lambda image, objects: vary(corrupt(image), objects)


def training_object_transform(settings: ObjectAugmentation) -> PairTransform:
    """(image, objects) → an augmented pair."""

    def transform(image: Image.Image, objects: Objects) -> Pair:
        pixels, target = as_tensors(image, objects)
        if _uniform() < settings.hflip:
            pixels, target = flip(pixels, target)
        if _uniform() < settings.crop:
            pixels, target = resize(pixels, target, _one_of(settings.short_sides), settings.long_side)
            pixels, target = crop(pixels, target, *_place(pixels, settings.crop_sides))
        return pixels, target

    return transform


def as_tensors(image: Image.Image, objects: Objects) -> Pair:
    """Pixels and detection targets: objects without crowds, labels from 1."""
    kept = objects.trainable()
    target = {
        "boxes": torch.from_numpy(kept.boxes).float(),
        "labels": torch.from_numpy(kept.labels).long() + 1,
    }
    if objects.masks is not None:
        target["masks"] = torch.from_numpy(kept.bitmaps())
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255, target


def flip(pixels: Tensor, target: Target) -> Pair:
    """Flip pixels, boxes and masks horizontally."""
    height, width = pixels.shape[-2:]
    boxes = VF.horizontal_flip(_boxes(target["boxes"], height, width)).as_subclass(Tensor)
    masks = {"masks": target["masks"].flip(-1)} if "masks" in target else {}
    return pixels.flip(-1), {**target, "boxes": boxes, **masks}


def resize(pixels: Tensor, target: Target, short: int, long: int) -> Pair:
    """Resize pixels bilinearly without antialiasing, and masks by nearest neighbour."""
    height, width = pixels.shape[-2:]
    size = list(scaled_size((height, width), short, long))
    boxes = VF.resize(_boxes(target["boxes"], height, width), size).as_subclass(Tensor)
    masks = (
        {"masks": VF.resize(tv_tensors.Mask(target["masks"]), size).as_subclass(Tensor)} if "masks" in target else {}
    )
    return VF.resize(pixels, size, antialias=False), {**target, "boxes": boxes, **masks}


def crop(pixels: Tensor, target: Target, top: int, left: int, height: int, width: int) -> Pair:
    """Crop the image, and keep objects of which at least one pixel of width and height is left."""
    boxes = target["boxes"] - torch.tensor([left, top, left, top])
    boxes = torch.stack([boxes[:, 0::2].clamp(0, width), boxes[:, 1::2].clamp(0, height)], dim=2).flatten(1)
    kept = ((boxes[:, 2] - boxes[:, 0]) >= 1) & ((boxes[:, 3] - boxes[:, 1]) >= 1)
    inside = {"boxes": boxes[kept], "labels": target["labels"][kept]}
    if "masks" in target:
        inside["masks"] = target["masks"][kept, top : top + height, left : left + width]
    return pixels[:, top : top + height, left : left + width], inside


def _boxes(boxes: Tensor, height: int, width: int) -> tv_tensors.BoundingBoxes:
    return tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width))


def _place(pixels: Tensor, sides: tuple[int, int]) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random crop."""
    size = [_between(min(side, sides[0]), min(side, sides[1])) for side in pixels.shape[-2:]]
    corner = [_between(0, side - wanted) for side, wanted in zip(pixels.shape[-2:], size, strict=True)]
    return corner[0], corner[1], size[0], size[1]


def _uniform() -> float:
    return float(torch.rand(()))


def _one_of(values: tuple[int, ...]) -> int:
    return values[int(torch.randint(len(values), ()))]


def _between(low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, ()))
