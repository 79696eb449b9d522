"""What a training would do and how long it would take: its own steps, timed on a few images."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device

from holdfast.errors import HoldfastError
from holdfast.runtime.device import core_count
from holdfast.runtime.distributed import process_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work
from holdfast.training.accelerator import engine
from holdfast.training.build import TrainState, build_training
from holdfast.training.checkpoint import flatten_state, last_intact
from holdfast.training.loader import Item, Key, TransformedImages, collate
from holdfast.training.loop import train_step
from holdfast.training.phases import PhaseRun, parts_of
from holdfast.training.probe_phase import FOLDER
from holdfast.training.recipe import ProbeRecipe, Recipe
from holdfast.training.recipe_files import load_recipe
from holdfast.training.run_folder import RunFolder
from holdfast.training.seeding import Stream, seeded

READING, STEPPING = 3.0, 4.0  # seconds that may be spent on measuring each
MOST = 32  # images that are read


def dry_run_report(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    out: Path,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> DryRunReport:
    """Assemble a run, time some of its steps, and write nothing."""
    if process_count() > 1:
        raise HoldfastError("--dry-run must be one process; several of them share the processor time that it tells")
    recipe = load_recipe(recipe, overrides)
    if recipe.model.mix is not None:
        raise HoldfastError("--dry-run of a mixture is that of holdfast mix; this recipe trains nothing")
    parts = parts_of(recipe, out) or [PhaseRun(recipe, out)]
    for part in parts:
        RunFolder(part.folder).check(part.recipe, resume=resume)
    begin = time.perf_counter()
    with seeded(Stream.WEIGHTS, recipe.seed), engine(recipe.train, folder=out) as accelerator:
        stage = build_training(parts[0].recipe, accelerator, begun=RunFolder(parts[0].folder).begun)
        start = Seconds(spent(), time.perf_counter() - begin)
        before = last_intact(RunFolder(parts[0].folder).checkpoints)
        done = before[1]["position"]["step"] if before else 0
        found = forecast_stage(stage, out, start=start, done=done)
        if recipe.train.probe is not None and not RunFolder(out / FOLDER).finished:
            found = _with_probe(found, stage, recipe.train.probe)
    if len(parts) > 1:
        remark = f"{len(parts)} runs, one after the other; only the first was tried, the others are taken for its like"
        longer = sum(part.recipe.train.epochs for part in parts) / max(parts[0].recipe.train.epochs, 1)
        found = replace(found, spent=found.spent.times(longer), size=len(parts) * found.size, remarks=(remark,))
    return found


def forecast_stage(stage: TrainState, out: Path, *, start: Seconds = NOTHING, done: int = 0) -> DryRunReport:
    """What the steps of an assembled run will take, from a few of its images."""
    recipe = stage.recipe
    reading, stepping = _training_costs(stage)
    checking = _validation_costs(stage)
    images = (stage.steps - done) * stage.images_per_step
    rounds = -(-(stage.steps - done) // (stage.steps_per_epoch * recipe.train.eval_epochs))
    seen = rounds * len(stage.val_images) * (2 if stage.ema is not None else 1)
    parts = {"reading": reading.times(images), "steps": stepping.times(images), "validation": checking.times(seen)}
    workers = min(recipe.data.workers, core_count())
    learning = parts["reading"].wall + parts["steps"].wall
    if workers:  # they read while the model learns
        both = parts["reading"] + parts["steps"]
        learning = max(parts["reading"].wall / workers, parts["steps"].wall, both.processor / core_count())
    total = start + Seconds(sum(part.processor for part in parts.values()), learning + parts["validation"].wall)
    counts = {"training images": len(stage.train_images), "epochs": stage.epochs, "steps": stage.steps}
    counts |= {"images per step": stage.images_per_step, **({"steps done": done} if done else {})}
    shares = {"starting": start.processor, **{name: part.processor for name, part in parts.items()}}
    what = f"would train {recipe.model.name} on {recipe.data.train} into {out}"
    return DryRunReport(what, counts, _bytes(stage), total, parts=shares)


def _with_probe(report: DryRunReport, stage: TrainState, settings: ProbeRecipe) -> DryRunReport:
    """The same with a look at every image for the linear probe before it, or with that alone."""
    looks = min(len(stage.train_images), settings.images) + len(stage.val_images)
    probing = _validation_costs(stage).times(looks)
    remark = f"the linear probe looks at {looks:,} images first; fitting its regressions is not in the time"
    shares = (
        {"linear probe": probing.processor} if settings.only else {**report.parts, "linear probe": probing.processor}
    )
    total = probing if settings.only else report.spent + probing
    return replace(report, spent=total, parts=shares, remarks=(*report.remarks, remark))


def _training_costs(stage: TrainState) -> tuple[Seconds, Seconds]:
    """What an image takes to be read and varied, and to be learnt from."""
    reading, items = _time_loading(stage.train_images, stage.order.batch(0))
    stage.learn()
    few = min(2, len(items))  # mixing takes pairs
    first = _step(stage, items[:few])
    second = first if first.wall > STEPPING else _step(stage, items[:few])  # the first is slower than all others
    count = min(int(STEPPING * few / max(second.wall, 1e-6)) // 2 * 2, len(items))
    return reading, (_step(stage, items[:count]) if count > few else second).times(1 / max(count, few))


def _step(stage: TrainState, items: list[Item]) -> Seconds:
    """What a step on these images takes."""
    batch = collate(items, task=stage.task)
    return time_work(lambda: train_step(stage, [batch], step=0, epoch=0))[0]


def _validation_costs(stage: TrainState) -> Seconds:
    images = stage.val_images
    keys = [Key(index) for index in range(min(MOST, stage.recipe.train.batch_size, len(images)))]
    reading, items = _time_loading(images, keys if images.task.together else keys[:2])
    batch = collate(items, task=images.task)
    stage.bare.eval()
    with torch.no_grad(), stage.accelerator.autocast():
        looking, _ = time_work(stage.bare, send_to_device(batch.images, stage.accelerator.device))
    return reading + looking.times(1 / max(len(batch.images), 1))


def _time_loading(images: TransformedImages, keys: list[Key]) -> tuple[Seconds, list[Item]]:
    """Some images as the loader delivers them, and what one takes; the first is not counted if there are others."""
    items, total, deadline = [images[keys[0]]], NOTHING, time.perf_counter() + READING
    for key in keys[1:MOST]:
        took, item = time_work(images.__getitem__, key)
        total += took
        items.append(item)
        if time.perf_counter() > deadline:
            break
    if len(items) == 1:
        total, _ = time_work(images.__getitem__, keys[0])
    unreadable = [sentence for item in items for sentence in item.unreadable]
    if unreadable and not images.replace_unreadable:
        raise HoldfastError(f"{unreadable[0]}; --skip-bad continues without such images")
    return total.times(1 / max(len(items) - 1, 1)), items


def _bytes(stage: TrainState) -> int:
    """The checkpoints that are kept at the same time, and the model."""
    model = sum(tensor.nbytes for tensor in stage.bare.state_dict().values())
    moving = stage.moving()
    modules = sum(tensor.nbytes for module in moving.modules.values() for tensor in module.state_dict().values())
    optimizers = sum(tensor.nbytes for each in moving.optimizers.values() for tensor in flatten_state(each)[0].values())
    keep = stage.recipe.train.keep_epochs
    return (2 + (stage.epochs // keep if keep else 0)) * (modules + optimizers) + model
