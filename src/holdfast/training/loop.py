"""The training loop, on Hugging Face accelerate; `train_step` holds everything that happens in a step."""

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
from holdfast.data.factory import register_sources
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
from holdfast.training.logger import Meter, TrainingLogger
from holdfast.training.mix import mix_run
from holdfast.training.phases import PhaseRun, parts_of, phase_notes
from holdfast.training.probe_phase import after_probe, probe_run
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import flat_values, load_recipe, merge, to_yaml
from holdfast.training.run_folder import RunFolder, check_free, export_model, write_config
from holdfast.training.sam import sharpness_aware
from holdfast.training.seeding import Stream, reseed, seeded

logger = logging.getLogger(__name__)

LEFT_BEHIND = "the last checkpoint is kept: resume with --resume and a number of processes that divides a step's images"


@dataclass(frozen=True)
class TrainingResult:
    """Result of a run: folder, steps done, last and best clean accuracy (%), and the signal that stopped it, if any."""

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
        resume: continue from the run's last checkpoint, if there is one; the result is that of an uninterrupted run.
        objective: the training objective, instead of the recipe's.
        data: training and validation data, instead of the recipe's, each in a form that ``holdfast.evaluate`` takes.
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
        state = build_training(shared, accelerator, objective=objective, resumed=run.resumed if resume else None)
        accelerator.wait_for_everyone()  # all processes check the folder before one writes into it
        if accelerator.is_main_process:
            for_the_run.enter_context(run.locked(recipe, resume=resume))
            for path in repair(run.checkpoints):
                logger.warning("a damaged checkpoint was renamed to %s; resuming from the one before", path)
            if recipe.model.adapt is None:  # needed to load a checkpoint before the run has finished
                write_config(state.bare, run.checkpoints, recipe=state.recipe, image=state.image, classes=state.classes)
        accelerator.wait_for_everyone()
        position = restore_checkpoint(run.checkpoints, state.checkpoint_state()) if resume else Position()
        position = replace(position, images_per_step=state.images_per_step)
        if accelerator.is_main_process and position.step:  # a run may have been killed between saving and pruning
            prune_all(state, run, position)
        if recipe.train.trackers:
            accelerator.init_trackers("holdfast", config=flat_values(recipe))
        way_on = "the last checkpoint is kept: resume with --resume, with fewer --data.workers if necessary"
        with (
            TrainingLogger(accelerator, run.path, steps=state.steps, show=show, header=_header(state)) as journal,
            StopRequest() as stop,
            worker_deaths(way_on=way_on),
            peer_deaths(accelerator.num_processes, way_on=LEFT_BEHIND),
        ):
            journal.continue_from(position.step)
            if started.model.init is not None and not position.step:
                journal.say(described_start(started.model))
            return run_steps(state, run, position, journal=journal, stop=stop)


def _without_steps(recipe: Recipe, out: Path, *, resume: bool) -> TrainingResult:
    """A mixture of finished models, or a linear probe: one process makes them at once."""
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


def _header(state: TrainState) -> str:
    """One line about the run, for output without a progress bar."""
    recipe = state.recipe
    epochs = f"{state.epochs} epoch{'' if state.epochs == 1 else 's'}"
    counts = f"{len(state.train_images)} images, {epochs}, {state.steps} steps of {state.images_per_step}"
    rate = f"peak learning rate {state.peak_lr:.3g}"
    what = f"{recipe.model.name}{_phase(recipe)} on {recipe.data.train}"
    return f"training {what}: {counts}, {rate}, on {state.accelerator.device}"


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
        raise HoldfastError(f"data must be a pair, training and validation data, got {type(data).__name__}")
    sources = [
        open_data(each, split=split) if isinstance(each, str) else as_source(each)
        for each, split in zip(data, ("train", "val"), strict=True)
    ]
    with register_sources(*sources) as specs:
        yield specs


def train_parts(recipe: Recipe, out: Path, parts: list[PhaseRun], *, resume: bool, show: bool | None) -> TrainingResult:
    """Train every phase and weight of a recipe, one run after another; finished ones are skipped."""
    whole = RunFolder(out)
    if whole.recipe.exists() and not resume:
        raise HoldfastError(f"{str(out)!r} already holds a run; add --resume or choose another --out")
    for part in parts:
        RunFolder(part.folder).check(part.recipe, resume=resume)
    results: list[TrainingResult] = []
    with engine(recipe.train, folder=out) as accelerator:  # one group of processes for all parts
        for part in parts:
            results.append(train(part.recipe, out=part.folder, resume=resume, show=show))
            accelerator.wait_for_everyone()  # until the weights that the next part starts from are written
            if accelerator.is_main_process:  # after the first part has checked data and model
                atomic.write_text(whole.recipe, to_yaml(recipe))
            if results[-1].stopped_by:
                break
    return replace(results[-1], step=sum(result.step for result in results))


