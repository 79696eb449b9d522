"""TORA's phases as runs: the parts of a recipe with ``phase: all``, and how each of them starts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.errors import HoldfastError
from holdfast.methods.tora import TWO_PHASES, begin_phase
from holdfast.models.tora import ToraViT, tora
from holdfast.models.tora_files import DESCRIPTION, load_added
from holdfast.training.recipe import Recipe, ToraRecipe


@dataclass(frozen=True)
class Part:
    """One phase for one λ: a run of its own."""

    recipe: Recipe
    folder: Path


def parts_of(recipe: Recipe, out: Path) -> list[Part]:
    """The runs that a recipe with ``tora.phase: all`` stands for: phase 1 once, then one run per λ.

    A phase-1 run knows nothing of λ, so that later ones find it as it is.
    """
    assert recipe.tora is not None
    if not recipe.tora.lambdas:
        raise HoldfastError("tora.lambdas must hold at least one weight between 0 and 1, got none")
    first = list(_phase1(recipe, out)) if recipe.tora.method in TWO_PHASES else []
    start = str(first[-1].folder) if first else recipe.tora.start
    joint = [
        _part(recipe, out / f"lambda-{weight:g}", phase="joint", start=start, lambdas=[weight])
        for weight in dict.fromkeys(recipe.tora.lambdas)
    ]
    return [*first, *joint]


def _phase1(recipe: Recipe, out: Path) -> Iterator[Part]:
    assert recipe.tora is not None
    epochs = recipe.tora.phase1_epochs or recipe.train.epochs
    recipe = replace(recipe, train=replace(recipe.train, epochs=epochs))
    robust = _part(recipe, out / "phase1-robust", phase="robust", start=recipe.tora.start, lambdas=[])
    yield robust
    yield _part(recipe, out / "phase1-accuracy", phase="accuracy", start=str(robust.folder), lambdas=[])


def _part(recipe: Recipe, folder: Path, **values: object) -> Part:
    assert recipe.tora is not None
    section: ToraRecipe = replace(recipe.tora, phase1_epochs=None, **values)  # type: ignore[arg-type]
    return Part(replace(recipe, tora=section), folder)


def start_tora(model: nn.Module, recipe: ToraRecipe) -> ToraViT:
    """The pretrained model with what the phase starts from, and only what learns in it left free."""
    adapted = tora(
        model,
        method=recipe.method,
        reduction=recipe.reduction,
        gate_softmax=recipe.gate_softmax,
        gate_heads=recipe.gate_heads,
    )
    if recipe.phase == "joint" and recipe.method in TWO_PHASES and recipe.start is None:
        raise HoldfastError("tora.start must be the run folder of phase 1 for phase joint, got null; or use phase all")
    if recipe.start is not None:
        if not (Path(recipe.start) / DESCRIPTION).is_file():
            raise HoldfastError(f"tora.start must be the folder of a finished phase-1 run, got {recipe.start!r}")
        load_added(adapted, recipe.start)
    begin_phase(adapted, recipe.phase)
    return adapted


def phase_context(recipe: ToraRecipe | None) -> dict[str, Any]:
    """What the objective must know: the phase, and the single λ of a phase-2 run."""
    if recipe is None:
        return {}
    if recipe.phase == "joint" and len(recipe.lambdas) != 1:
        raise HoldfastError(
            f"tora.lambdas must hold one weight for phase joint, or use phase all; got {recipe.lambdas}"
        )
    return {"phase": recipe.phase, "trade_off": recipe.lambdas[0] if recipe.phase == "joint" else None}
