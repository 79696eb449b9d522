"""Values that no run can have, said before anything is opened. Without torch."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from holdfast.errors import HoldfastError
from holdfast.training.recipe import Recipe


class Rule(NamedTuple):
    """What a value must be, in code and in words."""

    holds: Callable[[Any], bool]
    words: str


AT_LEAST_0 = Rule(lambda value: value >= 0, "at least 0")
AT_LEAST_1 = Rule(lambda value: value >= 1, "at least 1")
POSITIVE = Rule(lambda value: value > 0, "above 0")
PROBABILITY = Rule(lambda value: 0 <= value <= 1, "between 0 and 1")
BELOW_1 = Rule(lambda value: 0 <= value < 1, "at least 0 and below 1")
SHARE = Rule(lambda value: 0 < value <= 1, "above 0 and at most 1")
RANGE = Rule(lambda value: 0 < value[0] <= value[1], "two positive numbers, the smaller one first")

SIDE = Rule(lambda value: 1 <= value <= 4096, "from 1 to 4096 pixels")
DEVIATIONS = Rule(lambda values: all(value > 0 for value in values), "three numbers above 0")
FACTORS = Rule(lambda values: all(value > 0 for value in values.values()), "numbers above 0 by names of parts")
PROBABILITIES = Rule(lambda values: all(0 <= value <= 1 for value in values), "a list of weights between 0 and 1")

RULES: dict[str, Rule] = {
    "seed": AT_LEAST_0,
    "data.size": SIDE,
    "data.std": DEVIATIONS,
    "data.crop_pct": SHARE,
    "data.workers": AT_LEAST_0,
    "augment.scale": RANGE,
    "augment.ratio": RANGE,
    "augment.pad": AT_LEAST_0,
    "augment.hflip": PROBABILITY,
    "augment.vflip": PROBABILITY,
    "augment.erasing": PROBABILITY,
    "augment.mixup": AT_LEAST_0,
    "augment.cutmix": AT_LEAST_0,
    "augment.mix_probability": PROBABILITY,
    "augment.mix_switch": PROBABILITY,
    "augment.mix_off_epoch": AT_LEAST_0,
    "augment.smoothing": BELOW_1,
    "augment.repeats": AT_LEAST_1,
    "augment.object_crop": PROBABILITY,
    "augment.object_crop_sides": RANGE,
    "optimizer.lr": POSITIVE,
    "optimizer.lr_base_batch": AT_LEAST_1,
    "optimizer.weight_decay": AT_LEAST_0,
    "optimizer.layer_decay": SHARE,
    "optimizer.lr_factors": FACTORS,
    "optimizer.clip_grad": POSITIVE,
    "schedule.warmup_epochs": AT_LEAST_0,
    "schedule.warmup_lr": AT_LEAST_0,
    "schedule.min_lr": AT_LEAST_0,
    "schedule.cooldown_epochs": AT_LEAST_0,
    "schedule.warmup_steps": AT_LEAST_0,
    "train.epochs": AT_LEAST_1,
    "train.steps": AT_LEAST_1,
    "train.batch_size": AT_LEAST_1,
    "train.accumulate": AT_LEAST_1,
    "train.ema": BELOW_1,
    "train.checkpoint_steps": AT_LEAST_0,
    "train.keep_epochs": AT_LEAST_0,
    "train.eval_epochs": AT_LEAST_1,
    "train.log_steps": AT_LEAST_1,
    "train.phases.weights": PROBABILITIES,
    "train.phases.first_epochs": AT_LEAST_1,
}


# what the data, the loop or model.init decide
NOT_IN_KWARGS = ("num_classes", "pretrained", "checkpoint_path", "pretrained_cfg")
COUNTS = ("depth", "embed_dim", "num_heads", "patch_size")


def check_values(recipe: Recipe) -> None:
    """Refuse the first value that breaks a rule."""
    _check_given(recipe)
    _check_finite("", dataclasses.asdict(recipe))
    _check_kwargs(recipe.model.kwargs)
    for path, rule in RULES.items():
        value: Any = recipe
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None and not rule.holds(value):
            raise HoldfastError(f"{path} must be {rule.words}, got {value}")
    detector, objective = recipe.model.name == "detector", recipe.objective.name
    if (objective == "detection" and not detector) or (detector and objective not in ("detection", "robust")):
        raise HoldfastError(
            "objective.name detection and model.name detector belong together (robust does as well), "
            "got one without the other"
        )
    if recipe.model.init_weights != "auto" and (recipe.model.init or "timm:").startswith("timm:"):
        raise HoldfastError(
            f"model.init_weights chooses among the weights of a file or run (--init FILE or run:DIR), got "
            f"{recipe.model.init_weights!r} with init {recipe.model.init}"
        )
    if recipe.model.adapt is not None and recipe.model.init is None:
        raise HoldfastError("model.init must say which pretrained model is adapted (--init), got null")
    if recipe.train.phases is not None and recipe.model.adapt is None:
        raise HoldfastError("train.phases belongs to a recipe with model.adapt, got one without")
    mixes = recipe.augment.mixup > 0 or recipe.augment.cutmix > 0
    if mixes and recipe.train.batch_size % 2:
        raise HoldfastError(f"train.batch_size must be even for mixup and cutmix, got {recipe.train.batch_size}")


def _check_given(part: Any, path: str = "") -> None:
    """Refuse null where a value must be: the parser lets it pass."""
    hints = get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value, name = getattr(part, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            _check_given(value, f"{name}.")
        elif value is None and hints[field.name] is not Any and NoneType not in get_args(hints[field.name]):
            raise HoldfastError(f"{name} must have a value, got null; leave it out for its default")


def _check_finite(path: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_finite(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_finite(path, inner)
    elif isinstance(value, float) and not math.isfinite(value):
        raise HoldfastError(f"{path} must be a finite number, got {value}")


def _check_kwargs(kwargs: Mapping[str, Any]) -> None:
    for name, value in kwargs.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name in NOT_IN_KWARGS:
            raise HoldfastError(
                f"model.kwargs must not hold {name!r}, which the data and model.init decide, got {value}"
            )
        if name.endswith("_rate") and not (number and 0 <= value < 1):
            raise HoldfastError(f"model.kwargs: {name} must be at least 0 and below 1, got {value}")
        if name in COUNTS and ((number and value < 1) or isinstance(value, str)):
            raise HoldfastError(f"model.kwargs: {name} must be at least 1, got {value}")
