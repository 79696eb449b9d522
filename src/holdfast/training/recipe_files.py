"""Recipes as YAML: found by name inside the package, read, overridden, checked, written, compared. Without torch."""

import dataclasses
import os
import typing
from argparse import ArgumentError
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from holdfast import older_recipes
from holdfast.errors import HoldfastError, nearest
from holdfast.kinds import refusal
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_checks import check_values
from holdfast.yaml_files import SCIENTIFIC, read_yaml

# the same run may continue with other values of these: they change what is written when, not what is learned
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
    root = _shipped()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def load_recipe(recipe: str | Path | Mapping[str, Any] | Recipe, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by its shipped name, from a YAML file, or from nested dictionaries; then the overrides."""
    if isinstance(recipe, Recipe):
        values = dataclasses.asdict(recipe)
    elif isinstance(recipe, Mapping):
        values = dict(recipe)
    else:
        values = _read(find_recipe(recipe))
    older = any(isinstance(given.get(older_recipes.SECTION), Mapping) for given in (values, overrides or {}))
    told = older_recipes.modern(overrides or {})
    values = _one_length(merge(older_recipes.modern(values), told), told)
    values = older_recipes.named(values) if older else values
    check_keys(values)
    typed = _typed(values)
    check_values(typed)
    return typed


def _one_length(values: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the length that was told: epochs in place of a recipe's steps, or the other way round."""
    asked = told.get("train")
    asked = asked if isinstance(asked, Mapping) else {}
    given = [name for name in ("epochs", "steps") if asked.get(name) is not None]
    if len(given) == 2:
        raise HoldfastError(
            f"train.epochs and train.steps both say how long to train, got {asked['epochs']} and {asked['steps']}; "
            "give one of them"
        )
    return merge(values, {"train": {"steps": None}}) if given == ["epochs"] else values


def find_recipe(name: str | Path) -> Path:
    """The file of a shipped recipe or of the user's own."""
    shipped = _shipped() / f"{name}.yaml"
    if os.path.isfile(shipped):  # unlike Path's, it answers names that no file system takes
        return shipped
    path = Path(name)
    if os.path.isfile(path):
        return path
    if path.suffix in (".yaml", ".yml"):
        raise HoldfastError(f"recipe file {str(name)[:200]!r} does not exist")
    hint = nearest(str(name), recipe_names()) or "; `holdfast list recipes` shows the shipped ones"
    raise HoldfastError(f"unknown recipe {str(name)[:200]!r}{hint}")


def headline(name: str) -> str:
    """The first comment line of a shipped recipe: what it is."""
    first = find_recipe(name).read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("#").strip()


def merge(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second one's values first."""
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
    """Refuse a key that no recipe has, with the nearest one that exists."""
    hints = typing.get_type_hints(kind)
    for key, value in values.items():
        if key not in hints:
            hint = nearest(str(key), hints) or f"; known are {', '.join(hints)}"
            raise HoldfastError(f"unknown recipe key {prefix + str(key)!r}{hint}")
        section = _section(hints[key])
        if section and not (value is None and section is not hints[key]):
            if not isinstance(value, Mapping):
                raise HoldfastError(f"recipe key {prefix + key!r} must hold further keys, got {value!r}")
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
    """Every value under its path, with text for what is neither text nor number: what trackers store."""
    flat = dict(_flat_items(as_values(recipe)))
    return {key: value if isinstance(value, str | int | float) else str(value) for key, value in flat.items()}


def differences(old: Recipe, new: Recipe) -> list[str]:
    """What keeps ``new`` from continuing a run of ``old``, such as ``train.epochs (5, now 10)``."""
    before, after = dict(_flat_items(as_values(old))), dict(_flat_items(as_values(new)))
    keys = [key for key in sorted({*before, *after}) if key not in MAY_CHANGE]
    return [f"{k} ({before.get(k)}, now {after.get(k)})" for k in keys if before.get(k) != after.get(k)]


class _Dumper(yaml.SafeDumper):
    """One key per line, lists on theirs."""


_Dumper.add_implicit_resolver(*SCIENTIFIC)  # a text that looks like a number is quoted
_Dumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


@cache
def _shipped() -> Path:
    return Path(str(resources.files("holdfast") / "recipes"))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"recipe {str(path)!r} cannot be read ({' '.join(str(error).split())})") from error
    values = read_yaml(text, name=f"recipe {str(path)!r}") or {}
    if not isinstance(values, dict):
        raise HoldfastError(f"recipe {str(path)!r} must hold keys and values, got {type(values).__name__}")
    return values


def _typed(values: Mapping[str, Any]) -> Recipe:
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
