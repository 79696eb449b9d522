"""The training loop. The engine is Hugging Face accelerate; everything that happens in a step is on this page."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from timm.utils import distribute_bn
from torch import Tensor, nn

from holdfast.data import open_data, turned_images
from holdfast.data.in_memory import register_sources
from holdfast.data.torch_datasets import as_source
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.images import turned_warning
from holdfast.io.training_log import idle_parts
from holdfast.methods import Loss, Objective, OwnsModules
from holdfast.models.corruption_model import save_corruptor
from holdfast.models.fingerprint import weights_fingerprint
from holdfast.runtime.signals import peer_deaths, worker_deaths
from holdfast.training.accelerator import StopRequest, engine
from holdfast.training.build import TrainState, build_training
from holdfast.training.checkpoint import (
    Position,
    prune,
    repair,
    rescale_for_processes,
    restore_checkpoint,
    save_checkpoint,
)
from holdfast.training.initialize import described_start
from holdfast.training.loader import Batch, Unreadable
from holdfast.training.lock import check_free
from holdfast.training.logger import Meter, TrainingLogger
from holdfast.training.phases import PhaseRun, parts_of, phase_notes
from holdfast.training.probe_phase import after_probe, probe_run
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import flat_values, load_recipe, merge, to_yaml
from holdfast.training.run_folder import RunFolder, export_model, write_config
from holdfast.training.sam import sharpness_aware
from holdfast.training.seeding import Stream, reseed, seeded

logger = logging.getLogger(__name__)

LEFT_BEHIND = "the last checkpoint is kept: go on with --resume and any number of processes that shares a step's images"


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended: folder, steps done, last and best clean accuracy (%), and the signal that stopped it, if any."""

    folder: Path
    step: int
    accuracy: float | None
    best: float | None
    stopped_by: int = 0


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    objective: Objective | None = None,
    data: Sequence[Any] | None = None,
    show: bool | None = None,
) -> TrainingResult:
    """Train or fine-tune a model.

    Args:
        recipe: a shipped recipe's name, a YAML file, nested dictionaries, or a Recipe.
        out: the run's folder.
        overrides: values that replace the recipe's, as nested dictionaries.
        resume: go on from the run's last checkpoint, if it has one; the end is the same as without interruption.
        objective: what to train for, instead of the recipe's objective.
        data: images to train and to validate on, instead of the recipe's: two of what ``holdfast.evaluate`` takes.
        show: show progress; None shows it on a terminal.
    """
    if data is not None:
        with _register_data(data) as (train_spec, val_spec):
            named = merge(overrides or {}, {"data": {"train": train_spec, "val": val_spec}})
            return train(recipe, out=out, overrides=named, resume=resume, objective=objective, show=show)
    recipe = load_recipe(recipe, overrides)
    if recipe.model.mix is not None or (recipe.train.probe is not None and recipe.train.probe.only):
        return _without_steps(recipe, Path(out), resume=resume)
    if parts := parts_of(recipe, Path(out)):
        return train_parts(recipe, Path(out), parts, resume=resume, show=show)
    run = RunFolder(Path(out))
    run.check(recipe, resume=resume)
    with (
        seeded(Stream.WEIGHTS, recipe.seed),
        engine(recipe.train, folder=run.path) as accelerator,
        ExitStack() as for_the_run,
    ):
        if accelerator.is_main_process:
            check_free(run.path)
        started = after_probe(recipe, run.path, accelerator)
        shared = rescale_for_processes(started, run.checkpoints, accelerator.num_processes) if resume else started
        stage = build_training(shared, accelerator, objective=objective, begun=run.begun if resume else None)
        accelerator.wait_for_everyone()  # all have checked the folder before one writes into it
        if accelerator.is_main_process:
            for_the_run.enter_context(run.held(recipe, resume=resume))
            for path in repair(run.checkpoints):
                logger.warning("a damaged checkpoint is kept as %s; the run goes on from the one before", path)
            if recipe.model.adapt is None:  # by which a checkpoint is looked at before the run has finished
                write_config(stage.bare, run.checkpoints, recipe=stage.recipe, image=stage.image, classes=stage.classes)
        accelerator.wait_for_everyone()
        position = restore_checkpoint(run.checkpoints, stage.moving()) if resume else Position()
        position = replace(position, images_per_step=stage.images_per_step)
        if accelerator.is_main_process and position.step:  # a kill may have come between a save and its pruning
            prune_all(stage, run, position)
        if recipe.train.trackers:
            accelerator.init_trackers("holdfast", config=flat_values(recipe))
        way_on = "the last checkpoint is kept: go on with --resume, with fewer --data.workers if need be"
        with (
            TrainingLogger(accelerator, run.path, steps=stage.steps, show=show, header=_header(stage)) as journal,
            StopRequest() as stop,
            worker_deaths(way_on=way_on),
            peer_deaths(accelerator.num_processes, way_on=LEFT_BEHIND),
        ):
            journal.continue_from(position.step)
            if started.model.init is not None and not position.step:
                journal.say(described_start(started.model))
            return run_steps(stage, run, position, journal=journal, stop=stop)


