"""Attack cells: the attack climbs on the model's joint prediction, and every view is asked about its result."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks import AutoAttack, Occlusion
from holdfast.attacks.occlusion import cover_of, random_keep
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Cell
from holdfast.evaluation.scoring import Judge, scored
from holdfast.models.corruptor import occlude


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
    parts = []
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        try:
            parts.append(_batch(judge, cell, images[part], targets[part], ids=ids[part], seed=seed))
        except HoldfastError as error:
            raise HoldfastError(f"{cell.name}: {error}") from error
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _batch(
    judge: Judge, cell: Cell, images: Tensor, targets: np.ndarray, *, ids: Sequence[str], seed: int
) -> dict[str, np.ndarray]:
    pixels, labels = judge.on_device(images), torch.from_numpy(targets).to(judge.device)
    if isinstance(cell.attack, Occlusion):
        return _occluded(judge, cell, pixels, targets, ids=ids, seed=seed)
    options = {} if isinstance(cell.attack, AutoAttack) else {"ids": list(ids)}
    result = cell.attack(judge.pixels, pixels, labels, seed=seed, **options)
    return scored(_answers(judge, result.images), targets, cell)


def _occluded(
    judge: Judge, cell: Cell, pixels: Tensor, targets: np.ndarray, *, ids: Sequence[str], seed: int
) -> dict[str, np.ndarray]:
    """Every image under every mask, (n, masks): the spread over masks is part of the result."""
    attack = cell.attack
    names: list[int | str] = list(ids)
    answers = []
    for mask in range(attack.masks):
        keep = random_keep(attack, pixels, seed=seed, names=names, mask=mask)
        cover = cover_of(attack.fill, judge.pixels, pixels, seed=seed, names=names, purpose=f"cover/{mask}")
        answers.append(_answers(judge, occlude(pixels, keep, cover, low=0.0, high=1.0)))
    logits = {view: np.stack([a[view] for a in answers], axis=1) for view in judge.views}  # n masks classes
    flat = {view: values.reshape(-1, values.shape[-1]) for view, values in logits.items()}
    return scored(flat, targets, cell, repeats=attack.masks)


@torch.no_grad()
def _answers(judge: Judge, pixels: Tensor) -> dict[str, np.ndarray]:
    return {view: logits.float().cpu().numpy() for view, logits in judge.answers(pixels).items()}
