"""Edits of an image, such as ``fog/3,hide/…,pgd/8``: parsed from text and applied."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from holdfast.analysis.probe import as_bytes
from holdfast.attacks.occlusion import Occlusion, cover_of, cover_patches, occlude_images
from holdfast.attacks.projected_gradient_descent import GradientAttack
from holdfast.corruptions import corrupt_batch
from holdfast.corruptions.severities import check_severity, kind_of, preset_of
from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import attack_options
from holdfast.evaluation.preprocessing import Pixels
from holdfast.lab.opened_model import OpenedModel

OCCLUSIONS, ATTACKS, HIDE = ("occlude", "learned"), ("fgsm", "pgd"), "hide"
FAMILIES = ("corruption", HIDE, "occlusion", "attack")
MOST_STEPS, MOST_SIDE, MOST_SEED, MOST_EPS = 12, 64, 2**31 - 1, 64.0
_STEP = re.compile(r"([a-z][\w-]*)/([\w.:-]+)(?:@(\d{1,10}))?")
_HIDDEN = re.compile(r"(\d{1,2})x(\d{1,2}):(\d{1,4}(?:\.\d{1,4})*)")


@dataclass(frozen=True)
class Edits:
    """One edit of an image.

    Attributes:
        kind: a corruption's name, ``hide``, ``occlude``, ``learned``, ``fgsm`` or ``pgd``.
        amount: severity, fraction of occluded patches ρ, or radius ε in 1/255; 0 for ``hide``.
        seed: random seed; None for the seed of the records.
        grid: rows and columns of the patch grid of ``hide``.
        patches: indices of the patches that ``hide`` occludes, row-major.
    """

    kind: str
    amount: float = 0
    seed: int | None = None
    grid: tuple[int, int] | None = None
    patches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.seed is not None and not 0 <= self.seed <= MOST_SEED:
            raise HoldfastError(f"the seed of an edit must lie in 0…{MOST_SEED}, got {self.seed}")
        _CHECKS[self.family](self)

    @property
    def family(self) -> str:
        """The family of the edit: ``corruption``, ``hide``, ``occlusion`` or ``attack``."""
        if self.kind == HIDE:
            return HIDE
        return "occlusion" if self.kind in OCCLUSIONS else "attack" if self.kind in ATTACKS else "corruption"

    def __str__(self) -> str:
        seed = "" if self.seed is None else f"@{self.seed}"
        if self.grid is not None:
            return f"{self.kind}/{self.grid[0]}x{self.grid[1]}:{'.'.join(map(str, self.patches))}{seed}"
        return f"{self.kind}/{self.amount:g}{seed}"

    @property
    def words(self) -> str:
        """Human-readable description of the edit."""
        name = self.kind.replace("_", " ")
        text = {
            "corruption": f"{name}, severity {self.amount:g}",
            HIDE: f"{len(self.patches)} {'patch' if len(self.patches) == 1 else 'patches'} hidden",
            "occlusion": f"{100 * self.amount:g} % of the patches hidden{self._selection}",
            "attack": f"{self.kind.upper()}, ε = {self.amount:g}/255",
        }[self.family]
        return text if self.seed is None else f"{text}, seed {self.seed}"

    @property
    def _selection(self) -> str:
        return " by the corruption model" if self.kind == "learned" else " at random"


def _check_corruption(step: Edits) -> None:
    kind_of(step.kind)
    if step.amount != int(step.amount):
        raise HoldfastError(f"severity of {step.kind} must be a whole number, got {step.amount:g}")
    check_severity(int(step.amount))


def _check_hidden(step: Edits) -> None:
    if step.grid is None or not all(1 <= side <= MOST_SIDE for side in step.grid):
        raise HoldfastError(f"hide must name a grid of at most {MOST_SIDE}×{MOST_SIDE} patches, got {step.grid}")
    count = step.grid[0] * step.grid[1]
    if not step.patches or max(step.patches) >= count:
        raise HoldfastError(f"hidden patches must lie in 0…{count - 1}, got {step.patches}")


def _check_share(step: Edits) -> None:
    if not 0 < step.amount <= 1:
        raise HoldfastError(f"ρ of {step.kind} must lie in (0, 1], got {step.amount:g}")


def _check_radius(step: Edits) -> None:
    if not 0 < step.amount <= MOST_EPS:
        raise HoldfastError(f"ε of {step.kind} must lie in (0, {MOST_EPS:g}], in 255ths, got {step.amount:g}")


_CHECKS = {"corruption": _check_corruption, HIDE: _check_hidden, "occlusion": _check_share, "attack": _check_radius}


def parse_edits(text: str) -> tuple[Edits, ...]:
    """Parse comma-separated edits; empty text gives none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MOST_STEPS:
        raise HoldfastError(f"an image must have at most {MOST_STEPS} edits, got {len(words)}")
    return tuple(_parse_edit(word) for word in words)


