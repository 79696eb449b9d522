"""Recipe files: YAML recipes are found by name, read, overridden, checked, written and compared here, without torch."""

import dataclasses
import math
import os
import re
import typing
from argparse import ArgumentError
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentParser

from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import refusal
from holdfast.io.yaml import SCIENTIFIC, read_yaml
from holdfast.training.recipe import Recipe


class RecipeRule(NamedTuple):
    """A rule for a value, as a function and in words."""

    holds: Callable[[Any], bool]
    words: str


AT_LEAST_0 = RecipeRule(lambda value: value >= 0, "at least 0")
AT_LEAST_1 = RecipeRule(lambda value: value >= 1, "at least 1")
POSITIVE = RecipeRule(lambda value: value > 0, "above 0")
PROBABILITY = RecipeRule(lambda value: 0 <= value <= 1, "between 0 and 1")
BELOW_1 = RecipeRule(lambda value: 0 <= value < 1, "at least 0 and below 1")
SHARE = RecipeRule(lambda value: 0 < value <= 1, "above 0 and at most 1")
RANGE = RecipeRule(lambda value: 0 < value[0] <= value[1], "two positive numbers, the smaller one first")

SIDE = RecipeRule(lambda value: 1 <= value <= 4096, "from 1 to 4096 pixels")
DEVIATIONS = RecipeRule(lambda values: all(value > 0 for value in values), "three numbers above 0")
FACTORS = RecipeRule(lambda values: all(value > 0 for value in values.values()), "numbers above 0 by names of parts")
PROBABILITIES = RecipeRule(lambda values: all(0 <= value <= 1 for value in values), "a list of weights between 0 and 1")

RULES: dict[str, RecipeRule] = {
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
    "train.global_batch": AT_LEAST_1,
    "train.ema": BELOW_1,
    "train.checkpoint_steps": AT_LEAST_0,
    "train.keep_epochs": AT_LEAST_0,
    "train.eval_epochs": AT_LEAST_1,
    "train.log_steps": AT_LEAST_1,
    "train.phases.weights": PROBABILITIES,
    "train.phases.first_epochs": AT_LEAST_1,
    "optimizer.sam.rho": AT_LEAST_0,
    "optimizer.sam.eta": AT_LEAST_0,
    "train.probe.images": AT_LEAST_1,
    "model.mix.alpha": PROBABILITY,
    "model.mix.images": AT_LEAST_1,
}


# arguments that come from the data, the loop or model.init
NOT_IN_KWARGS = ("num_classes", "pretrained", "checkpoint_path", "pretrained_cfg")
COUNTS = ("depth", "embed_dim", "num_heads", "patch_size")


def check_values(recipe: Recipe) -> None:
    """Raise an error for the first value that breaks a rule."""
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
            "objective.name detection (or robust) and model.name detector must be used together, "
            "got one without the other"
        )
    if recipe.model.init_weights != "auto" and (recipe.model.init or "timm:").startswith("timm:"):
        raise HoldfastError(
            f"model.init_weights chooses among the weights of a file or run (--init FILE or run:DIR), got "
            f"{recipe.model.init_weights!r} with init {recipe.model.init}"
        )
    if recipe.model.adapt is not None and recipe.model.init is None:
        raise HoldfastError("model.init must name the pretrained model to adapt (--init), got null")
    if recipe.train.probe is not None and recipe.model.adapt is not None:
        raise HoldfastError("train.probe trains a whole model and model.adapt freezes it; omit one of them")
    if recipe.train.phases is not None and recipe.model.adapt is None:
        raise HoldfastError("train.phases is for recipes with model.adapt, got one without")
    mixes = recipe.augment.mixup > 0 or recipe.augment.cutmix > 0
    if mixes and recipe.train.batch_size % 2:
        raise HoldfastError(f"train.batch_size must be even for mixup and cutmix, got {recipe.train.batch_size}")


def _check_given(part: Any, path: str = "") -> None:
    """Raise an error for null where a value is required; the parser accepts it."""
    hints = get_type_hints(type(part))
    for field in dataclasses.fields(part):
        value, name = getattr(part, field.name), f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            _check_given(value, f"{name}.")
        elif value is None and hints[field.name] is not Any and NoneType not in get_args(hints[field.name]):
            raise HoldfastError(f"{name} must have a value, got null; omit it for its default")


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
                f"model.kwargs must not hold {name!r}, which comes from the data and model.init, got {value}"
            )
        if name.endswith("_rate") and not (number and 0 <= value < 1):
            raise HoldfastError(f"model.kwargs: {name} must be at least 0 and below 1, got {value}")
        if name in COUNTS and ((number and value < 1) or isinstance(value, str)):
            raise HoldfastError(f"model.kwargs: {name} must be at least 1, got {value}")


# a run may resume with other values of these: they do not change the trained weights
MAY_CHANGE = frozenset(
    {
        "data.workers",
        "data.download",
        "model.needs_init",
        "train.log_steps",
        "train.trackers",
        "train.checkpoint_steps",
        "train.keep_epochs",
    }
)


