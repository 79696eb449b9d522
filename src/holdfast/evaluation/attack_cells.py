"""Attack cells: the attack climbs on the model's joint prediction, and every view is asked about its result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks import GeneratedOcclusion, LearnedOcclusion, Occlusion, fit_corruptor
from holdfast.attacks.criteria import MISCLASSIFICATION
from holdfast.attacks.occlusion import occlude_images
from holdfast.attacks.occlusion_learned import CrossFitted, halves_of
from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_specs import options_of
from holdfast.evaluation.cell_images import WorkerCache
from holdfast.evaluation.plan import Cell, Plan, limit_rows
from holdfast.evaluation.preprocessing import PreprocessingSteps
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.io import atomic
from holdfast.io.validation import file_name
from holdfast.models.corruption_model import Corruptor, load_corruptor, save_corruptor
from holdfast.records.shard_files import Field
from holdfast.runtime.device import Processes
from holdfast.tasks import Task

ROUNDING = 1e-4  # by which an attack's values may leave [0, 1]
FITTED_ON = 256  # images that a corruption model is fitted to, before any unit is measured


def attack_batch(
    judge: NormalizedModel,
    cell: Cell,
    images: Tensor,
    targets: Sequence[Any],
    *,
    task: Task,
    ids: Sequence[str],
    seed: int,
    corruptor: Any = None,
) -> dict[str, Field]:
    """What a unit keeps of one batch of byte images under an attack.

    Attacks and their scores are computed in single precision, whatever the precision of the other cells.
    """
    pixels = judge.on_device(images)
    try:
        if isinstance(cell.attack, Occlusion | LearnedOcclusion):
            return _occlude_batch(judge, cell, pixels, targets, task=task, ids=ids, seed=seed, corruptor=corruptor)
        options = attack_options(cell.attack, task=task, ids=ids, seed=seed)
        labels = _on(task.collate(targets), pixels)
        result = cell.attack(judge.pixels, pixels, labels, **options)
        return task.keep(judge.answers(_images(result, pixels)), targets, cell=cell)
    except HoldfastError as error:
        raise HoldfastError(f"{cell.name}: {error}") from error


def attack_options(attack: Any, *, task: Task, ids: Sequence[str], seed: int) -> dict[str, Any]:
    """What an attack wants to know beside model, images and targets: seed and names for its draws, the task's goal."""
    wanted = options_of(attack)
    if "goal" not in wanted and task.goal is not MISCLASSIFICATION:
        raise HoldfastError(f"the attack needs one class per image, which {task.name} does not have")
    offered = {"seed": seed, "ids": list(ids), "goal": task.goal}
    return {name: value for name, value in offered.items() if name in wanted}


def _images(result: Any, pixels: Tensor) -> Tensor:
    """The images that an attack made, if they are images like those that it got."""
    images = getattr(result, "images", result)
    if not isinstance(images, Tensor) or images.shape != pixels.shape:
        got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise HoldfastError(f"an attack must return images of the shape that it got, {tuple(pixels.shape)}, got {got}")
    images = images.detach().to(pixels)
    if not bool(((images >= -ROUNDING) & (images <= 1 + ROUNDING)).all()):
        raise HoldfastError("an attack must return images with values in [0, 1], got values outside, or NaN")
    return images


def fitted_corruptors(
    plan: Plan,
    cells: Sequence[Cell],
    judge: NormalizedModel,
    *,
    steps: PreprocessingSteps,
    seed: int,
    batch_size: int,
    folder: Path,
    processes: Processes,
) -> dict[str, Any]:
    """The corruption models of learned occlusions, by cell: fitted once, by the first process, before the units.

    AFAT, Table 3. The images are chosen by their ids, so no score depends on how the images are cut into shards.
    """
    learned = [cell for cell in cells if isinstance(cell.attack, LearnedOcclusion)]
    paths = {cell.name: _corruptor_files(cell, folder) for cell in learned}
    for cell in learned if processes.first else ():
        for half, path in paths[cell.name].items():
            if not path.exists():
                corruptor = _fit(plan, cell, judge, steps=steps, seed=seed, batch_size=batch_size, half=half)
                with atomic.replace_file(path) as unfinished:
                    save_corruptor(corruptor, unfinished)
    if learned:
        processes.meet()
    models = {name: [load_corruptor(path) for path in files.values()] for name, files in paths.items()}
    halves = halves_of(plan.ids) if any(len(some) > 1 for some in models.values()) else {}
    chosen = {name: CrossFitted(some, halves) if len(some) > 1 else some[0] for name, some in models.items()}
    return {name: model.to(judge.device) for name, model in chosen.items()}


