"""Registry of adaptation methods of frozen models: the added modules, the training phases and the file format.

An adapted model has the frozen one as its attribute ``backbone``. An entry here is all that recipes, runs and model
specs need.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import HoldfastError, nearest
from holdfast.models.tora import Method, ToraViT, tora
from holdfast.models.tora_checkpoints import DESCRIPTION, load_added, load_tora, save_tora
from holdfast.registry import Registry, add_row


@dataclass(frozen=True)
class Phase:
    """The trained prediction, the adapter and head trained beside the fusion, and λ if it is fixed."""

    view: str
    learns: tuple[str, ...]
    weight: float | None = None


# who learns in which phase of TORA (Li and Xu, CVPR 2023); that heads learn in phase 1 alone is ours
PHASES = {
    "robust": Phase("rob", ("rob",), weight=1.0),  # phase 1: min over Ψ_R, Φ of L_ROB
    "accuracy": Phase("acc", ("acc",), weight=0.0),  # phase 1: min over Ψ_A, Φ of L_ACC
    "joint": Phase("joint", ()),  # phase 2: min over Φ of λ L_ROB + (1 − λ) L_ACC
}
TWO_PHASES = ("tora", "adapter-fusion")


def begin_phase(model: ToraViT, phase: str) -> None:
    """Make the parameters of a phase trainable and freeze the rest; without a fusion, train all added modules."""
    if phase not in PHASES:
        raise HoldfastError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}{nearest(phase, PHASES)}")
    method = model.settings.method
    model.requires_grad_(False)
    if method not in TWO_PHASES:
        if phase != "joint":
            raise HoldfastError(f"method {method} has one phase, joint; got {phase!r}")
        for added in (model.layers, model.heads, model.tokens):
            added.requires_grad_(True)
        return
    for layer in model.layers:
        layer.fusion.requires_grad_(True)
    for name in PHASES[phase].learns:
        for part in (*(layer.get_submodule(name) for layer in model.layers), model.heads[name], model.tokens[name]):
            part.requires_grad_(True)


BACKBONE = "backbone"  # subfolder of the frozen model in a run folder


@dataclass(frozen=True)
class AdapterEntry:
    """One adaptation method.

    Attributes:
        line: one-line description.
        adapt: (model, **options) → the adapted model.
        save: (adapted model, folder, notes) writes the added modules, ``marker`` last.
        load: folder → the adapted model of a finished run, with its frozen model from the subfolder ``backbone``.
        take_over: (adapted model, folder) loads the added modules of an earlier phase.
        marker: the file that identifies a folder of this method.
        phases: names of the training phases in order, each starting from the one before.
        begin: (adapted model, phase) makes the parameters of a phase trainable and freezes the rest.
        weights: default weights of the last phase, which is trained once for each; None if it has no weight.
    """

    line: str
    adapt: Callable[..., nn.Module]
    save: Callable[[Any, Path, Mapping[str, Any]], None]
    load: Callable[[Path], nn.Module]
    take_over: Callable[[Any, Path], None]
    marker: str
    phases: tuple[str, ...]
    begin: Callable[[Any, str], None]
    weights: tuple[float, ...] | None = None


def adapter_named(name: str | None) -> AdapterEntry:
    """The registered adaptation method of that name."""
    if name not in ADAPTERS:
        hint = nearest(str(name), ADAPTERS) or f"; known are {', '.join(ADAPTERS)}"
        raise HoldfastError(f"model.adapt.name must be a registered adaptation method, got {name!r}{hint}")
    return ADAPTERS[name]


def adapter_of(folder: Path) -> AdapterEntry | None:
    """The adaptation method of a finished run's model; None for a model that was not adapted."""
    return next((adapter for adapter in ADAPTERS.values() if (folder / adapter.marker).is_file()), None)


def _save_tora(model: Any, folder: Path, notes: Mapping[str, Any]) -> None:
    save_tora(model, folder, notes={"phase": notes["phase"], "lambdas": notes["weights"]})


def _of_tora(method: Method, line: str, phases: tuple[str, ...] = ("joint",)) -> AdapterEntry:
    return AdapterEntry(
        line=line,
        adapt=partial(tora, method=method),
        save=_save_tora,
        load=load_tora,
        take_over=load_added,
        marker=DESCRIPTION,
        phases=phases,
        begin=begin_phase,
        weights=(0.5,),
    )


_SHIPPED = {
    "tora": _of_tora("tora", "two adapters per block and a gate between them (TORA-ViT)", tuple(PHASES)),
    "adapter-fusion": _of_tora("adapter-fusion", "two adapters per block, fused by attention", tuple(PHASES)),
    "single-adapter": _of_tora("single-adapter", "one adapter per block"),
    "head-only": _of_tora("head-only", "two new heads and nothing else"),
}
ADAPTERS: Registry[str, AdapterEntry] = Registry(_SHIPPED, register="holdfast.methods.register_adapter")


def register_adapter(name: str, adapter: AdapterEntry, line: str = "") -> None:
    """Register a way to adapt frozen models, by its name in a recipe's ``model.adapt``."""
    add_row(ADAPTERS, name, replace(adapter, line=line or adapter.line), what="adapter")
