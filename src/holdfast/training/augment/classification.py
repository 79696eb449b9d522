"""Augmentation for classification: timm's and torchvision's transforms, built from a recipe."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageOps
from timm.data import Mixup, create_transform
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import str_to_pil_interp
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import v2

from holdfast.corruptions import RandomCorruption
from holdfast.errors import HoldfastError
from holdfast.io.validation import checked_options
from holdfast.training.recipe import AugmentRecipe

POLICIES = ("rand", "augmix", "original", "originalr", "v0", "v0r", "3a")
Transform = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class ImageFormat:
    """Size, normalisation and interpolation of the model's input."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop_pct: float


def training_transform(recipe: AugmentRecipe, image: ImageFormat) -> Transform:
    """PIL image → augmented, normalised tensor. Draws from the global generators: call ``reseed`` before."""
    _check_policy(recipe.rand_augment, image)
    transform = create_transform(
        input_size=(3, image.size, image.size),
        is_training=True,
        scale=recipe.scale,
        ratio=recipe.ratio,
        hflip=recipe.hflip,
        vflip=recipe.vflip,
        color_jitter=recipe.color_jitter or None,  # type: ignore[arg-type]  # timm takes None for "none"
        auto_augment=recipe.rand_augment,
        interpolation=recipe.interpolation,
        mean=image.mean,
        std=image.std,
        re_prob=recipe.erasing if recipe.erasing_order == "before" else 0.0,
        re_mode=recipe.erasing_mode,
    )
    steps = list(transform.transforms)
    _allow_posterizing_to_nothing(steps)
    if recipe.crop != "resized":
        steps[0:1] = _fixed_scale_crop(recipe, image)
    if recipe.corruption is not None:
        to_tensor = next(i for i, step in enumerate(steps) if type(step).__name__.endswith("ToTensor"))
        steps.insert(to_tensor, random_corruption(recipe.corruption))
    return v2.Compose(steps)


def _check_policy(policy: str | None, image: ImageFormat) -> None:
    """Raise an error for an unknown policy; timm asserts, raises various errors, or ignores unknown parts."""
    try:
        words = (policy or "rand").split("-")
        known = words[0] in POLICIES and all(re.fullmatch(r"[a-z]+[\d.]+", word) for word in words[1:])
        if policy and known:
            create_transform(image.size, is_training=True, auto_augment=policy)
    except Exception:
        known = False
    if not known:
        raise HoldfastError(
            f"augment.rand_augment must be a policy of timm, such as rand-m9-mstd0.5-inc1, got {policy!r}"
        )


def validation_transform(image: ImageFormat) -> Transform:
    """PIL image → centre crop of the resized image, normalised."""
    return create_transform(
        input_size=(3, image.size, image.size),
        interpolation=image.interpolation,
        mean=image.mean,
        std=image.std,
        crop_pct=image.crop_pct,
    )


def batch_mixer(recipe: AugmentRecipe, *, classes: int) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    """(images, labels, epoch) → (images, soft targets): mixup or cutmix if the recipe has them, and label smoothing.

    With the order ``after``, a rectangle of each mixed image is then erased.
    """
    # FAN's loop mixes in the collate function and erases the mixed batch, so erased pixels carry both labels; RVT's
    # erases each image first, so a mixed image shows the other one through its holes
    erasing = recipe.erasing if recipe.erasing_order == "after" else 0.0
    mixup = (
        Mixup(
            mixup_alpha=recipe.mixup,
            cutmix_alpha=recipe.cutmix,
            prob=recipe.mix_probability,
            switch_prob=recipe.mix_switch,
            mode=recipe.mix_mode,
            label_smoothing=recipe.smoothing,
            num_classes=classes,
        )
        if recipe.mixup > 0 or recipe.cutmix > 0
        else None
    )

    def mix(images: Tensor, labels: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        if mixup is not None and not 0 < recipe.mix_off_epoch <= epoch:
            images, targets = mixup(images, labels)
        else:
            targets = soft_targets(labels, classes=classes, smoothing=recipe.smoothing)
        if erasing > 0:
            images = RandomErasing(erasing, mode=recipe.erasing_mode, device=images.device)(images)
        return images, targets

    return mix


def soft_targets(labels: Tensor, *, classes: int, smoothing: float = 0.0) -> Tensor:
    """Labels (B,) → probabilities (B, classes); label smoothing is spread evenly over all classes, as in timm."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


def _fixed_scale_crop(recipe: AugmentRecipe, image: ImageFormat) -> list[Callable[[Any], Any]]:
    # timm draws "random" for each image; a fixed resize takes the first of the two, bicubic
    method = "bicubic" if recipe.interpolation == "random" else recipe.interpolation
    resize = v2.Resize((image.size, image.size), interpolation=str_to_pil_interp(method))
    return [resize, v2.RandomCrop(image.size, padding=recipe.pad)] if recipe.crop == "pad" else [resize]


def _allow_posterizing_to_nothing(steps: list[Any]) -> None:
    """Let RandAugment posterize to 0 bits, a black image, as with older versions of Pillow; Pillow 13 raises."""

    def posterize(image: Image.Image, bits: int, **kwargs: Any) -> Image.Image:
        if bits >= 8:
            return image
        return ImageOps.posterize(image, bits) if bits > 0 else Image.new(image.mode, image.size)

    for operation in (operation for step in steps for operation in getattr(step, "ops", [])):
        if getattr(operation, "name", "").startswith("Posterize"):
            operation.aug_fn = posterize


def random_corruption(options: dict[str, Any]) -> Callable[[Image.Image], Image.Image]:
    """The random corruption of training images from a recipe's options."""
    withheld = ["generator"]
    return RandomCorruption(**checked_options(options, RandomCorruption, whose="augment.corruption", withheld=withheld))