def _corruptor_files(cell: Cell, folder: Path) -> dict[int | None, Path]:
    """Where the corruption models of a cell are, by the half of the images that they are fitted to; None for all."""
    name = f"corruptor.{file_name(cell.name)}"
    if isinstance(cell.attack, GeneratedOcclusion):
        return {half: folder / f"{name}.{half}.safetensors" for half in (0, 1)}
    return {None: folder / f"{name}.safetensors"}


def fitting_definition(attack: LearnedOcclusion) -> dict[str, Any]:
    """What a record says about how a corruption model was fitted."""
    told = {"fitted": "once, before the units", "fitted_on_at_most": FITTED_ON}
    crossed = isinstance(attack, GeneratedOcclusion)
    return told | ({"scored_on": "the half of the images that it was not fitted to"} if crossed else {})


def _fit(
    plan: Plan,
    cell: Cell,
    judge: NormalizedModel,
    *,
    steps: PreprocessingSteps,
    seed: int,
    batch_size: int,
    half: int | None,
) -> Corruptor:
    rows = limit_rows(plan.ids, plan.strata, FITTED_ON if half is None else 2 * FITTED_ON).tolist()
    if half is not None:
        halves = halves_of(plan.ids)
        rows = [row for row in rows if halves[plan.ids[row]] == half][:FITTED_ON]
    parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    pieces = [
        piece for part in parts for piece in cell.make.pieces(cell, part, WorkerCache(plan, steps, seed)) if piece.rows
    ]
    if not pieces:
        raise HoldfastError(f"{cell.name}: not one of {len(rows)} images can be read, so nothing can be fitted")
    stacked = [torch.from_numpy(np.stack(piece.images)).permute(0, 3, 1, 2) for piece in pieces]
    batches = [
        (judge.on_device(images), _on(plan.task.collate(piece.targets), judge.pixels.mean))
        for images, piece in zip(stacked, pieces, strict=True)
    ]
    try:
        return fit_corruptor(cell.attack, judge.pixels, batches, seed=seed).corruptor
    except HoldfastError as error:
        raise HoldfastError(f"{cell.name}: {error}") from error


def _occlude_batch(
    judge: NormalizedModel,
    cell: Cell,
    pixels: Tensor,
    targets: Sequence[Any],
    *,
    task: Task,
    ids: Sequence[str],
    seed: int,
    corruptor: Any,
) -> dict[str, Field]:
    """Every image under every mask, (n, masks): the spread over masks is part of the result."""
    attack = cell.attack
    if isinstance(attack, LearnedOcclusion):
        attack = Occlusion(attack.ratio, patch_size=attack.patch_size, fill=attack.fill)
    names: list[int | str] = list(ids)
    if isinstance(corruptor, CrossFitted):
        corruptor = _OfImages(corruptor, names)
    with torch.no_grad():
        masked = occlude_images(attack, judge.pixels, pixels, seed=seed, names=names, corruptor=corruptor)
        answers = [judge.answers(covered) for covered in masked]
    rows = {view: _by_image([answer[view] for answer in answers]) for view in judge.views}
    return task.keep(rows, targets, cell=cell, repeats=attack.masks)


class _OfImages:
    """Cross-fitted corruption models for a batch of these names."""

    def __init__(self, models: CrossFitted, names: list[int | str]) -> None:
        self.models, self.names = models, names

    def keep(self, images: Tensor, ratio: float) -> Tensor:
        """As of one corruption model."""
        return self.models.keep(images, ratio, names=self.names)


def _by_image(answers: Sequence[Any]) -> Any:
    """Answers mask by mask, each (n, …) → (n × masks, …) with an image's masks in a row."""
    if not isinstance(answers[0], Tensor):
        raise HoldfastError("occlusion needs a model that answers with tensors")
    return torch.stack(list(answers), dim=1).flatten(0, 1)


def _on(targets: Any, like: Tensor) -> Any:
    if isinstance(targets, Tensor):
        return targets.to(like.device)
    if isinstance(targets, Mapping):
        return {name: _on(value, like) for name, value in targets.items()}
    return [_on(value, like) for value in targets] if isinstance(targets, list | tuple) else targets