def run_steps(
    state: TrainState, run: RunFolder, position: Position, *, journal: TrainingLogger, stop: StopRequest
) -> TrainingResult:
    """Run all steps from ``position`` to the end of the run, or until a signal."""
    recipe, accelerator = state.recipe.train, state.accelerator
    alone = accelerator.num_processes == 1
    # reading the loss waits for the device, and agreeing on signals waits for the other processes
    look_every = 1 if alone and accelerator.device.type == "cpu" else recipe.log_steps
    meter, unreadable = Meter(accelerator), Unreadable(accelerator, skip=state.recipe.data.skip_bad)
    batches = iter(state.batches_from(position.step))
    accuracy: float | None = None
    state.learn()

    for step in range(position.step, state.steps):
        epoch, done = step // state.steps_per_epoch, step + 1
        state.schedule(step)
        step_batches = [unreadable.check(next(batches)) for _ in range(recipe.accumulate)]
        meter.add(train_step(state, step_batches, step=step, epoch=epoch))
        journal.advance(epoch)

        position = replace(position, step=done)
        ends_epoch = done % state.steps_per_epoch == 0 or done == state.steps
        look = ends_epoch or done % look_every == 0
        signal = stop.signal_on_any_process(accelerator) if look or alone else 0
        save = ends_epoch or bool(signal) or bool(recipe.checkpoint_steps and done % recipe.checkpoint_steps == 0)
        if look or save:
            meter.check_finite(step=done, folder=run.checkpoints)
        if ends_epoch or done % recipe.log_steps == 0:
            figures = meter.read(images_per_step=state.images_per_step)
            journal.write("step", step=done, epoch=epoch, lr=learning_rate(state), **figures)
        if ends_epoch and ((epoch + 1) % recipe.eval_epochs == 0 or done == state.steps):
            accuracy, scores = validate(state, unreadable)
            position = with_best(position, accuracy)
            journal.write("epoch", step=done, epoch=epoch, **scores, **unreadable.summary())
            journal.say(f"epoch {epoch}: {describe(scores)}")
            meter = Meter(accelerator)  # restarts its clock, so that throughput excludes validation
            state.learn()
        if save:
            save_all(state, run, position)
        if signal and done < state.steps:
            return TrainingResult(run.path, done, accuracy, position.best, stopped_by=signal)

    finish(state, run, position, journal=journal)
    return TrainingResult(run.path, position.step, accuracy, position.best)


def train_step(state: TrainState, batches: list[Batch], *, step: int, epoch: int) -> dict[str, Tensor]:
    """One optimizer step: mixup, objective, backward, gradient clipping, step, EMA. Returns values for the log."""
    accelerator, recipe = state.accelerator, state.recipe
    figures: dict[str, Tensor] = {}
    owner = state.objective if isinstance(state.objective, OwnsModules) else None
    for number, batch in enumerate(batches):
        images = send_to_device(batch.images, accelerator.device, non_blocking=True)
        targets = send_to_device(batch.targets, accelerator.device, non_blocking=True)
        key = (Stream.STEP, recipe.seed, step, number, accelerator.process_index)
        learn = partial(backward_pass, state, targets=targets, epoch=epoch, key=key, parts=len(batches))
        last = number == len(batches) - 1
        if recipe.optimizer.sam is None:
            loss = learn(images, sync=last)
        else:
            owned = owner.modules.values() if owner is not None else ()
            copied = images.clone() if isinstance(images, Tensor) else images  # mixup writes into its images
            passes = (partial(learn, copied, sync=False), partial(learn, images, sync=last))
            loss, above = sharpness_aware(*passes, recipe.optimizer.sam, state.bare, owned)
            loss = replace(loss, parts={**loss.parts, "sharpness": (above.total - loss.total).detach()})
        for name, value in {"loss": loss.total.detach(), **loss.parts}.items():
            figures[name] = figures.get(name, torch.zeros_like(value)) + value / len(batches)

    if owner is not None:
        share_gradients(state, owner)
    # the model's gradients only: the objective's own modules clip theirs, with other limits (AFAT: 5)
    if recipe.optimizer.clip_grad is not None:
        norm = accelerator.clip_grad_norm_(state.model.parameters(), recipe.optimizer.clip_grad)
        figures["grad_norm"] = torch.as_tensor(norm)
    state.optimizer.step()
    state.optimizer.zero_grad()
    if owner is not None:
        figures |= owner.update()
    if state.ema is not None:
        state.ema.update(state.bare, step=step + 1 if recipe.train.ema_warmup else None)
    return figures


def backward_pass(
    state: TrainState, images: Any, *, targets: Any, epoch: int, key: tuple[int, ...], parts: int, sync: bool
) -> Loss:
    """Mix, objective and backward of one batch by the random numbers of ``key``; its gradients are shared or not."""
    reseed(*key)  # keyed by step and process, so that mixup and drop-path are the same after a resume
    with nullcontext() if sync else state.accelerator.no_sync(state.model):
        images, targets = state.mix(images, targets, epoch)
        with state.accelerator.autocast():
            loss = state.objective(state.model, images, targets)
        state.accelerator.backward(loss.total / parts)
    return loss


