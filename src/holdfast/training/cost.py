"""What a recipe costs on GPUs: FLOPs and memory counted on torch's meta device, hours estimated from them.

Nothing is computed and no weights are loaded. The hours assume the share of an A100's peak that training reaches, the
memory leaves out what libraries and fragmentation take: both are estimates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models import create_model
from holdfast.models.segmenter import segmenter
from holdfast.models.tora import tora
from holdfast.training.global_batch import share_batch
from holdfast.training.initialize import size_argument
from holdfast.training.recipe import Recipe

HALF_RATE, FULL_RATE = 0.25 * 312e12, 0.6 * 19.5e12  # FLOP per second of an A100: tensor cores, and without them
HALF_SIZE = 0.55  # of the activations that mixed precision keeps; norms and losses stay in full precision
GPUS = 8
TRAINING_IMAGES = {  # of the official sets; what is not here is somebody's own
    "imagenet": 1_281_167,
    "imagenet22k": 14_197_122,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "cityscapes": 2_975,
    "coco": 118_287,
    "camvid": 367,
}


@dataclass(frozen=True)
class RunCost:
    """What a run costs: FLOPs of all of it, bytes per GPU while ``gpus`` of them share a step, hours of one A100."""

    parameters: int
    flops: float
    memory: float
    hours: float
    gpus: int


def recipe_cost(recipe: Recipe, family: str, *, gpus: int = GPUS) -> RunCost | None:
    """Count a recipe; ``family`` is the set that it is for. None where the set is the user's own."""
    if family not in TRAINING_IMAGES:
        return None
    shared = share_batch(recipe, gpus).train
    with torch.device("meta"):
        look = _look(recipe)
        flops, kept, parameters, learning = _count(look)
    passes = forward_passes(recipe)
    total = flops * passes * _images(recipe, family)
    half = recipe.train.precision != "no"
    views = 2 if _options(recipe, "afat") is not None or recipe.model.adapt is not None else 1
    activations = kept * (HALF_SIZE if half else 1) * shared.batch_size * views
    states = 4 * parameters + 12 * learning + (4 * parameters if recipe.train.ema else 0)
    return RunCost(parameters, total, activations + states, total / (HALF_RATE if half else FULL_RATE) / 3600, gpus)


def forward_passes(recipe: Recipe) -> float:
    """How many forward passes a training image costs, a backward pass counted as two."""
    if recipe.model.adapt is not None:  # through the frozen model gradients pass, but none of its weights has one
        return 2 * (int(recipe.objective.options.get("steps", 5)) + 2)
    passes, views = 3.0, 1
    if (afat := _options(recipe, "afat")) is not None:
        passes, views = 6.0 + (afat.get("selection") == "attention"), 2
    if (patches := _options(recipe, "patches")) is not None:
        passes += views * (1 if patches.get("discard_gradient") else 3)
    if (attack := _options(recipe, "adversarial")) is not None:
        passes += 3 + 3 * int(attack.get("steps", 1))
    return passes


def _options(recipe: Recipe, term: str) -> dict[str, Any] | None:
    return recipe.objective.options.get(term)


def _images(recipe: Recipe, family: str) -> float:
    """Training images of the whole run, cool-down and phases included."""
    if recipe.train.steps is not None:
        return recipe.train.steps * (recipe.train.global_batch or recipe.train.batch_size)
    epochs = recipe.train.epochs + recipe.schedule.cooldown_epochs
    if recipe.model.adapt is not None:
        phases = recipe.train.phases
        first = (phases.first_epochs if phases and phases.first_epochs else recipe.train.epochs) * 2
        epochs = first + recipe.train.epochs * len((phases and phases.weights) or [0.5])
    return epochs * TRAINING_IMAGES[family] * (1 + recipe.data.train.count("+"))


@dataclass(frozen=True)
class _Look:
    """A model and what shows it an image."""

    model: nn.Module
    forward: Callable[[], Any]


