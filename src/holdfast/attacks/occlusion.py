"""Patch occlusion: replace a fraction of the patches by noise, at random or as a corruption model chooses.

AFAT's Table 3 reports both. The noise of the released code is U[0,1) in *normalised* space, a band of greys in pixels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.attacks import rng
from holdfast.attacks.base import AttackResult
from holdfast.attacks.eval_mode import attack_mode, predict
from holdfast.attacks.patch_selection import check_grid, without_most_attended
from holdfast.attacks.pixel_model import PixelModel, check_images
from holdfast.errors import HoldfastError
from holdfast.models.corruption_model import Corruptor, in_pixels, select_lowest
from holdfast.runtime.device import unwrap_model

Fill = Literal["normalised", "pixels", "mean"]
FILLS = ("normalised", "pixels", "mean")


@dataclass(frozen=True, eq=False)
class OcclusionResult:
    """Predictions for the same images under several masks.

    Attributes:
        images: the images under the last mask, (B, C, H, W), in [0,1].
        predictions: the predicted classes, (masks, B).
        record: the attack's settings and seed, as plain data.
    """

    images: Tensor
    predictions: Tensor
    record: Mapping[str, Any]

    def accuracy(self, labels: Tensor) -> float:
        """Accuracy over all images and masks."""
        return float(self._right(labels).mean())

    def spread(self, labels: Tensor) -> dict[str, float]:
        """Statistics of the accuracy over masks: number of masks, mean, standard deviation, minimum, maximum."""
        each = self._right(labels).mean(dim=1)
        deviation = float(each.std()) if len(each) > 1 else 0.0
        return {
            "masks": len(each),
            "mean": float(each.mean()),
            "std": deviation,
            "min": float(each.min()),
            "max": float(each.max()),
        }

    def right_per_image(self, labels: Tensor) -> Tensor:
        """The fraction of masks under which each image is classified correctly, (B,)."""
        return self._right(labels).mean(dim=0)

    def _right(self, labels: Tensor) -> Tensor:
        if labels.shape != self.predictions.shape[1:]:
            raise HoldfastError(f"labels must have shape ({self.predictions.shape[1]},), got {tuple(labels.shape)}")
        return (self.predictions == labels).double()


@dataclass(frozen=True)
class Occlusion:
    """Occlusion's settings; the defaults are those of AFAT's Table 3.

    Attributes:
        ratio: fraction of the patches to occlude; `select_lowest` defines the rounding.
        patch_size: side of a patch in pixels; a corruption model has its own.
        masks: number of draws: of patches and noise, or of noise alone if a corruption model chooses the patches.
        fill: content of an occluded patch: U[0,1) in ``normalised`` space (as released), U[0,1) ``pixels``, or the
            data set's ``mean`` colour.
    """

    ratio: float = 0.1
    patch_size: int = 16
    masks: int = 10
    fill: Fill = "normalised"

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise HoldfastError(f"ratio must lie in [0, 1], got {self.ratio}")
        for name in ("patch_size", "masks"):
            if getattr(self, name) < 1:
                raise HoldfastError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.fill not in FILLS:
            raise HoldfastError(f"fill must be one of {', '.join(FILLS)}, got {self.fill!r}")

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        corruptor: Corruptor | None = None,
        seed: int = 0,
        ids: rng.Ids | None = None,
    ) -> OcclusionResult:
        """Occlude each image ``masks`` times and predict it; without a corruption model, at random patches."""
        check_images(images)
        names = rng.image_ids(ids, len(images))
        predictions = []
        with attack_mode(model) as victim, torch.no_grad():
            for covered in occlude_images(self, victim, images, seed=seed, names=names, corruptor=corruptor):
                predictions.append(predict(victim, covered, labels))
        by = "random" if corruptor is None else "corruptor"
        record = {"attack": "occlusion", "patches_by": by, **asdict(self), "seed": seed}
        if corruptor is not None:
            record["patch_size"] = corruptor.patch_size
        return OcclusionResult(covered, torch.stack(predictions), record)


def occlude_images(
    attack: Occlusion,
    model: nn.Module,
    images: Tensor,
    *,
    seed: int,
    names: list[int | str],
    corruptor: Corruptor | None = None,
) -> Iterator[Tensor]:
    """Yield the images under one mask after another, at random or as a corruption model chooses."""
    chosen = None if corruptor is None else corruptor.keep(pixel_model(model).normalise(images), attack.ratio).detach()
    for mask in range(attack.masks):
        keep = random_keep(attack, images, seed=seed, names=names, mask=mask) if chosen is None else chosen
        cover = cover_of(attack.fill, model, images, seed=seed, names=names, purpose=f"cover/{mask}")
        yield cover_patches(images, keep, cover)


def cover_patches(images: Tensor, keep: Tensor, cover: Tensor) -> Tensor:
    """Cover the patches of [0, 1] images that are not kept; ``keep`` is (B, 1, rows, columns)."""
    mask = in_pixels(keep, images)
    return (images * mask + cover * (1 - mask)).clamp(0, 1)


def random_keep(attack: Occlusion, images: Tensor, *, seed: int, names: list[int | str], mask: int) -> Tensor:
    """A random mask of kept patches for each image, (B, 1, rows, columns), with as many as a corruption model keeps."""
    grid = check_grid(images, attack.patch_size)
    scores = images.new_empty(len(images), grid[0] * grid[1])
    scores = rng.uniform(scores, seed=seed, ids=names, purpose=f"mask/{mask}")
    return select_lowest(scores, attack.ratio).unflatten(1, (1, *grid))


def cover_of(
    fill: Fill, model: nn.Module, images: Tensor, *, seed: int, names: list[int | str], purpose: str
) -> Tensor:
    """Content of occluded patches, (B, C, H, W), in [0,1] pixels."""
    if fill == "mean":
        return pixel_model(model).mean.expand_as(images)
    noise = rng.uniform(images, seed=seed, ids=names, purpose=purpose)
    if fill == "pixels":
        return noise
    statistics = pixel_model(model)
    # δ of AFAT Eq. 1 as released: uniform after normalisation, hence mean + std · U[0,1) in pixels (R: 0.485–0.714)
    return statistics.mean + statistics.std * noise


def pixel_model(model: nn.Module) -> PixelModel:
    """The model as a `PixelModel`; raises an error if its normalisation is unknown."""
    model = unwrap_model(model)
    if not isinstance(model, PixelModel):
        raise HoldfastError(
            f"occlusion needs a model that normalises its images, got {type(model).__name__}: "
            "wrap it with from_pixels, or use fill='pixels' at random patches"
        )
    return model


@dataclass(frozen=True)
class AttentionOcclusion:
    """Settings of the occlusion of the most attended patches; patches are the model's tokens.

    Attributes:
        ratio: fraction of the patches to occlude; `select_lowest` defines the rounding.
        fill: content of an occluded patch; see `Occlusion`.
    """

    ratio: float = 0.1
    fill: Fill = "normalised"

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise HoldfastError(f"ratio must lie in [0, 1], got {self.ratio}")
        if self.fill not in FILLS:
            raise HoldfastError(f"fill must be one of {', '.join(FILLS)}, got {self.fill!r}")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, ids: rng.Ids | None = None
    ) -> AttackResult:
        """Occlude the most attended patches of each image and predict it."""
        check_images(images)
        names = rng.image_ids(ids, len(images))
        with attack_mode(model) as victim, torch.no_grad():
            keep = without_most_attended(victim, images, self.ratio)
            covered = cover_patches(
                images, keep, cover_of(self.fill, victim, images, seed=seed, names=names, purpose="cover/0")
            )
            predictions = predict(victim, covered, labels)
        record = {"attack": "occlusion", "patches_by": "attention", **asdict(self), "seed": seed}
        return AttackResult(covered, predictions, predictions != labels, record)
