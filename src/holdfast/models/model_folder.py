"""Model folders, ``config.json`` and ``model.safetensors``: strict loading of a model and all its weights.

timm replaces a head that does not fit by a random one, and builds whatever a configuration specifies. Here every tensor
of the file is used, every weight comes from it, and a model that the file cannot fill is not built.
"""

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.models import create_model
from holdfast.models.checkpoints import fill_exactly

CONFIG, WEIGHTS = "config.json", "model.safetensors"
LARGE = 8192  # image sides and widths up to this need no check against the file
REPEATED = ("depth", "layers", "blocks")  # numbers of repetitions: at most one for each tensor
SPARE = 1.5  # a configuration may specify this many times the file's weights before names are compared

Shapes = Mapping[str, tuple[int, ...]]


def load_folder(folder: Path) -> nn.Module:
    """Load the model in a folder; raises an error if the configuration does not match the weights."""
    shapes = _shapes(folder / WEIGHTS)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    _check_numbers(config, shapes, folder)
    name = f"local-dir:{folder}"
    specified, held = _count_weights(name), sum(map(prod, shapes.values()))
    if specified > SPARE * held:
        raise HoldfastError(
            f"{CONFIG} in {str(folder)!r} must describe its weights, but specifies {specified:,} of them, and "
            f"{WEIGHTS} holds {held:,}"
        )
    model = create_model(name, pretrained=False)
    fill_exactly(model, folder / WEIGHTS)
    _check_classes(config, model, folder)
    return model


def _check_classes(config: Mapping[str, Any], model: Any, folder: Path) -> None:
    """Raise an error if any number of classes in a configuration differs from that of the weights."""
    held = getattr(model, "num_classes", None)
    if held is None:  # unknown for a user's model; all its weights came from the file
        return
    for part in (config, config.get("pretrained_cfg"), config.get("model_args")):
        classes = part.get("num_classes", held) if isinstance(part, Mapping) else held
        if classes != held:
            raise HoldfastError(
                f"{CONFIG} in {str(folder)!r} must describe its weights, but specifies {classes!r:.20} classes, and "
                f"they have {held}"
            )


def _count_weights(name: str) -> int:
    """The number of weights of a model, counted without allocating them; 0 if that is not possible."""
    try:
        with torch.device("meta"):
            return sum(value.numel() for value in create_model(name, pretrained=False).parameters())
    except Exception:  # a user's model may compute while it is built; if it is wrong, building it will raise
        return 0


def _shapes(path: Path) -> Shapes:
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a mapping)


def _check_numbers(config: Any, shapes: Shapes, folder: Path) -> None:
    """Raise an error for numbers that cannot fit the weights, before a model is built with them."""
    largest = max((side for shape in shapes.values() for side in shape), default=0)
    for key, value in _numbers(config):
        most = len(shapes) if any(word in key for word in REPEATED) else max(largest, LARGE)
        if value > most:
            raise HoldfastError(
                f"{CONFIG} in {str(folder)!r} must describe its weights, but specifies {key} {value!r:.20}; "
                f"they allow at most {most}"
            )


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in JSON, each with the nearest enclosing key; for a list of depths their sum."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _numbers(each, str(name))
    elif isinstance(value, list):
        yield from (found for each in value for found in _numbers(each, key))
        if any(word in key for word in REPEATED):
            yield key, sum(each for each in value if isinstance(each, int | float))
    elif isinstance(value, int | float):
        yield key, value