def damage_text(steps: tuple[Edits, ...]) -> str:
    """Format edits as the text that `parse_edits` reads."""
    return ",".join(map(str, steps))


def _parse_edit(word: str) -> Edits:
    found = _STEP.fullmatch(word)
    if found is None:
        raise HoldfastError(
            f"an edit must look like fog/3, hide/8x8:27.28, occlude/0.1, learned/0.1, fgsm/1 or pgd/8, got {word!r}"
        )
    kind, amount, seed = found[1], found[2], None if found[3] is None else int(found[3])
    if kind == HIDE:
        return _parsed_hidden(amount, word, seed=seed)
    try:
        return Edits(kind, float(amount), seed)
    except (ValueError, OverflowError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(f"{kind} must have a number after the slash, got {amount!r}") from error


def _parsed_hidden(amount: str, word: str, *, seed: int | None) -> Edits:
    found = _HIDDEN.fullmatch(amount)
    if found is None:
        raise HoldfastError(f"hide must look like hide/8x8:27.28, got {word!r}")
    patches = tuple(sorted({int(number) for number in found[3].split(".")}))
    return Edits(HIDE, 0, seed, (int(found[1]), int(found[2])), patches)


def apply_edits(opened: OpenedModel, picture: Image.Image, steps: Sequence[Edits], *, name: str, target: Any) -> Tensor:
    """Apply all edits in order and return the model's input, (1, 3, H, W) in [0, 1].

    Leading corruptions act on the protocol's image, as in the records; those after a hidden patch or an attack act on
    the model's input. An attack maximises the loss of ``target``, or of the model's own prediction if that is None.
    """
    ahead = _corruptions_ahead(steps)
    first = _corrupted_first(opened, picture, steps[:ahead], name=name) if ahead else opened.steps.clean(picture)
    pixels = _pixels(opened, first)
    for step in steps[ahead:]:
        pixels = _ACTS[step.family](opened, pixels, step, name=name, target=target)
    return pixels


def _corrupted_first(opened: OpenedModel, picture: Image.Image, steps: Sequence[Edits], *, name: str) -> Pixels:
    """Corrupt the protocol's image and preprocess it for the model."""
    image = opened.steps.to_protocol(picture)
    for step in steps:
        image = _corrupt_image(image, step, name=name, seed=_seed(opened, step), preset=opened.steps.preset)
    return opened.steps.to_model(image, corrupted=True)


def preprocess_uncorrupted(opened: OpenedModel, picture: Image.Image) -> Tensor:
    """Preprocess an image like corrupted ones but without the corruption, for comparison pixel by pixel."""
    return _pixels(opened, opened.steps.to_model(opened.steps.to_protocol(picture), corrupted=False))


def is_corrupted(steps: Sequence[Edits]) -> bool:
    """Whether the edits begin with a corruption and therefore with the benchmark's preprocessing."""
    return _corruptions_ahead(steps) > 0


def _corruptions_ahead(steps: Sequence[Edits]) -> int:
    return next((place for place, step in enumerate(steps) if step.family != "corruption"), len(steps))


def _seed(opened: OpenedModel, step: Edits) -> int:
    return opened.seed if step.seed is None else step.seed


def _pixels(opened: OpenedModel, image: Pixels) -> Tensor:
    return opened.judge.on_device(torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None])