def recipe_names() -> list[str]:
    """The shipped recipes, such as ``digits/fan_nano``."""
    root = _recipe_folder()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def load_recipe(recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by its shipped name, from a YAML file, or from nested dictionaries; then the overrides."""
    if isinstance(recipe, Recipe):
        values = dataclasses.asdict(recipe)
    elif isinstance(recipe, Mapping):
        values = dict(recipe)
    else:
        values = _read_recipe(find_recipe(recipe))
    values = _one_length(merge(values, overrides or {}), overrides or {})
    check_keys(values)
    typed = _typed_recipe(values)
    check_values(typed)
    return typed


def _one_length(values: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the given length: epochs instead of a recipe's steps, or the other way round."""
    asked = told.get("train")
    asked = asked if isinstance(asked, Mapping) else {}
    given = [name for name in ("epochs", "steps") if asked.get(name) is not None]
    if len(given) == 2:
        raise HoldfastError(
            f"train.epochs and train.steps both set the length, got {asked['epochs']} and {asked['steps']}; "
            "give only one of them"
        )
    return merge(values, {"train": {"steps": None}}) if given == ["epochs"] else values


def find_recipe(name: str | Path) -> Path:
    """The file of a shipped recipe or of the user's own."""
    shipped = _recipe_folder() / f"{name}.yaml"
    if os.path.isfile(shipped):  # unlike Path.is_file, it accepts names that no file system allows
        return shipped
    path = Path(name)
    if os.path.isfile(path):
        return path
    if path.suffix in (".yaml", ".yml"):
        raise HoldfastError(f"recipe file {str(name)[:200]!r} does not exist")
    hint = nearest(str(name), recipe_names()) or "; `holdfast list recipes` shows the shipped ones"
    raise HoldfastError(f"unknown recipe {str(name)[:200]!r}{hint}")


def headline(name: str) -> str:
    """The first comment line of a shipped recipe, its description."""
    first = find_recipe(name).read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("#").strip()


def header(name: str) -> dict[str, str]:
    """What the comment on top of a shipped recipe says under batch, cost and score."""
    comment = [line for line in find_recipe(name).read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    found = re.findall(r"\b(batch|cost|score): (.+?)(?=\s{2,}|$)", "\n".join(comment), flags=re.MULTILINE)
    return dict(reversed(found))


def merge(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dictionaries; values of the second override those of the first."""
    merged = dict(values)
    for key, value in overrides.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def leaves(kind: type = Recipe, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    """Every value of a recipe: its path, type and field."""
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        if section := _section(hints[item.name]):
            yield from leaves(section, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", hints[item.name], item


def check_keys(values: Mapping[str, Any], kind: type = Recipe, prefix: str = "") -> None:
    """Raise an error for an unknown key, suggesting the nearest known one."""
    hints = typing.get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            hint = nearest(str(key), hints) or f"; known are {', '.join(hints)}"
            raise HoldfastError(f"unknown recipe key {prefix + str(key)!r}{hint}")
        section = _section(hints[key])
        if section and not (value is None and section is not hints[key]):
            if not isinstance(value, Mapping):
                raise HoldfastError(f"recipe key {prefix + key!r} must be a section with keys, got {value!r}")
            check_keys(value, section, f"{prefix}{key}.")


def _section(hint: Any) -> type | None:
    """The dataclass of a section, which may also be optional."""
    kinds = (hint, *typing.get_args(hint))
    return next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)


def as_values(recipe: Recipe) -> dict[str, Any]:
    """A recipe as plain nested values, as they appear in YAML."""
    return read_yaml(to_yaml(recipe), name="recipe")


def to_yaml(recipe: Recipe) -> str:
    """The complete recipe, defaults included."""
    return yaml.dump(_plain(dataclasses.asdict(recipe)), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def flat_values(recipe: Recipe) -> dict[str, str | int | float | bool]:
    """Every value by its path, as text unless it is a number, for trackers."""
    flat = dict(_flat_items(as_values(recipe)))
    return {key: value if isinstance(value, str | int | float) else str(value) for key, value in flat.items()}


def differences(old: Recipe, new: Recipe) -> list[str]:
    """The values that keep ``new`` from resuming a run of ``old``, such as ``train.epochs (5, now 10)``."""
    before, after = dict(_flat_items(as_values(old))), dict(_flat_items(as_values(new)))
    keys = [key for key in sorted({*before, *after}) if key not in MAY_CHANGE]
    return [f"{k} ({before.get(k)}, now {after.get(k)})" for k in keys if before.get(k) != after.get(k)]


class _Dumper(yaml.SafeDumper):
    """YAML dumper with one key per line and lists inline."""


_Dumper.add_implicit_resolver(*SCIENTIFIC)  # a text that looks like a number is quoted
_Dumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


@cache
def _recipe_folder() -> Path:
    return Path(str(resources.files("holdfast") / "recipes"))


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"recipe {str(path)!r} cannot be read ({' '.join(str(error).split())})") from error
    values = read_yaml(text, name=f"recipe {str(path)!r}") or {}
    if not isinstance(values, dict):
        raise HoldfastError(f"recipe {str(path)!r} must hold keys and values, got {type(values).__name__}")
    return values


def _typed_recipe(values: Mapping[str, Any]) -> Recipe:
    try:
        parsed = _parser().instantiate(_parser().parse_object(dict(values)))
    except (ArgumentError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        kinds = {path: kind for path, kind, _ in leaves()}
        raise HoldfastError(f"recipe: {refusal(str(error), kinds)}") from error
    return Recipe(**vars(parsed))


@cache
def _parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Recipe, as_group=False)
    return parser


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _flat_items(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
