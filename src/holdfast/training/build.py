"""Builds a training run from a recipe: data, model, optimizer and objective; all errors come before the first step."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from accelerate import Accelerator
from timm.data import resolve_data_config
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.data import Source, check_same_classes, open_data, stratified_subset
from holdfast.data.class_labels import same_order
from holdfast.errors import HoldfastError, first_line
from holdfast.methods import Objective, OwnsModules, build_objective
from holdfast.runtime.device import training_modes_kept
from holdfast.tasks import Task, task_of
from holdfast.training.augment.classification import ImageFormat
from holdfast.training.checkpoint import CheckpointState
from holdfast.training.global_batch import PER_PROCESS_NOTE, share_batch, synchronize_batch_norms
from holdfast.training.initialize import ResumedRun, class_order, named_model, train_mode, with_init_settings
from holdfast.training.loader import (
    BatchRangeSampler,
    EpochSampler,
    TransformedImages,
    training_loader,
    validation_loader,
)
from holdfast.training.phases import build_adapted, phase_context
from holdfast.training.recipe import DataRecipe, OptimizerRecipe, Recipe, ScheduleRecipe
from holdfast.training.recipe_warnings import recipe_warnings
from holdfast.training.schedules import poly_schedule, segmentation_groups
from holdfast.training.seeding import Stream, seeded

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainState:
    """Model, optimizer, objective and data of a run; the first argument of the loop's functions."""

    recipe: Recipe
    task: Task
    accelerator: Accelerator
    model: nn.Module  # as accelerate wraps it
    bare: nn.Module  # the same weights, unwrapped
    ema: ModelEmaV3 | None
    optimizer: Any
    schedule: Callable[[int], None]  # sets the learning rate of a step
    objective: Objective
    mix: Callable[[Tensor, Any, int], tuple[Tensor, Any]]
    order: EpochSampler
    train_images: TransformedImages
    val_batches: DataLoader[Any]
    image: ImageFormat
    classes: tuple[str, ...]
    steps_per_epoch: int
    epochs: int
    peak_lr: float  # the highest of all parameter groups
    initial_modules: Mapping[str, Mapping[str, Tensor]]  # states of the objective's own modules before the first step

    @property
    def val_images(self) -> TransformedImages:
        """The validation images with their transform."""
        return cast(TransformedImages, self.val_batches.dataset)

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.recipe.train.steps or self.steps_per_epoch * self.epochs

    @property
    def images_per_step(self) -> int:
        """The global batch size of an optimizer step."""
        return self.order.global_batch * self.recipe.train.accumulate

    def learn(self) -> None:
        """Put the model into the mode in which it learns; what is frozen stays in evaluation mode."""
        probe = self.recipe.train.probe
        self.bare.eval() if probe is not None and probe.eval_mode else train_mode(self.bare)

    def batches_from(self, step: int) -> DataLoader[Any]:
        """The training batches from a step to the end of the run."""
        per_step = self.recipe.train.accumulate
        sampler = BatchRangeSampler(self.order, step * per_step, self.steps * per_step)
        pin = self.accelerator.device.type == "cuda"
        return training_loader(self.train_images, sampler, workers=self.recipe.data.workers, pin=pin)

    def checkpoint_state(self) -> CheckpointState:
        """The modules and optimizers that a checkpoint holds."""
        modules: dict[str, nn.Module] = {"model": self.bare}
        optimizers = {"optimizer": self.optimizer.optimizer}
        if self.ema is not None:
            modules["ema"] = self.ema.module
        if isinstance(self.objective, OwnsModules):
            modules |= {f"objective.{name}": module for name, module in self.objective.modules.items()}
            optimizers |= {f"objective.{name}.optimizer": owned for name, owned in self.objective.optimizers.items()}
        return CheckpointState(modules, optimizers, scaler=self.accelerator.scaler)


