"""From a picture to what the model sees after some damage: the very functions that make an evaluation's cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from holdfast.analysis.subject import as_bytes
from holdfast.attacks.gradient import GradientAttack
from holdfast.attacks.occlusion import Occlusion, cover_of, cover_patches, occluded
from holdfast.corruptions import corrupt_batch
from holdfast.corruptions.catalog import preset_of
from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import attack_options
from holdfast.evaluation.protocol import Pixels
from holdfast.lab.damage import Damage
from holdfast.lab.lens import Lens


def broken(lens: Lens, picture: Image.Image, steps: Sequence[Damage], *, name: str, target: Any) -> Tensor:
    """The picture after every step in order, (1, 3, H, W) in [0,1], as the model sees it.

    Corruptions in front act on the protocol's image, as in the records; those behind a patch or an attack on what the
    model sees. An attack climbs away from ``target``, or from the model's own answer if that is None.
    """
    ahead = _corruptions_ahead(steps)
    first = _corrupted_first(lens, picture, steps[:ahead], name=name) if ahead else lens.steps.clean(picture)
    pixels = _pixels(lens, first)
    for step in steps[ahead:]:
        pixels = _ACTS[step.family](lens, pixels, step, name=name, target=target)
    return pixels


def _corrupted_first(lens: Lens, picture: Image.Image, steps: Sequence[Damage], *, name: str) -> Pixels:
    """The protocol's image under some corruptions, as the model gets it."""
    image = lens.steps.before(picture)
    for step in steps:
        image = _corrupted(image, step, name=name, seed=_seed(lens, step), preset=lens.steps.preset)
    return lens.steps.after(image, corrupted=True)


def uncorrupted(lens: Lens, picture: Image.Image) -> Tensor:
    """The picture prepared as those that are corrupted, without the corruption, to be compared with them by pixel."""
    return _pixels(lens, lens.steps.after(lens.steps.before(picture), corrupted=False))


def is_corrupted(steps: Sequence[Damage]) -> bool:
    """Whether the damage begins with a corruption, and so with the benchmark's preparation."""
    return _corruptions_ahead(steps) > 0


def _corruptions_ahead(steps: Sequence[Damage]) -> int:
    return next((place for place, step in enumerate(steps) if step.family != "corruption"), len(steps))


def _seed(lens: Lens, step: Damage) -> int:
    return lens.seed if step.seed is None else step.seed


def _pixels(lens: Lens, image: Pixels) -> Tensor:
    return lens.judge.on_device(torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None])


def _corrupted(image: Pixels, step: Damage, *, name: str, seed: int, preset: str) -> Pixels:
    return corrupt_batch([image], step.kind, ids=[name], severity=int(step.amount), preset=preset, seed=seed)[0]


def _corrupt_pixels(lens: Lens, pixels: Tensor, step: Damage, *, name: str, target: Any) -> Tensor:
    image, own = as_bytes(pixels)[0], preset_of(lens.steps.preset).side
    preset = lens.steps.preset if own in (None, image.shape[0]) and own in (None, image.shape[1]) else "any"
    return _pixels(lens, _corrupted(image, step, name=name, seed=_seed(lens, step), preset=preset))


def _hide(lens: Lens, pixels: Tensor, step: Damage, *, name: str, target: Any) -> Tensor:
    """Painted patches, covered as the records' first mask covers its own."""
    assert step.grid is not None
    keep = torch.ones(1, 1, step.grid[0] * step.grid[1], device=pixels.device)
    keep[..., list(step.patches)] = 0
    in_pixels = interpolate(keep.unflatten(2, step.grid), size=pixels.shape[-2:], mode="nearest")
    model, seed = lens.judge.pixels, _seed(lens, step)
    cover = cover_of("normalised", model, pixels, seed=seed, names=[name], purpose="cover/0")
    return cover_patches(pixels, in_pixels, cover)


def _occlude(lens: Lens, pixels: Tensor, step: Damage, *, name: str, target: Any) -> Tensor:
    """The first mask of the records' occlusion, at random or where the corruption model wants it."""
    if lens.steps.size is None:
        raise HoldfastError("occlude needs images of one size, which these are not; hide patches by hand")
    if step.kind == "learned" and lens.corruptor is None:
        raise HoldfastError(f"learned needs the corruption model of an AFAT run, which {lens.name} does not have")
    attack = Occlusion(step.amount, patch_size=lens.steps.size[0] // lens.grid[0], masks=1)
    corruptor = lens.corruptor if step.kind == "learned" else None
    with torch.no_grad():
        masks = occluded(attack, lens.judge.pixels, pixels, seed=_seed(lens, step), names=[name], corruptor=corruptor)
        return next(masks)


def _attack(lens: Lens, pixels: Tensor, step: Damage, *, name: str, target: Any) -> Tensor:
    """FGSM, or PGD with five steps; at ε = 1 and 8 these are the suites fgsm, pgd5 and pgd5-rspc."""
    if not lens.task.goal.losses:
        raise HoldfastError(f"attacks on {lens.task.name} are not built in: corrupt or hide instead")
    if not lens.differentiable:
        raise HoldfastError(f"attacks need a gradient, which {lens.name} does not have: corrupt or hide instead")
    attack = gradient_attack(step)
    labels = _labels(lens, pixels, target)
    options = attack_options(attack, task=lens.task, ids=[name], seed=_seed(lens, step))
    return attack(lens.judge.pixels, pixels, labels, **options).images


def gradient_attack(step: Damage) -> GradientAttack:
    """The settings behind ``fgsm/ε`` and ``pgd/ε``."""
    eps = step.amount / 255
    if step.kind == "fgsm":
        return GradientAttack(eps=eps, alpha=eps, steps=1, random_start=False)
    return GradientAttack(eps=eps, alpha=max(step.amount / 4, 0.5) / 255, steps=5)


def _labels(lens: Lens, pixels: Tensor, target: Any) -> Tensor:
    if target is not None:
        return lens.task.collate([target]).to(pixels.device)
    return next(iter(lens.judge.answers(pixels).values())).argmax(dim=1)


_ACTS = {"corruption": _corrupt_pixels, "hide": _hide, "occlusion": _occlude, "attack": _attack}
