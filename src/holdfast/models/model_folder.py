"""A model's folder, ``config.json`` and ``model.safetensors``: built as the one says, filled from the other, exactly.

timm gives a model whose head does not fit its file a random one, and builds whatever a configuration asks for. Here
every tensor of the file is used, every weight comes from it, and a model that the file cannot fill is not built.
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
LARGE = 8192  # an image's side, or a width, that no file need confirm
REPEATED = ("depth", "layers", "blocks")  # how often something is built: at most once for every tensor
SPARE = 1.5  # times the weights of the file may be asked for before the names are compared

Shapes = Mapping[str, tuple[int, ...]]


def load_folder(folder: Path) -> nn.Module:
    """The model in a folder; refuses a configuration that is not that of the weights."""
    shapes = _shapes(folder / WEIGHTS)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    _check_numbers(config, shapes, folder)
    name = f"local-dir:{folder}"
    asked, held = _asked(name), sum(map(prod, shapes.values()))
    if asked > SPARE * held:
        raise HoldfastError(
            f"{CONFIG} in {str(folder)!r} must describe its weights, but asks for {asked:,} numbers where "
            f"{WEIGHTS} holds {held:,}"
        )
    model = create_model(name, pretrained=False)
    fill_exactly(model, folder / WEIGHTS)
    _check_classes(config, model, folder)
    return model


def _check_classes(config: Mapping[str, Any], model: Any, folder: Path) -> None:
    """Refuse a configuration that says the number of classes several times, and not always that of the weights."""
    held = getattr(model, "num_classes", None)
    if held is None:  # somebody's own model does not say; all its weights came from the file
        return
    for part in (config, config.get("pretrained_cfg"), config.get("model_args")):
        told = part.get("num_classes", held) if isinstance(part, Mapping) else held
        if told != held:
            raise HoldfastError(
                f"{CONFIG} in {str(folder)!r} must describe its weights, but says {told!r:.20} classes "
                f"where they have {held}"
            )


def _asked(name: str) -> int:
    """How many weights a model would have, found without taking memory for them; 0 where that cannot be done."""
    try:
        with torch.device("meta"):
            return sum(value.numel() for value in create_model(name, pretrained=False).parameters())
    except Exception:  # somebody's own model may compute while it is built; if it is wrong, building it will tell
        return 0


def _shapes(path: Path) -> Shapes:
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a mapping)


def _check_numbers(config: Any, shapes: Shapes, folder: Path) -> None:
    """Refuse numbers that the weights cannot be of, before a model is built by them."""
    largest = max((side for shape in shapes.values() for side in shape), default=0)
    for key, value in _numbers(config):
        most = len(shapes) if any(word in key for word in REPEATED) else max(largest, LARGE)
        if value > most:
            raise HoldfastError(
                f"{CONFIG} in {str(folder)!r} must describe its weights, but asks for {key} {value!r:.20}; "
                f"they can have {most} at most"
            )


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in JSON, each with the nearest name above it; of a list of depths their sum."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _numbers(each, str(name))
    elif isinstance(value, list):
        yield from (found for each in value for found in _numbers(each, key))
        if any(word in key for word in REPEATED):
            yield key, sum(each for each in value if isinstance(each, int | float))
    elif isinstance(value, int | float):
        yield key, value
