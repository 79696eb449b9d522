"""Attack cells: attacks maximise the loss of the model's joint prediction, and every view predicts their result."""

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
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Cell, Plan, limit_rows
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.io import atomic
from holdfast.io.validation import file_name
from holdfast.models.corruption_model import Corruptor, load_corruptor, save_corruptor
from holdfast.records.shard_files import Field
from holdfast.runtime.device import Processes
from holdfast.tasks import Task

ROUNDING = 1e-4  # tolerance for an attack's values outside [0, 1]
FITTED_ON = 256  # images that a corruption model is fitted to before any unit is measured


def attack_batch(
    normalized_model: NormalizedModel,
    cell: Cell,
    images: Tensor,
    targets: Sequence[Any],
    *,
    task: Task,
    ids: Sequence[str],
    seed: int,
    corruptor: Any = None,
) -> dict[str, Field]:
    """Attack one batch of uint8 images and return the fields that a unit records.

    Attacks and their scores are computed in float32, even if other cells use half precision.
    """
    pixels = normalized_model.on_device(images)
    try:
        if isinstance(cell.attack, Occlusion | LearnedOcclusion):
            return _occlude_batch(
                normalized_model, cell, pixels, targets, task=task, ids=ids, seed=seed, corruptor=corruptor
            )
        options = attack_options(cell.attack, task=task, ids=ids, seed=seed)
        labels = _on(task.evaluation.collate(targets), pixels)
        result = cell.attack(normalized_model.pixels, pixels, labels, **options)
        return task.evaluation.keep(normalized_model.predict(_images(result, pixels)), targets, cell=cell)
    except HoldfastError as error:
        raise HoldfastError(f"{cell.name}: {error}") from error


def attack_options(attack: Any, *, task: Task, ids: Sequence[str], seed: int) -> dict[str, Any]:
    """Keyword arguments that an attack accepts: seed and image ids for its random numbers, and the task's criterion."""
    wanted = options_of(attack)
    if "goal" not in wanted and task.evaluation.goal is not MISCLASSIFICATION:
        raise HoldfastError(
            f"the attack needs one class per image, which {task.name} does not have: give it a parameter goal"
        )
    offered = {"seed": seed, "ids": list(ids), "goal": task.evaluation.goal}
    return {name: value for name, value in offered.items() if name in wanted}


def _images(result: Any, pixels: Tensor) -> Tensor:
    """Return the adversarial images; raise an error unless they have the input's shape and values in [0, 1]."""
    images = getattr(result, "images", result)
    if not isinstance(images, Tensor) or images.shape != pixels.shape:
        got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise HoldfastError(f"an attack must return images of its input's shape {tuple(pixels.shape)}, got {got}")
    images = images.detach().to(pixels)
    if not bool(((images >= -ROUNDING) & (images <= 1 + ROUNDING)).all()):
        raise HoldfastError("an attack must return images with values in [0, 1], got values outside, or NaN")
    return images


def fitted_corruptors(
    plan: Plan,
    cells: Sequence[Cell],
    normalized_model: NormalizedModel,
    *,
    steps: Preprocessing,
    seed: int,
    batch_size: int,
    folder: Path,
    processes: Processes,
) -> dict[str, Any]:
    """Corruption models of learned occlusions, by cell: fitted once, by the first process, before the units.

    AFAT, Table 3. The images are chosen by their ids, so that scores do not depend on the shard size.
    """
    learned = [cell for cell in cells if isinstance(cell.attack, LearnedOcclusion)]
    paths = {cell.name: _corruptor_files(cell, folder) for cell in learned}
    for cell in learned if processes.first else ():
        for half, path in paths[cell.name].items():
            if not path.exists():
                corruptor = _fit(plan, cell, normalized_model, steps=steps, seed=seed, batch_size=batch_size, half=half)
                with atomic.replace_file(path) as unfinished:
                    save_corruptor(corruptor, unfinished)
    if learned:
        processes.meet()
    models = {name: [load_corruptor(path) for path in files.values()] for name, files in paths.items()}
    halves = halves_of(plan.ids) if any(len(some) > 1 for some in models.values()) else {}
    chosen = {name: CrossFitted(some, halves) if len(some) > 1 else some[0] for name, some in models.items()}
    return {name: model.to(normalized_model.device) for name, model in chosen.items()}