def share_gradients(state: TrainState, owner: OwnsModules) -> None:
    """Average the gradients of an objective's own modules over the processes."""
    for module in owner.modules.values():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad = state.accelerator.reduce(parameter.grad, reduction="mean")


def validate(state: TrainState, unreadable: Unreadable) -> tuple[float, dict[str, float]]:
    """The task's first score (%) of the weights to be exported, and the scores of these and of the raw weights."""
    models = [state.bare] if state.ema is None else [state.ema.module, state.bare]
    if state.accelerator.num_processes > 1:  # average BatchNorm's statistics, since each process saw other images
        for model in models:
            distribute_bn(model, state.accelerator.num_processes, reduce=True)
    scores, *without_ema = [scores_of(model, state, unreadable) for model in models]
    first = next(iter(scores.values()))
    return first, scores | {f"{name}_without_ema": value for other in without_ema for name, value in other.items()}


@torch.no_grad()
def scores_of(model: nn.Module, state: TrainState, unreadable: Unreadable) -> dict[str, float]:
    """The task's scores of a model on the validation images, over all processes."""
    model.eval()
    device, task = state.accelerator.device, state.task
    counts = task.training.tally(None, None).to(device)
    for batch in state.val_batches:
        unreadable.check(batch)
        if len(batch.images) > 0:
            with state.accelerator.autocast():
                output = model(send_to_device(batch.images, device))
            counts = counts + task.training.tally(output, send_to_device(batch.targets, device))
    return task.training.validation_scores(state.accelerator.reduce(counts, reduction="sum"))


def with_best(position: Position, accuracy: float) -> Position:
    """The position after a validation; of equal accuracies the first stays the best."""
    if position.best is not None and accuracy <= position.best:
        return position
    return replace(position, best=accuracy, best_step=position.step)


def save_all(state: TrainState, run: RunFolder, position: Position) -> None:
    """Save a checkpoint on the main process and remove obsolete ones."""
    if state.accelerator.is_main_process:
        save_checkpoint(run.checkpoints, state.checkpoint_state(), position)
        prune_all(state, run, position)
    state.accelerator.wait_for_everyone()


def prune_all(state: TrainState, run: RunFolder, position: Position) -> None:
    """Remove the checkpoints that the recipe does not keep."""
    keep_every = state.recipe.train.keep_epochs * state.steps_per_epoch
    prune(run.checkpoints, position=position, keep_every=keep_every)


def finish(state: TrainState, run: RunFolder, position: Position, *, journal: TrainingLogger) -> None:
    """Export the final model, and log whether all processes hold the same model and objective's modules."""
    final = state.ema.module if state.ema is not None else state.bare
    players = state.objective.modules.values() if isinstance(state.objective, OwnsModules) else ()
    states = [module.state_dict() for module in (state.bare, *players)]
    mine = torch.tensor([int(weights_fingerprint(*states)[:15], 16)], device=state.accelerator.device)
    everyones = state.accelerator.gather(mine).tolist()
    if state.accelerator.is_main_process:
        export_model(final, run.path, recipe=state.recipe, image=state.image, classes=state.classes)
        if isinstance(state.objective, OwnsModules) and "corruptor" in state.objective.modules:
            with atomic.replace_file(run.path / "corruptor.safetensors") as unfinished:
                save_corruptor(state.objective.modules["corruptor"], unfinished)
    turned = turned_images(state.train_images.source) + turned_images(state.val_images.source)
    if warning := turned_warning(turned, exif=state.recipe.data.exif):
        journal.say(warning)
    moved = relative_change(state)
    journal.write(
        "end",
        step=position.step,
        epoch=state.epochs - 1,
        best=position.best,
        **({"turned_images": turned} if turned else {}),
        processes=state.accelerator.num_processes,
        processes_agree=len(set(everyones)) == 1,
        **({"moved": moved} if moved else {}),
    )
    for sentence in idle_parts(journal.lines()):
        journal.warn(sentence)


def relative_change(state: TrainState) -> dict[str, float]:
    """The distance of an objective's own modules from their initial weights, relative to the norm of those."""
    changes = {}
    for name, start in state.initial_modules.items():
        now = cast(OwnsModules, state.objective).modules[name].state_dict()
        distance = sum(float((now[key].cpu() - value).double().square().sum()) for key, value in start.items())
        changes[name] = (
            distance / max(sum(float(value.double().square().sum()) for value in start.values()), 1e-12)
        ) ** 0.5
    return changes


def learning_rate(state: TrainState) -> float:
    """The highest learning rate of all parameter groups."""
    return max(group["lr"] for group in state.optimizer.param_groups)


def describe(scores: Mapping[str, float]) -> str:
    """The scores as one line of text."""
    return ", ".join(f"{name} {value:.2f} %" for name, value in scores.items())