def _without_steps(recipe: Recipe, out: Path, *, resume: bool) -> TrainingResult:
    """A mixture of finished models, or a linear probe: one process makes them at once."""
    from holdfast.training.mix import mix_run  # which few runs need

    run = RunFolder(out)
    run.check(recipe, resume=resume)
    accuracy = None
    with engine(recipe.train, folder=out) as together:
        if together.is_main_process and not run.finished:
            if recipe.model.mix is not None:
                mix_run(recipe, out)
            else:
                accuracy = probe_run(recipe, out).accuracy
        together.wait_for_everyone()
    return TrainingResult(out, 0, accuracy, accuracy)


def _header(stage: TrainState) -> str:
    """What is trained, for output that nobody watches."""
    recipe = stage.recipe
    epochs = f"{stage.epochs} epoch{'' if stage.epochs == 1 else 's'}"
    counts = f"{len(stage.train_images)} images, {epochs}, {stage.steps} steps of {stage.images_per_step}"
    rate = f"peak learning rate {stage.peak_lr:.3g}"
    what = f"{recipe.model.name}{_phase(recipe)} on {recipe.data.train}"
    return f"training {what}: {counts}, {rate}, on {stage.accelerator.device}"


def _phase(recipe: Recipe) -> str:
    """How a model is adapted, in which phase, and with which weight of robustness."""
    if recipe.model.adapt is None:
        return ""
    notes = phase_notes(recipe)
    weights = f", λ {notes['weights'][0]:g}" if len(notes["weights"]) == 1 else ""
    return f" with {recipe.model.adapt.name}, phase {notes['phase']}{weights},"


@contextmanager
def _register_data(data: Sequence[Any]) -> Iterator[tuple[str, str]]:
    if isinstance(data, str) or not isinstance(data, Sequence) or len(data) != 2:
        raise HoldfastError(f"data must be two, to train and to validate on, got {type(data).__name__}")
    sources = [
        open_data(each, split=split) if isinstance(each, str) else as_source(each)
        for each, split in zip(data, ("train", "val"), strict=True)
    ]
    with register_sources(*sources) as specs:
        yield specs


def train_parts(recipe: Recipe, out: Path, parts: list[PhaseRun], *, resume: bool, show: bool | None) -> TrainingResult:
    """Every phase and every weight of a recipe, one run after the other; a finished one is not trained again."""
    whole = RunFolder(out)
    if whole.recipe.exists() and not resume:
        raise HoldfastError(f"{str(out)!r} already holds a run; add --resume or choose another --out")
    for part in parts:
        RunFolder(part.folder).check(part.recipe, resume=resume)
    results: list[TrainingResult] = []
    with engine(recipe.train, folder=out) as together:  # one group of processes for all parts
        for part in parts:
            results.append(train(part.recipe, out=part.folder, resume=resume, show=show))
            together.wait_for_everyone()  # until the next part's start is on disk
            if together.is_main_process:  # after the first part has found that data and model exist
                atomic.write_text(whole.recipe, to_yaml(recipe))
            if results[-1].stopped_by:
                break
    return replace(results[-1], step=sum(result.step for result in results))


