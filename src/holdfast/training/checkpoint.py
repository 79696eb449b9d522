"""Checkpoints: everything a run needs to resume, in safetensors and JSON, written atomically.

Each is a folder ``step-00000120``, written under a temporary name, synced and renamed; ``last`` and ``best`` are links.
Weights, averaged weights, optimizer state and an objective's own modules are tensors, the rest is JSON: nothing is ever
unpickled. Checksums detect a damaged checkpoint; it is set aside, and the run resumes from the one before with the same
result. Random state is not stored: it follows from seed and step.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from holdfast.errors import HoldfastError, first_line
from holdfast.io import atomic
from holdfast.training.global_batch import share_images
from holdfast.training.recipe import Recipe

STATE, SEAL = "state.json", "checksum"
NAME = re.compile(r"step-\d{8,}")


@dataclass(frozen=True)
class Position:
    """Progress of a run: optimizer steps done, best clean accuracy so far, and images per step."""

    step: int = 0
    best: float | None = None
    best_step: int | None = None
    images_per_step: int | None = None  # None in older checkpoints


@dataclass(frozen=True)
class CheckpointState:
    """Modules and optimizers that change in training, by the names of their files."""

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]
    scaler: Any = None  # the gradient scaler of fp16


def save_checkpoint(folder: Path, moving: CheckpointState, position: Position) -> Path:
    """Write ``folder/step-…`` and point ``last`` to it."""
    path = folder / _name(position.step)
    state: dict[str, Any] = {"position": asdict(position), "numbers": {}}
    if moving.scaler is not None:
        state["scaler"] = moving.scaler.state_dict()
    try:
        with atomic.new_folder(path) as temporary:
            for name, module in moving.modules.items():
                save_weights(module, temporary / f"{name}.safetensors")
            for name, optimizer in moving.optimizers.items():
                tensors, state["numbers"][name] = flatten_state(optimizer)
                _write_tensors(tensors, temporary / f"{name}.safetensors")
            state["checksums"] = {file.name: _checksum(file.read_bytes()) for file in sorted(temporary.iterdir())}
            (temporary / STATE).write_text(json.dumps(_seal_state(state), indent=1), encoding="utf-8")
        _point(folder, position)
    except (OSError, SafetensorError) as error:
        raise _cannot_write(path, error) from error
    return path


def restore_checkpoint(folder: Path, moving: CheckpointState) -> Position:
    """Load the last intact checkpoint into ``moving``; returns the initial position if there is none."""
    found = last_intact(folder)
    if found is None:
        return Position()
    path, state = found
    try:
        for name, module in moving.modules.items():
            module.load_state_dict(load_file(path / f"{name}.safetensors"))
        for name, optimizer in moving.optimizers.items():
            restore_state(optimizer, load_file(path / f"{name}.safetensors"), state["numbers"][name])
        if moving.scaler is not None and "scaler" in state:
            moving.scaler.load_state_dict(state["scaler"])
        return Position(**state["position"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = first_line(error)
        raise HoldfastError(f"checkpoint {str(path)!r} is damaged or from another recipe ({reason})") from error


def repair(folder: Path) -> list[Path]:
    """Set damaged checkpoints aside and point ``last`` and ``best`` to intact ones; returns those set aside.

    This also repairs a run that was killed between a checkpoint's rename and its links.
    """
    aside = []
    for path in sorted(_checkpoints(folder), reverse=True):
        state = _read_state(path)
        if state is not None:
            _point(folder, Position(**state["position"]))
            break
        aside.append(_set_aside(path))
    for name in ("last", "best"):
        if (folder / name).is_symlink() and not (folder / name).exists():
            (folder / name).unlink()
    return aside


def last_intact(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint with matching checksums, and its state."""
    for path in sorted(_checkpoints(folder), reverse=True):
        state = _read_state(path)
        if state is not None:
            return path, state
    return None


def prune(folder: Path, *, position: Position, keep_every: int = 0) -> None:
    """Remove temporary files and checkpoints that are not last, best or at a multiple of ``keep_every`` steps."""
    keep = {_name(position.step), _name(position.best_step or position.step)}
    for path in _checkpoints(folder):
        step = _step(path)
        if path.name not in keep and not (keep_every and step % keep_every == 0):
            shutil.rmtree(path, ignore_errors=True)
    for debris in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            shutil.rmtree(debris) if debris.is_dir() and not debris.is_symlink() else debris.unlink()


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's parameters and buffers as one safetensors file."""
    _write_tensors({key: value.detach().cpu().contiguous() for key, value in module.state_dict().items()}, path)


def _write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    path.write_bytes(save(tensors))  # save_file would make the file readable by its owner only


def flatten_state(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors named ``parameter.key`` and a dictionary of numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            name = f"{index}.{key}"
            if isinstance(value, Tensor):
                tensors[name] = value.detach().cpu().contiguous().clone()
            elif value is None or isinstance(value, bool | int | float | str):
                numbers[name] = value
            else:
                kind = type(optimizer).__name__
                raise HoldfastError(f"the state of {kind} cannot be saved safely: {key!r} is a {type(value).__name__}")
    return tensors, numbers


def restore_state(optimizer: Optimizer, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """The inverse of `flatten_state`. Groups (learning rates, decay) come from the recipe."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _point(folder: Path, position: Position) -> None:
    atomic.point(folder / "last", _name(position.step))
    if position.best_step is not None and (folder / _name(position.best_step)).is_dir():
        atomic.point(folder / "best", _name(position.best_step))


def _read_state(path: Path) -> dict[str, Any] | None:
    """The content of ``state.json``, if it and the files beside it are intact."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if not {"checksums", SEAL} & {*state}:  # an older checkpoint without checksums
            return state if Position(**state["position"]).step == _step(path) else None
        if _seal_state({key: value for key, value in state.items() if key != SEAL}) != state:
            return None
        intact = all(_checksum((path / name).read_bytes()) == found for name, found in state["checksums"].items())
        return state if intact and Position(**state["position"]).step == _step(path) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _seal_state(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, SEAL: _checksum(json.dumps(state, sort_keys=True).encode())}


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _set_aside(path: Path) -> Path:
    number = 0
    while (target := path.with_name(f"damaged-{path.name}{f'-{number}' if number else ''}")).exists():
        number += 1
    path.rename(target)
    return target


def _checkpoints(folder: Path) -> Iterator[Path]:
    """The complete checkpoints: a folder gets its final name only when it is complete."""
    return (path for path in folder.glob("step-*") if NAME.fullmatch(path.name) and path.is_dir())


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _cannot_write(path: Path, error: OSError | SafetensorError) -> HoldfastError:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else first_line(error)
    return HoldfastError(f"checkpoint {str(path)!r} cannot be written ({reason}); the previous one is intact")


def rescale_for_processes(recipe: Recipe, checkpoints: Path, processes: int) -> Recipe:
    """The recipe with the batch size and accumulation for which this number of processes keeps the run's global batch.

    No process exceeds the recipe's batch size: fewer processes accumulate more.
    """
    before = last_intact(checkpoints)
    images = before[1]["position"].get("images_per_step") if before else None
    train = recipe.train
    if images is None or train.global_batch or images == train.batch_size * train.accumulate * processes:
        return recipe
    return share_images(replace(recipe, train=replace(train, accumulate=1)), images, processes)
