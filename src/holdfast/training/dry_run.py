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
from holdfast.training.global_batch import share_batch, share_images
from holdfast.training.initialize import train_mode
from holdfast.training.loader import Item, Key, TransformedImages, collate
from holdfast.training.loop import train_step
from holdfast.training.phases import PhaseRun, parts_of
from holdfast.training.recipe import Recipe, TrainRecipe
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
    processes: int = 1,
) -> DryRunReport:
    """Assemble a run, time some of its steps, and write nothing; ``processes`` are those that would share its steps."""
    if process_count() > 1:
        raise HoldfastError(
            "--dry-run must be one process, because several share the processor time that it tells; "
            "leave torchrun out and add --processes N"
        )
    recipe = load_recipe(recipe, overrides)
    for part in parts_of(recipe, out) or [PhaseRun(recipe, out)]:
        RunFolder(part.folder).check(part.recipe, resume=resume)
    whole = as_one_process(recipe, processes)
    share, recipe = share_batch(recipe, processes).train, whole
    parts = parts_of(recipe, out) or [PhaseRun(recipe, out)]
    begin = time.perf_counter()
    with seeded(Stream.WEIGHTS, recipe.seed), engine(recipe.train, folder=out) as accelerator:
        stage = build_training(parts[0].recipe, accelerator, begun=RunFolder(parts[0].folder).begun)
        start = Seconds(spent(), time.perf_counter() - begin)
        before = last_intact(RunFolder(parts[0].folder).checkpoints)
        done = before[1]["position"]["step"] if before else 0
        found = forecast_stage(stage, out, start=start, done=done)
    if processes > 1:
        found = among_processes(found, processes, share=share, peak_lr=stage.peak_lr)
    if len(parts) > 1:
        remark = f"{len(parts)} runs, one after the other; only the first was tried, the others are taken for its like"
        longer = sum(part.recipe.train.epochs for part in parts) / max(parts[0].recipe.train.epochs, 1)
        found = replace(
            found, spent=found.spent.times(longer), size=len(parts) * found.size, remarks=(*found.remarks, remark)
        )
    return found


def as_one_process(recipe: Recipe, processes: int) -> Recipe:
    """The recipe by which a single process takes the steps of so many."""
    if processes < 1:
        raise HoldfastError(f"--processes must be at least 1, got {processes}")
    train = recipe.train
    images = train.global_batch or train.batch_size * train.accumulate * processes
    share_images(recipe, images, processes)  # refuses what cannot be shared
    return recipe if processes == 1 else replace(recipe, train=replace(train, global_batch=images))


def among_processes(found: DryRunReport, processes: int, *, share: TrainRecipe, peak_lr: float) -> DryRunReport:
    """The forecast by the clock for so many processes, each on a processor or GPU like the one that was tried."""
    remark = (
        f"{processes} processes: {share.batch_size} images each in {share.accumulate} "
        f"pass{'' if share.accumulate == 1 else 'es'} per step, peak learning rate {peak_lr:.3g}; the time here is "
        "that of all of them at once, on as many processors or GPUs like this one, without what they tell each other"
    )
    spent = Seconds(found.spent.processor, found.spent.wall / processes)
    return replace(found, spent=spent, remarks=(*found.remarks, remark))


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


def _training_costs(stage: TrainState) -> tuple[Seconds, Seconds]:
    """What an image takes to be read and varied, and to be learnt from."""
    reading, items = _time_loading(stage.train_images, stage.order.batch(0))
    train_mode(stage.bare)
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