def run_steps(
    stage: TrainState, run: RunFolder, position: Position, *, journal: TrainingLogger, stop: StopRequest
) -> TrainingResult:
    """All steps from ``position`` to the end of the run, or to a signal."""
    recipe, accelerator = stage.recipe.train, stage.accelerator
    alone = accelerator.num_processes == 1
    # a look at the loss waits for the device, and a look at the signals waits for the other processes
    look_every = 1 if alone and accelerator.device.type == "cpu" else recipe.log_steps
    meter, unreadable = Meter(accelerator), Unreadable(accelerator, skip=stage.recipe.data.skip_bad)
    batches = iter(stage.batches_from(position.step))
    accuracy: float | None = None
    stage.learn()

    for step in range(position.step, stage.steps):
        epoch, done = step // stage.steps_per_epoch, step + 1
        stage.schedule(step)
        step_batches = [unreadable.check(next(batches)) for _ in range(recipe.accumulate)]
        meter.add(train_step(stage, step_batches, step=step, epoch=epoch))
        journal.advance(epoch)

        position = replace(position, step=done)
        ends_epoch = done % stage.steps_per_epoch == 0 or done == stage.steps
        look = ends_epoch or done % look_every == 0
        signal = stop.agreed(accelerator) if look or alone else 0
        save = ends_epoch or bool(signal) or bool(recipe.checkpoint_steps and done % recipe.checkpoint_steps == 0)
        if look or save:
            meter.check_finite(step=done, folder=run.checkpoints)
        if ends_epoch or done % recipe.log_steps == 0:
            figures = meter.read(images_per_step=stage.images_per_step)
            journal.write("step", step=done, epoch=epoch, lr=learning_rate(stage), **figures)
        if ends_epoch and ((epoch + 1) % recipe.eval_epochs == 0 or done == stage.steps):
            accuracy, scores = validate(stage, unreadable)
            position = with_best(position, accuracy)
            journal.write("epoch", step=done, epoch=epoch, **scores, **unreadable.summary())
            journal.say(f"epoch {epoch}: {describe(scores)}")
            meter = Meter(accelerator)  # its clock runs for training alone
            stage.learn()
        if save:
            save_all(stage, run, position)
        if signal and done < stage.steps:
            return TrainingResult(run.path, done, accuracy, position.best, stopped_by=signal)

    finish(stage, run, position, journal=journal)
    return TrainingResult(run.path, position.step, accuracy, position.best)


def train_step(stage: TrainState, batches: list[Batch], *, step: int, epoch: int) -> dict[str, Tensor]:
    """One optimizer step: mix, objective, backward, clip, step, average. Returns figures for the log."""
    accelerator, recipe = stage.accelerator, stage.recipe
    figures: dict[str, Tensor] = {}
    player = stage.objective if isinstance(stage.objective, OwnsModules) else None
    for number, batch in enumerate(batches):
        images = send_to_device(batch.images, accelerator.device, non_blocking=True)
        targets = send_to_device(batch.targets, accelerator.device, non_blocking=True)
        key = (Stream.STEP, recipe.seed, step, number, accelerator.process_index)
        learn = partial(backward_pass, stage, targets=targets, epoch=epoch, key=key, parts=len(batches))
        last = number == len(batches) - 1
        if recipe.optimizer.sam is None:
            loss = learn(images, sync=last)
        else:
            players = player.modules.values() if player is not None else ()
            copied = images.clone() if isinstance(images, Tensor) else images  # mixup writes into its images
            passes = (partial(learn, copied, sync=False), partial(learn, images, sync=last))
            loss, above = sharpness_aware(*passes, recipe.optimizer.sam, stage.bare, players)
            loss = replace(loss, parts={**loss.parts, "sharpness": (above.total - loss.total).detach()})
        for name, value in {"loss": loss.total.detach(), **loss.parts}.items():
            figures[name] = figures.get(name, torch.zeros_like(value)) + value / len(batches)

    if player is not None:
        share_gradients(stage, player)
    if recipe.optimizer.clip_grad is not None:
        norm = accelerator.clip_grad_norm_(stage.model.parameters(), recipe.optimizer.clip_grad)
        figures["grad_norm"] = torch.as_tensor(norm)
    stage.optimizer.step()
    stage.optimizer.zero_grad()
    if player is not None:
        figures |= player.update()
    if stage.ema is not None:
        stage.ema.update(stage.bare, step=step + 1 if recipe.train.ema_warmup else None)
    return figures


def backward_pass(
    stage: TrainState, images: Any, *, targets: Any, epoch: int, key: tuple[int, ...], parts: int, sync: bool
) -> Loss:
    """Mix, objective and backward of one batch by the random numbers of ``key``; its gradients are shared or not."""
    reseed(*key)
    with nullcontext() if sync else stage.accelerator.no_sync(stage.model):
        images, targets = stage.mix(images, targets, epoch)
        with stage.accelerator.autocast():
            loss = stage.objective(stage.model, images, targets)
        stage.accelerator.backward(loss.total / parts)
    return loss


def share_gradients(stage: TrainState, player: OwnsModules) -> None:
    """Average an objective's own gradients over the processes."""
    for module in player.modules.values():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad = stage.accelerator.reduce(parameter.grad, reduction="mean")


