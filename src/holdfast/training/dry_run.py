"""Dry run of a training: times some of its steps on a few images and estimates the whole."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device

from holdfast.errors import HoldfastError
from holdfast.runtime.cores import core_count
from holdfast.runtime.distributed import process_count
from holdfast.runtime.dry_run import NOTHING, DryRunReport, Seconds, spent, time_work
from holdfast.training.accelerator import engine
from holdfast.training.build import TrainState, build_training
from holdfast.training.checkpoint import flatten_state, last_intact
from holdfast.training.global_batch import share_batch, share_images
from holdfast.training.loader import Item, Key, TransformedImages, collate
from holdfast.training.loop import train_step
from holdfast.training.phases import PhaseRun, parts_of
from holdfast.training.probe_phase import FOLDER
from holdfast.training.recipe import ProbeRecipe, Recipe, TrainRecipe
from holdfast.training.recipe_files import load_recipe
from holdfast.training.run_folder import RunFolder
from holdfast.training.seeding import Stream, seeded

READING, STEPPING = 3.0, 4.0  # time limits of the measurements, in seconds
MOST = 32  # images to read at most


def dry_run_report(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    out: Path,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    processes: int = 1,
) -> DryRunReport:
    """Build a run and time some of its steps, without writing anything; ``processes`` would share its steps."""
    if process_count() > 1:
        raise HoldfastError(
            "--dry-run must run as one process: several would share the processor time that it measures; "
            "omit torchrun and add --processes N"
        )
    recipe = load_recipe(recipe, overrides)
    if recipe.model.mix is not None:
        raise HoldfastError("--dry-run of a mixture is that of holdfast mix; this recipe trains nothing")
    for part in parts_of(recipe, out) or [PhaseRun(recipe, out)]:
        RunFolder(part.folder).check(part.recipe, resume=resume)
    whole = as_one_process(recipe, processes)
    share, recipe = share_batch(recipe, processes).train, whole
    parts = parts_of(recipe, out) or [PhaseRun(recipe, out)]
    begin = time.perf_counter()
    with seeded(Stream.WEIGHTS, recipe.seed), engine(recipe.train, folder=out) as accelerator:
        state = build_training(parts[0].recipe, accelerator, resumed=RunFolder(parts[0].folder).resumed)
        start = Seconds(spent(), time.perf_counter() - begin)
        before = last_intact(RunFolder(parts[0].folder).checkpoints)
        done = before[1]["position"]["step"] if before else 0
        found = forecast_run(state, out, start=start, done=done)
        if recipe.train.probe is not None and not RunFolder(out / FOLDER).finished:
            found = _with_probe(found, state, recipe.train.probe)
    if processes > 1:
        found = among_processes(found, processes, share=share, peak_lr=state.peak_lr)
    if len(parts) > 1:
        remark = (
            f"{len(parts)} runs, one after another; only the first was timed, the others are assumed to cost the same"
        )
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


def forecast_run(state: TrainState, out: Path, *, start: Seconds = NOTHING, done: int = 0) -> DryRunReport:
    """Estimate the time of a run's steps from a few of its images."""
    recipe = state.recipe
    reading, stepping = _training_costs(state)
    checking = _validation_costs(state)
    images = (state.steps - done) * state.images_per_step
    rounds = -(-(state.steps - done) // (state.steps_per_epoch * recipe.train.eval_epochs))
    seen = rounds * len(state.val_images) * (2 if state.ema is not None else 1)
    parts = {"reading": reading.times(images), "steps": stepping.times(images), "validation": checking.times(seen)}
    workers = min(recipe.data.workers, core_count())
    learning = parts["reading"].wall + parts["steps"].wall
    if workers:  # they load images while the model trains
        both = parts["reading"] + parts["steps"]
        learning = max(parts["reading"].wall / workers, parts["steps"].wall, both.processor / core_count())
    total = start + Seconds(sum(part.processor for part in parts.values()), learning + parts["validation"].wall)
    counts = {"training images": len(state.train_images), "epochs": state.epochs, "steps": state.steps}
    counts |= {"images per step": state.images_per_step, **({"steps done": done} if done else {})}
    shares = {"starting": start.processor, **{name: part.processor for name, part in parts.items()}}
    what = f"would train {recipe.model.name} on {recipe.data.train} into {out}"
    return DryRunReport(what, counts, _bytes(state), total, parts=shares)


def _with_probe(report: DryRunReport, state: TrainState, settings: ProbeRecipe) -> DryRunReport:
    """The same with a look at every image for the linear probe before it, or with that alone."""
    looks = min(len(state.train_images), settings.images) + len(state.val_images)
    probing = _validation_costs(state).times(looks)
    remark = f"the linear probe looks at {looks:,} images first; fitting its regressions is not in the time"
    shares = (
        {"linear probe": probing.processor} if settings.only else {**report.parts, "linear probe": probing.processor}
    )
    total = probing if settings.only else report.spent + probing
    return replace(report, spent=total, parts=shares, remarks=(*report.remarks, remark))


def _training_costs(state: TrainState) -> tuple[Seconds, Seconds]:
    """Time per image for loading with augmentation, and for a training step."""
    reading, items = _time_loading(state.train_images, state.order.batch(0))
    state.learn()
    few = min(2, len(items))  # mixup needs pairs
    first = _step(state, items[:few])
    second = first if first.wall > STEPPING else _step(state, items[:few])  # the first is slower than the others
    count = min(int(STEPPING * few / max(second.wall, 1e-6)) // 2 * 2, len(items))
    return reading, (_step(state, items[:count]) if count > few else second).times(1 / max(count, few))


def _step(state: TrainState, items: list[Item]) -> Seconds:
    """The time of a training step on these images."""
    batch = collate(items, task=state.task)
    return time_work(lambda: train_step(state, [batch], step=0, epoch=0))[0]


def _validation_costs(state: TrainState) -> Seconds:
    images = state.val_images
    keys = [Key(index) for index in range(min(MOST, state.recipe.train.batch_size, len(images)))]
    reading, items = _time_loading(images, keys if images.task.evaluation.batched else keys[:2])
    batch = collate(items, task=images.task)
    state.bare.eval()
    with torch.no_grad(), state.accelerator.autocast():
        looking, _ = time_work(state.bare, send_to_device(batch.images, state.accelerator.device))
    return reading + looking.times(1 / max(len(batch.images), 1))


def _time_loading(images: TransformedImages, keys: list[Key]) -> tuple[Seconds, list[Item]]:
    """Some loaded images and the time per image; the first is not counted if there are others."""
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
        raise HoldfastError(f"{unreadable[0]}; add --skip-bad to continue without such images")
    return total.times(1 / max(len(items) - 1, 1)), items


def _bytes(state: TrainState) -> int:
    """Disk space of the checkpoints kept at the same time, and of the model."""
    model = sum(tensor.nbytes for tensor in state.bare.state_dict().values())
    moving = state.checkpoint_state()
    modules = sum(tensor.nbytes for module in moving.modules.values() for tensor in module.state_dict().values())
    optimizers = sum(tensor.nbytes for each in moving.optimizers.values() for tensor in flatten_state(each)[0].values())
    keep = state.recipe.train.keep_epochs
    return (2 + (state.epochs // keep if keep else 0)) * (modules + optimizers) + model