def _corrupt_image(image: Pixels, step: Edits, *, name: str, seed: int, preset: str) -> Pixels:
    return corrupt_batch([image], step.kind, ids=[name], severity=int(step.amount), preset=preset, seed=seed)[0]


def _corrupt_pixels(opened: OpenedModel, pixels: Tensor, step: Edits, *, name: str, target: Any) -> Tensor:
    image, own = as_bytes(pixels)[0], preset_of(opened.steps.preset).side
    preset = opened.steps.preset if own in (None, image.shape[0]) and own in (None, image.shape[1]) else "any"
    return _pixels(opened, _corrupt_image(image, step, name=name, seed=_seed(opened, step), preset=preset))


def _hide(opened: OpenedModel, pixels: Tensor, step: Edits, *, name: str, target: Any) -> Tensor:
    """Occlude the chosen patches with the noise of the first mask in the records."""
    assert step.grid is not None
    keep = torch.ones(1, 1, step.grid[0] * step.grid[1], device=pixels.device)
    keep[..., list(step.patches)] = 0
    in_pixels = interpolate(keep.unflatten(2, step.grid), size=pixels.shape[-2:], mode="nearest")
    model, seed = opened.judge.pixels, _seed(opened, step)
    cover = cover_of("normalised", model, pixels, seed=seed, names=[name], purpose="cover/0")
    return cover_patches(pixels, in_pixels, cover)


def _occlude(opened: OpenedModel, pixels: Tensor, step: Edits, *, name: str, target: Any) -> Tensor:
    """Apply the first occlusion mask of the records, random or chosen by the corruption model."""
    if opened.steps.size is None:
        raise HoldfastError("occlude needs images of one size; use hide for images of different sizes")
    if step.kind == "learned" and opened.corruptor is None:
        raise HoldfastError(f"learned needs the corruption model of an AFAT run, but {opened.name} has none")
    attack = Occlusion(step.amount, patch_size=opened.steps.size[0] // opened.grid[0], masks=1)
    corruptor = opened.corruptor if step.kind == "learned" else None
    with torch.no_grad():
        masks = occlude_images(
            attack, opened.judge.pixels, pixels, seed=_seed(opened, step), names=[name], corruptor=corruptor
        )
        return next(masks)


def _attack(opened: OpenedModel, pixels: Tensor, step: Edits, *, name: str, target: Any) -> Tensor:
    """Attack with FGSM or five-step PGD; ε = 1 and 8 are the suites fgsm, pgd5 and pgd5-rspc."""
    if not opened.task.evaluation.goal.losses:
        raise HoldfastError(f"attacks on {opened.task.name} are not available: use corruptions or hidden patches")
    if not opened.differentiable:
        raise HoldfastError(f"attacks need a gradient, which {opened.name} lacks: use corruptions or hidden patches")
    attack = gradient_attack(step)
    labels = _labels(opened, pixels, target)
    options = attack_options(attack, task=opened.task, ids=[name], seed=_seed(opened, step))
    return attack(opened.judge.pixels, pixels, labels, **options).images


def gradient_attack(step: Edits) -> GradientAttack:
    """The attack of ``fgsm/ε`` or ``pgd/ε``."""
    eps = step.amount / 255
    if step.kind == "fgsm":
        return GradientAttack(eps=eps, alpha=eps, steps=1, random_start=False)
    # ε/4 in five steps reaches the border of the ball from any random start; half a grey level is the least step that
    # changes bytes
    return GradientAttack(eps=eps, alpha=max(step.amount / 4, 0.5) / 255, steps=5)


def _labels(opened: OpenedModel, pixels: Tensor, target: Any) -> Tensor:
    if target is not None:
        return opened.task.evaluation.collate([target]).to(pixels.device)
    return next(iter(opened.judge.predict(pixels).values())).argmax(dim=1)


_ACTS = {"corruption": _corrupt_pixels, "hide": _hide, "occlusion": _occlude, "attack": _attack}