def validate(stage: TrainState, unreadable: Unreadable) -> tuple[float, dict[str, float]]:
    """The task's first score in percent of the weights that the run will export, and of the others beside them."""
    models = [stage.bare] if stage.ema is None else [stage.ema.module, stage.bare]
    if stage.accelerator.num_processes > 1:  # every process has seen other images: average the norms' statistics
        for model in models:
            distribute_bn(model, stage.accelerator.num_processes, reduce=True)
    scores, *without_ema = [scores_of(model, stage, unreadable) for model in models]
    first = next(iter(scores.values()))
    return first, scores | {f"{name}_without_ema": value for other in without_ema for name, value in other.items()}


@torch.no_grad()
def scores_of(model: nn.Module, stage: TrainState, unreadable: Unreadable) -> dict[str, float]:
    """What the task says of a model's answers to the validation images, over all processes."""
    model.eval()
    device, task = stage.accelerator.device, stage.task
    counts = task.tally(None, None).to(device)
    for batch in stage.val_batches:
        unreadable.check(batch)
        if len(batch.images) > 0:
            with stage.accelerator.autocast():
                output = model(send_to_device(batch.images, device))
            counts = counts + task.tally(output, send_to_device(batch.targets, device))
    return task.validation_scores(stage.accelerator.reduce(counts, reduction="sum"))


def with_best(position: Position, accuracy: float) -> Position:
    """The position after an evaluation; the first of equal accuracies stays the best."""
    if position.best is not None and accuracy <= position.best:
        return position
    return replace(position, best=accuracy, best_step=position.step)


def save_all(stage: TrainState, run: RunFolder, position: Position) -> None:
    """Save a checkpoint on the main process and remove those that are no longer needed."""
    if stage.accelerator.is_main_process:
        save_checkpoint(run.checkpoints, stage.moving(), position)
        prune_all(stage, run, position)
    stage.accelerator.wait_for_everyone()


def prune_all(stage: TrainState, run: RunFolder, position: Position) -> None:
    """Remove the checkpoints that the recipe does not keep."""
    keep_every = stage.recipe.train.keep_epochs * stage.steps_per_epoch
    prune(run.checkpoints, position=position, keep_every=keep_every)


def finish(stage: TrainState, run: RunFolder, position: Position, *, journal: TrainingLogger) -> None:
    """Export the final model, and note whether all processes hold the same one, and the same players."""
    final = stage.ema.module if stage.ema is not None else stage.bare
    players = stage.objective.modules.values() if isinstance(stage.objective, OwnsModules) else ()
    states = [module.state_dict() for module in (stage.bare, *players)]
    mine = torch.tensor([int(weights_fingerprint(*states)[:15], 16)], device=stage.accelerator.device)
    everyones = stage.accelerator.gather(mine).tolist()
    if stage.accelerator.is_main_process:
        export_model(final, run.path, recipe=stage.recipe, image=stage.image, classes=stage.classes)
        if isinstance(stage.objective, OwnsModules) and "corruptor" in stage.objective.modules:
            with atomic.replace_file(run.path / "corruptor.safetensors") as unfinished:
                save_corruptor(stage.objective.modules["corruptor"], unfinished)
    turned = turned_images(stage.train_images.source) + turned_images(stage.val_images.source)
    if warning := turned_warning(turned, exif=stage.recipe.data.exif):
        journal.say(warning)
    moved = how_far(stage)
    journal.write(
        "end",
        step=position.step,
        epoch=stage.epochs - 1,
        best=position.best,
        **({"turned_images": turned} if turned else {}),
        processes=stage.accelerator.num_processes,
        processes_agree=len(set(everyones)) == 1,
        **({"moved": moved} if moved else {}),
    )
    for sentence in idle_parts(journal.lines()):
        journal.warn(sentence)


def how_far(stage: TrainState) -> dict[str, float]:
    """How far an objective's own modules are from where they began, relative to their norm."""
    shares = {}
    for name, start in stage.player_starts.items():
        now = cast(OwnsModules, stage.objective).modules[name].state_dict()
        apart = sum(float((now[key].cpu() - value).double().square().sum()) for key, value in start.items())
        shares[name] = (
            apart / max(sum(float(value.double().square().sum()) for value in start.values()), 1e-12)
        ) ** 0.5
    return shares


def learning_rate(stage: TrainState) -> float:
    """The highest one of all groups."""
    return max(group["lr"] for group in stage.optimizer.param_groups)


def describe(scores: Mapping[str, float]) -> str:
    """Scores for people."""
    return ", ".join(f"{name} {value:.2f} %" for name, value in scores.items())
