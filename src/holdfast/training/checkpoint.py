"""Checkpoints: everything a run needs to go on, in safetensors and JSON, complete or not there.

Each is a folder ``step-00000120``, written under a temporary name, synced and renamed; ``last`` and ``best`` are links.
Weights, averaged weights, optimizer state and an objective's own modules are tensors, the rest is JSON: nothing is ever
unpickled. Randomness needs no entry: it follows from seed and step.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from holdfast import atomic
from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Position:
    """Where a run is: optimizer steps done, and its best clean accuracy so far."""

    step: int = 0
    best: float | None = None
    best_step: int | None = None


@dataclass(frozen=True)
class Moving:
    """What changes while training, by the name of its file."""

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]
    scaler: Any = None  # the gradient scaler of fp16


def save_checkpoint(folder: Path, moving: Moving, position: Position) -> Path:
    """Write ``folder/step-…`` and let ``last`` point to it."""
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
            (temporary / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
        atomic.point(folder / "last", path.name)
        if position.best_step == position.step:
            atomic.point(folder / "best", path.name)
    except (OSError, SafetensorError) as error:
        raise _cannot_write(path, error) from error
    return path


def restore_checkpoint(folder: Path, moving: Moving) -> Position:
    """Load the last checkpoint into ``moving``; the start position if there is none."""
    path = last_checkpoint(folder)
    if path is None:
        return Position()
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        for name, module in moving.modules.items():
            module.load_state_dict(load_file(path / f"{name}.safetensors"))
        for name, optimizer in moving.optimizers.items():
            restore_state(optimizer, load_file(path / f"{name}.safetensors"), state["numbers"][name])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise HoldfastError(f"checkpoint {str(path)!r} is damaged or of another recipe ({reason})") from error
    if moving.scaler is not None and "scaler" in state:
        moving.scaler.load_state_dict(state["scaler"])
    return Position(**state["position"])


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint. A folder has its name only when it is complete, so the highest number is the one."""
    return max(_checkpoints(folder), default=None)


def prune(folder: Path, *, position: Position, keep_every: int = 0) -> None:
    """Remove checkpoints that are neither last nor best nor at a multiple of ``keep_every`` steps; and debris."""
    keep = {_name(position.step), _name(position.best_step or position.step)}
    for path in _checkpoints(folder):
        step = int(path.name.removeprefix("step-"))
        if path.name not in keep and not (keep_every and step % keep_every == 0):
            shutil.rmtree(path, ignore_errors=True)
    for debris in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            shutil.rmtree(debris) if debris.is_dir() and not debris.is_symlink() else debris.unlink()


def save_weights(module: nn.Module, path: Path) -> None:
    """A module's weights and statistics as one safetensors file."""
    _write_tensors({key: value.detach().cpu().contiguous() for key, value in module.state_dict().items()}, path)


def _write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    path.write_bytes(save(tensors))  # save_file would hide the file from everybody but its owner


def flatten_state(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors named ``parameter.key`` and a dictionary of plain numbers."""
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
    """Undo :func:`flatten_state`. Groups (learning rates, decay) come from the recipe, not from the checkpoint."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _checkpoints(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("step-*") if path.is_dir())


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _cannot_write(path: Path, error: OSError | SafetensorError) -> HoldfastError:
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error).splitlines()[0]
    return HoldfastError(f"checkpoint {str(path)!r} cannot be written ({reason}); the previous one is intact")