def build_training(
    recipe: Recipe, accelerator: Accelerator, *, objective: Objective | None = None, resumed: ResumedRun | None = None
) -> TrainState:
    """Open the data, build the model, its optimizer and its objective; ``resumed`` is the run to resume."""
    resumed = resumed or ResumedRun()
    train, val = open_sources(recipe.data, seed=recipe.seed, order=partial(class_order, resumed, recipe.model))
    task = task_of(train)
    if recipe.model.name is None:
        recipe = replace(recipe, model=named_model(recipe.model))
    if task.scoring.one_class and not resumed.earlier_version:
        recipe = with_init_settings(recipe)
    recipe = share_batch(recipe, accelerator.num_processes)
    order = build_order(recipe, accelerator, length=len(train))
    with seeded(Stream.WEIGHTS, recipe.seed):
        bare = task.training.build(recipe.model, classes=len(train.classes), size=recipe.data.size)
        bare = build_adapted(bare, recipe)
        image = image_format(recipe.data, bare)
        if objective is None:
            context: dict[str, Any] = {"model": bare, "size": shown_size(task, recipe, image=image, model=bare)}
            context |= {"mean": image.mean, "std": image.std}
            context |= {"task_loss": task.training.loss, "goal": task.evaluation.goal, "classes": train.classes}
            context |= phase_context(recipe)
            objective = build_objective(recipe.objective.name, recipe.objective.options, context)
    check_model(bare, image, task=task, classes=len(train.classes), data=recipe.data.train)
    if recipe.train.grad_checkpointing:
        bare.set_grad_checkpointing(True)
    if recipe.train.sync_bn and accelerator.num_processes > 1:
        bare = synchronize(bare, accelerator)
    bare.to(accelerator.device)
    ema = ModelEmaV3(bare, decay=recipe.train.ema, use_warmup=recipe.train.ema_warmup) if recipe.train.ema else None
    steps_per_epoch = order.batches_per_epoch // recipe.train.accumulate
    global_batch = order.global_batch * recipe.train.accumulate
    inner = build_optimizer(bare, recipe.optimizer, global_batch=global_batch)
    peak_lr = max(group["lr"] * group.get("lr_scale", 1.0) for group in inner.param_groups)
    length = recipe.train.steps
    epochs = recipe.train.epochs if length is None else -(-length // steps_per_epoch)
    if accelerator.is_main_process:
        known = {"steps": length or epochs * steps_per_epoch, "steps_per_epoch": steps_per_epoch}
        for sentence in recipe_warnings(recipe, train, val, **known):
            logger.warning(sentence)
    schedule, epochs = build_schedule(inner, recipe.schedule, epochs=epochs, steps=steps_per_epoch, length=length)
    if recipe.train.compile:  # after the EMA copy, which is not compiled
        bare.compile()
    model, optimizer = accelerator.prepare(bare, inner)
    if isinstance(objective, OwnsModules):
        for module in objective.modules.values():
            module.to(accelerator.device)
    vary, show = task.training.transforms(recipe.augment, image)
    return TrainState(
        recipe=recipe,
        task=task,
        accelerator=accelerator,
        model=model,
        bare=bare,
        ema=ema,
        optimizer=optimizer,
        schedule=schedule,
        objective=objective,
        mix=task.training.mixer(recipe.augment, classes=len(train.classes)),
        order=order,
        train_images=TransformedImages(train, vary, seed=recipe.seed, replace_unreadable=recipe.data.skip_bad),
        val_batches=build_validation(recipe, accelerator, images=TransformedImages(val, show, seed=recipe.seed)),
        image=image,
        classes=train.classes,
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        peak_lr=peak_lr,
        initial_modules=initial_modules(objective),
    )


def synchronize(model: nn.Module, accelerator: Accelerator) -> nn.Module:
    """The model with synchronised batch norms where they work, which is on CUDA."""
    if accelerator.device.type == "cuda":
        return synchronize_batch_norms(model)
    if accelerator.is_main_process:
        logger.warning(PER_PROCESS_NOTE)
    return model


def initial_modules(objective: Objective) -> dict[str, dict[str, Tensor]]:
    """Copies of the initial states of an objective's own modules."""
    modules = objective.modules if isinstance(objective, OwnsModules) else {}
    return {
        name: {key: value.detach().cpu().clone() for key, value in module.state_dict().items()}
        for name, module in modules.items()
    }


@torch.no_grad()
def check_model(model: nn.Module, image: ImageFormat, *, task: Task, classes: int, data: str) -> None:
    """Raise an error for a model that fails on the recipe's images or has other classes, before anything is written."""
    try:
        with training_modes_kept(model):
            answer = model.eval()(torch.zeros(1, 3, image.size, image.size))
    except HoldfastError:
        raise
    except Exception as error:  # a user's model may raise anything for an unsuitable input
        reason = first_line(error)
        raise HoldfastError(
            f"the model fails on images of {image.size}×{image.size} ({reason}); set data.size"
        ) from error
    task.evaluation.check_model({"": answer}, classes=classes, restricted=False, data=data)


def open_sources(
    recipe: DataRecipe, *, seed: int, order: Callable[[Source], tuple[str, ...] | None] | None = None
) -> tuple[Source, Source]:
    """The training and validation data of a recipe, with the same classes; ``order`` may fix the order of classes."""
    train = open_data(recipe.train, split="train", download=recipe.download, exif=recipe.exif)
    val = open_data(recipe.val, split="val", download=recipe.download, exif=recipe.exif)
    if task_of(train) is not task_of(val):
        names = f"{task_of(train).name} and {task_of(val).name}"
        raise HoldfastError(f"data.train and data.val must be of one task, got {names}")
    check_same_classes(train, val)
    classes = order(train) if order is not None and task_of(train).scoring.one_class else None
    if classes is not None and len(classes) == len(train.classes):
        train, val = same_order(train, val, classes)
    if recipe.train_subset is not None:
        train = stratified_subset(train, recipe.train_subset, seed=seed)
    if recipe.val_subset is not None:
        val = stratified_subset(val, recipe.val_subset, seed=seed)
    return train, val


def build_order(recipe: Recipe, accelerator: Accelerator, *, length: int) -> EpochSampler:
    """The sampler of this process for ``length`` images."""
    return EpochSampler(
        length,
        batch_size=recipe.train.batch_size,
        accumulate=recipe.train.accumulate,
        processes=accelerator.num_processes,
        rank=accelerator.process_index,
        seed=recipe.seed,
        repeats=recipe.augment.repeats,
    )


def build_validation(recipe: Recipe, accelerator: Accelerator, *, images: TransformedImages) -> DataLoader[Any]:
    """The validation images of this process."""
    return validation_loader(
        images,
        batch_size=recipe.train.batch_size if images.task.evaluation.batched else 1,
        processes=accelerator.num_processes,
        rank=accelerator.process_index,
        workers=recipe.data.workers,
        pin=accelerator.device.type == "cuda",
    )


def shown_size(task: Task, recipe: Recipe, *, image: ImageFormat, model: nn.Module) -> tuple[int, int] | None:
    """Height and width of the training images; None if they differ."""
    return task.training.shown_size(recipe.augment, image, model)


def image_format(recipe: DataRecipe, model: nn.Module) -> ImageFormat:
    """The model's input format, with the recipe's overrides."""
    cfg = resolve_data_config(model=model)
    return ImageFormat(
        size=recipe.size or cfg["input_size"][-1],
        mean=tuple(recipe.mean or cfg["mean"]),
        std=tuple(recipe.std or cfg["std"]),
        interpolation=cfg["interpolation"],
        crop_pct=recipe.crop_pct or cfg["crop_pct"],
    )


def build_optimizer(model: nn.Module, recipe: OptimizerRecipe, *, global_batch: int) -> torch.optim.Optimizer:
    """timm's optimizer by name; biases, 1-D weights and ``model.no_weight_decay()`` are exempt from weight decay."""
    lr = recipe.lr * global_batch / recipe.lr_base_batch if recipe.lr_base_batch else recipe.lr
    trained: Any = model
    if recipe.groups == "segmentation":
        trained = segmentation_groups(model.named_parameters(), lr=lr, weight_decay=recipe.weight_decay)
    try:
        optimizer = create_optimizer_v2(
            trained,
            opt=recipe.name,
            lr=lr,
            weight_decay=recipe.weight_decay,
            layer_decay=recipe.layer_decay,
            **recipe.options,
        )
    except (ValueError, TypeError, AssertionError) as error:
        raise HoldfastError(f"optimizer {recipe.name!r} cannot be built with these options ({error})") from error
    for part, factor in recipe.lr_factors.items():
        _set_rate(optimizer, model, part, lr=lr * factor)
    return optimizer


def _set_rate(optimizer: torch.optim.Optimizer, model: nn.Module, part: str, *, lr: float) -> None:
    """Move the parameters of the modules of this name into groups of their own, with one learning rate."""
    inside = {id(value) for name, value in model.named_parameters() if f".{part}." in f".{name}."}
    if not inside:
        raise HoldfastError(f"optimizer.lr_factors must name modules of the model, which has no {part!r}")
    for group in optimizer.param_groups.copy():
        chosen = [value for value in group["params"] if id(value) in inside]
        group["params"] = [value for value in group["params"] if id(value) not in inside]
        if chosen:
            optimizer.param_groups.append({**group, "params": chosen, "lr": lr, "lr_scale": 1.0})
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def build_schedule(
    optimizer: torch.optim.Optimizer, recipe: ScheduleRecipe, *, epochs: int, steps: int, length: int | None = None
) -> tuple[Callable[[int], None], int]:
    """A stateless function that sets the learning rate of a step, and the number of epochs with the cool-down.

    ``length`` is the length of the run in steps if it is not in whole epochs.
    """
    if recipe.shape == "poly":
        return poly_schedule(optimizer, steps=length or epochs * steps, warmup=recipe.warmup_steps), epochs
    scheduler, total_epochs = create_scheduler_v2(
        optimizer,
        sched="multistep" if recipe.drops else "cosine",
        decay_milestones=recipe.drops,
        decay_rate=0.1,
        num_epochs=epochs,
        warmup_epochs=recipe.warmup_epochs,  # type: ignore[arg-type]  # fractions of an epoch work as well
        warmup_lr=recipe.warmup_lr,
        min_lr=recipe.min_lr,
        cooldown_epochs=recipe.cooldown_epochs,
        step_on_epochs=recipe.every == "epoch",
        updates_per_epoch=steps,
    )
    if recipe.every == "epoch":
        return (lambda step: scheduler.step(step // steps)), total_epochs
    return scheduler.step_update, total_epochs
