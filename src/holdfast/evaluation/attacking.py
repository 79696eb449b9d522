"""Attack cells: the attack climbs on the model's joint prediction, and every view is asked about its result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks import AutoAttack, LearnedOcclusion, Occlusion, fit_corruptor
from holdfast.attacks.occlusion import cover_of, random_keep
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Cell
from holdfast.evaluation.judge import Judge, scored
from holdfast.models.corruptor import Corruptor, occlude


def attacked(
    judge: Judge,
    cell: Cell,
    images: Tensor,
    targets: np.ndarray,
    *,
    ids: Sequence[str],
    seed: int,
    batch_size: int,
) -> dict[str, np.ndarray]:
    """What a unit keeps of one shard under an attack, in batches of a fixed size: an attack's rounding depends on it.

    Attacks and their scores are computed in single precision, whatever the precision of the other cells.
    """
    places = [slice(start, start + batch_size) for start in range(0, len(images), batch_size)]
    batches = [_Batch(judge.on_device(images[p]), targets[p], list(ids[p])) for p in places]
    try:
        run = _prepared(judge, cell, batches, seed=seed)
        parts = [run(batch) for batch in batches]
    except HoldfastError as error:
        raise HoldfastError(f"{cell.name}: {error}") from error
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class _Batch:
    pixels: Tensor
    targets: np.ndarray
    ids: list[str]

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.targets).to(self.pixels.device)


def _prepared(
    judge: Judge, cell: Cell, batches: list[_Batch], *, seed: int
) -> Callable[[_Batch], dict[str, np.ndarray]]:
    """What is done to a batch; a learned attack learns from all of them first."""
    attack = cell.attack
    if isinstance(attack, Occlusion):
        return lambda batch: _occluded(judge, cell, attack, batch, seed=seed)
    if isinstance(attack, LearnedOcclusion):
        pairs = [(batch.pixels, batch.labels) for batch in batches]
        corruptor = fit_corruptor(attack, judge.pixels, pairs, seed=seed).corruptor
        places = Occlusion(attack.ratio, patch_size=attack.patch_size, fill=attack.fill)
        return lambda batch: _occluded(judge, cell, places, batch, seed=seed, corruptor=corruptor)
    return lambda batch: _attacked(judge, cell, batch, seed=seed)


def _attacked(judge: Judge, cell: Cell, batch: _Batch, *, seed: int) -> dict[str, np.ndarray]:
    options = {} if isinstance(cell.attack, AutoAttack) else {"ids": batch.ids}
    result = cell.attack(judge.pixels, batch.pixels, batch.labels, seed=seed, **options)
    return scored(_answers(judge, result.images), batch.targets, cell)


def _occluded(
    judge: Judge, cell: Cell, attack: Occlusion, batch: _Batch, *, seed: int, corruptor: Corruptor | None = None
) -> dict[str, np.ndarray]:
    """Every image under every mask, (n, masks): the spread over masks is part of the result."""
    names: list[int | str] = list(batch.ids)
    pixels = batch.pixels
    chosen = None if corruptor is None else corruptor.keep(judge.pixels.normalise(pixels), attack.ratio)
    answers = []
    for mask in range(attack.masks):
        keep = random_keep(attack, pixels, seed=seed, names=names, mask=mask) if chosen is None else chosen
        cover = cover_of(attack.fill, judge.pixels, pixels, seed=seed, names=names, purpose=f"cover/{mask}")
        answers.append(_answers(judge, occlude(pixels, keep.detach(), cover, low=0.0, high=1.0)))
    logits = {view: np.stack([a[view] for a in answers], axis=1) for view in judge.views}  # n masks classes
    flat = {view: values.reshape(-1, values.shape[-1]) for view, values in logits.items()}
    return scored(flat, batch.targets, cell, repeats=attack.masks)


@torch.no_grad()
def _answers(judge: Judge, pixels: Tensor) -> dict[str, np.ndarray]:
    return {view: logits.float().cpu().numpy() for view, logits in judge.answers(pixels).items()}
