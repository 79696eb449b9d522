"""Training of adapted models in phases: the runs of a recipe with phases, and the initialisation of each."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import HoldfastError, nearest
from holdfast.io.validation import checked_options
from holdfast.methods import OBJECTIVES
from holdfast.models.adaptation import AdapterEntry, adapter_named
from holdfast.training.recipe import AdaptRecipe, PhasesRecipe, Recipe


@dataclass(frozen=True)
class PhaseRun:
    """One run of a recipe with phases: one phase, for one weight."""

    recipe: Recipe
    folder: Path


def parts_of(recipe: Recipe, out: Path) -> list[PhaseRun]:
    """The runs of a recipe with ``train.phases.run: all``; empty if the recipe is a single run.

    Every phase but the last is trained once, independently of the weights, so that all later runs share it.
    """
    if recipe.model.adapt is None:
        return []
    adapter, phases = adapter_named(recipe.model.adapt.name), recipe.train.phases or PhasesRecipe()
    alone = recipe.train.phases is None and len(adapter.phases) == 1
    if alone or phases.run != "all":
        return []
    first = list(_first_phases(recipe, adapter, out))
    start = str(first[-1].folder) if first else recipe.model.adapt.start
    last = adapter.phases[-1]
    if adapter.weights is None:
        return [*first, _part(recipe, out / last, run=last, start=start, weights=[])]
    weights = adapter.weights if phases.weights is None else phases.weights
    if not weights:
        raise HoldfastError("train.phases.weights must hold at least one weight between 0 and 1, got none")
    repeated = [
        _part(recipe, out / f"lambda-{weight:g}", run=last, start=start, weights=[weight])
        for weight in dict.fromkeys(weights)
    ]
    return [*first, *repeated]


def _first_phases(recipe: Recipe, adapter: AdapterEntry, out: Path) -> Iterator[PhaseRun]:
    phases = recipe.train.phases or PhasesRecipe()
    recipe = replace(recipe, train=replace(recipe.train, epochs=phases.first_epochs or recipe.train.epochs))
    start = recipe.model.adapt.start if recipe.model.adapt else None
    for phase in adapter.phases[:-1]:
        part = _part(recipe, out / f"phase1-{phase}", run=phase, start=start, weights=[])
        start = str(part.folder)
        yield part


def _part(recipe: Recipe, folder: Path, *, run: str, start: str | None, weights: list[float]) -> PhaseRun:
    assert recipe.model.adapt is not None
    model = replace(recipe.model, adapt=replace(recipe.model.adapt, start=start))
    train = replace(recipe.train, phases=PhasesRecipe(run=run, weights=weights))
    return PhaseRun(replace(recipe, model=model, train=train), folder)


def phase_of(recipe: Recipe) -> str:
    """The phase of a run."""
    assert recipe.model.adapt is not None
    known = adapter_named(recipe.model.adapt.name).phases
    phase = recipe.train.phases.run if recipe.train.phases else known[-1]
    if phase not in known:
        hint = nearest(phase, known)
        raise HoldfastError(f"train.phases.run must be all or one of {', '.join(known)}, got {phase!r}{hint}")
    return phase


def build_adapted(model: nn.Module, recipe: Recipe) -> nn.Module:
    """The adapted model with the phase's initial weights and only its parameters trainable."""
    settings = recipe.model.adapt
    if settings is None:
        return model
    adapter, phase = adapter_named(settings.name), phase_of(recipe)
    new = _adapt(adapter, model, settings)
    if settings.start is not None:
        if not (Path(settings.start) / adapter.marker).is_file():
            raise HoldfastError(
                f"model.adapt.start must be the folder of a finished phase-1 run, got {settings.start!r}"
            )
        adapter.take_over(new, Path(settings.start))
    elif phase != adapter.phases[0] and phase == adapter.phases[-1]:
        raise HoldfastError(
            f"model.adapt.start must be the run folder of phase 1 for phase {phase}, got null; or use phase all"
        )
    adapter.begin(new, phase)
    return new


def _adapt(adapter: AdapterEntry, model: nn.Module, settings: AdaptRecipe) -> nn.Module:
    first = next(iter(inspect.signature(adapter.adapt).parameters))  # the model
    whose = f"model.adapt {settings.name!r}"
    options = checked_options(settings.options, adapter.adapt, whose=whose, withheld=[first])
    try:
        return adapter.adapt(model, **options)
    except TypeError as error:  # such as one that has no default
        raise HoldfastError(f"model.adapt.options must be arguments of {settings.name} ({error})") from error


def phase_context(recipe: Recipe) -> dict[str, Any]:
    """Arguments of the objective: the phase, and the weight of the last phase."""
    if recipe.model.adapt is None:
        return {}
    adapter, phase = adapter_named(recipe.model.adapt.name), phase_of(recipe)
    _check_objective(recipe, adapter)
    if phase != adapter.phases[-1] or adapter.weights is None or recipe.train.phases is None:
        return {"phase": phase, "trade_off": None}
    weights = phase_notes(recipe)["weights"]
    if len(weights) != 1:
        raise HoldfastError(
            f"train.phases.weights must hold one weight for phase {phase}, or use phase all; got {weights}"
        )
    return {"phase": phase, "trade_off": weights[0]}


def _check_objective(recipe: Recipe, adapter: AdapterEntry) -> None:
    """Raise an error for an objective that does not train in phases, since it would ignore the weight."""
    build = OBJECTIVES.get(recipe.objective.name)
    weighted = adapter.weights is not None and (recipe.train.phases is not None or len(adapter.phases) > 1)
    if weighted and build is not None and "phase" not in inspect.signature(build).parameters:
        known = [name for name, other in OBJECTIVES.items() if "phase" in inspect.signature(other).parameters]
        raise HoldfastError(
            f"objective.name must be one that trains in phases ({', '.join(known)}), got {recipe.objective.name!r}"
        )


def phase_notes(recipe: Recipe) -> dict[str, Any]:
    """Notes about the phase in a run's files."""
    phases = recipe.train.phases
    if phases is not None and phases.weights is not None:
        return {"phase": phase_of(recipe), "weights": phases.weights}
    assert recipe.model.adapt is not None
    return {"phase": phase_of(recipe), "weights": list(adapter_named(recipe.model.adapt.name).weights or ())}