def _look(recipe: Recipe) -> _Look:
    """The recipe's model, and a pass of one image through it as in training."""
    kwargs = dict(recipe.model.kwargs)
    if recipe.model.name == "detector":
        return _detector_look(recipe)
    if "head" in kwargs:
        crop = (recipe.augment.joint or {}).get("crop", (512, 512))
        model: nn.Module = segmenter(str(recipe.model.name), **kwargs)
        height, width = crop
    else:
        size = size_argument(str(recipe.model.name), recipe.data.size)
        model = create_model(str(recipe.model.name), **kwargs, **size)
        height = width = recipe.data.size or 224
    if recipe.model.adapt is not None:
        model = tora(model, **recipe.model.adapt.options)
    if recipe.train.grad_checkpointing:
        model.set_grad_checkpointing(True)
    image = torch.zeros(2, 3, height, width)
    return _Look(model.train(), lambda: model(image))


def _detector_look(recipe: Recipe) -> _Look:
    """Backbone, the proposals' head, and the heads of as many regions as training samples."""
    kwargs = dict(recipe.model.kwargs)
    model: Any = create_model("detector", num_classes=80, **kwargs).train()
    if recipe.train.grad_checkpointing:
        model.set_grad_checkpointing(True)
    sides = kwargs.get("min_size", 800)
    short = sum(sides) / len(sides) if isinstance(sides, list | tuple) else sides
    shape = 1 if kwargs.get("square") else 4 / 3  # most images of COCO are so much wider
    height, width = kwargs.get("fixed_size") or (int(side / 32 + 0.5) * 32 for side in (short, short * shape))
    image = torch.zeros(2, 3, height, width)
    samples = int(kwargs.get("samples", 512))

    def forward() -> list[Tensor]:
        maps = list(model.backbone(image).values())
        seen = [part for output in model.rpn.head(maps) for part in output]
        boxes = torch.zeros(2 * samples, maps[0].shape[1], 7, 7)
        objects = torch.zeros(samples // 2, maps[0].shape[1], 14, 14)  # a quarter of the samples has one
        for stage in model.roi_heads.stages:
            seen.extend(stage.box_predictor(stage.box_head(boxes)))
            if getattr(stage, "mask_head", None) is not None:
                seen.append(stage.mask_predictor(stage.mask_head(objects)))
        return seen

    return _Look(model, forward)


def _count(look: _Look) -> tuple[float, float, int, int]:
    """FLOPs and kept bytes of one image in a forward pass, and the parameters, all and those that learn."""
    parameters = [(value.numel(), value.requires_grad) for value in look.model.parameters()]
    weights = {value.untyped_storage()._cdata for value in look.model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
            alive.append(storage)  # so that no other one gets its address
        return tensor

    alive: list[Any] = []
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        look.forward()
    everything = sum(count for count, _ in parameters)
    learning = sum(count for count, learns in parameters if learns)
    return counter.get_total_flops() / 2, sum(kept.values()) / 2, everything, learning


def cost_lines(name: str, recipe: Recipe, *, gpus: int = GPUS) -> list[str]:
    """The lines of a shipped recipe's header that say how its step is shared and what it costs."""
    cost = recipe_cost(recipe, name.partition("/")[0], gpus=gpus)
    if cost is None:
        return []
    train = share_batch(recipe, gpus).train
    passes = f"{train.accumulate} passes" if train.accumulate > 1 else "1 pass"
    step = train.batch_size * train.accumulate * gpus
    batch = f"# batch: {step} images a step, on {gpus} GPUs in {passes} of {train.batch_size} each"
    exa, memory, hours = cost.flops / 1e18, cost.memory / 1e9, cost.hours
    counted = f"{exa:.3g} exaFLOP, {memory:.1f} GB per GPU, {hours:,.0f} A100 hours"
    return [batch, f"# cost: {counted} (counted and estimated: docs/reproduce.md; not run by us)"]