def _corruptor_files(cell: Cell, folder: Path) -> dict[int | None, Path]:
    """Paths of the corruption models of a cell, by the half of the images that each is fitted to; None for all."""
    name = f"corruptor.{file_name(cell.name)}"
    if isinstance(cell.attack, GeneratedOcclusion):
        return {half: folder / f"{name}.{half}.safetensors" for half in (0, 1)}
    return {None: folder / f"{name}.safetensors"}


def fitting_definition(attack: LearnedOcclusion) -> dict[str, Any]:
    """Settings of the fit, as the cell's definition records them."""
    settings = {"fitted": "once, before the units", "fitted_on_at_most": FITTED_ON}
    crossed = isinstance(attack, GeneratedOcclusion)
    return settings | ({"scored_on": "the half of the images that it was not fitted to"} if crossed else {})


def _fit(
    plan: Plan,
    cell: Cell,
    normalized_model: NormalizedModel,
    *,
    steps: Preprocessing,
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
        samples
        for part in parts
        for samples in cell.make.pieces(cell, part, WorkerCache(plan, steps, seed))
        if samples.rows
    ]
    if not pieces:
        raise HoldfastError(
            f"{cell.name}: a corruption model cannot be fitted, because none of {len(rows)} images can be read"
        )
    stacked = [torch.from_numpy(np.stack(samples.images)).permute(0, 3, 1, 2) for samples in pieces]
    batches = [
        (
            normalized_model.on_device(images),
            _on(plan.task.evaluation.collate(samples.targets), normalized_model.pixels.mean),
        )
        for images, samples in zip(stacked, pieces, strict=True)
    ]
    try:
        return fit_corruptor(cell.attack, normalized_model.pixels, batches, seed=seed).corruptor
    except HoldfastError as error:
        raise HoldfastError(f"{cell.name}: {error}") from error


def _occlude_batch(
    normalized_model: NormalizedModel,
    cell: Cell,
    pixels: Tensor,
    targets: Sequence[Any],
    *,
    task: Task,
    ids: Sequence[str],
    seed: int,
    corruptor: Any,
) -> dict[str, Field]:
    """Predict every image under every mask, (n, masks); the variance over masks is part of the result."""
    attack = cell.attack
    if isinstance(attack, LearnedOcclusion):
        attack = Occlusion(attack.ratio, patch_size=attack.patch_size, fill=attack.fill)
    names: list[int | str] = list(ids)
    if isinstance(corruptor, CrossFitted):
        corruptor = _OfImages(corruptor, names)
    with torch.no_grad():
        masked = occlude_images(attack, normalized_model.pixels, pixels, seed=seed, names=names, corruptor=corruptor)
        answers = [normalized_model.predict(covered) for covered in masked]
    rows = {view: _by_image([answer[view] for answer in answers]) for view in normalized_model.views}
    return task.evaluation.keep(rows, targets, cell=cell, repeats=attack.masks)


class _OfImages:
    """Cross-fitted corruption models for a batch of these names."""

    def __init__(self, models: CrossFitted, names: list[int | str]) -> None:
        self.models, self.names = models, names

    def keep(self, images: Tensor, ratio: float) -> Tensor:
        """As of one corruption model."""
        return self.models.keep(images, ratio, names=self.names)


def _by_image(answers: Sequence[Any]) -> Any:
    """Outputs per mask, each (n, …) → (n × masks, …) with the masks of an image adjacent."""
    if not isinstance(answers[0], Tensor):
        raise HoldfastError("occlusion needs a model whose outputs are tensors; omit the suite for this model")
    return torch.stack(list(answers), dim=1).flatten(0, 1)


def _on(targets: Any, like: Tensor) -> Any:
    if isinstance(targets, Tensor):
        return targets.to(like.device)
    if isinstance(targets, Mapping):
        return {name: _on(value, like) for name, value in targets.items()}
    return [_on(value, like) for value in targets] if isinstance(targets, list | tuple) else targets
