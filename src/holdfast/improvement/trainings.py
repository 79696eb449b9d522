"""One training of ``holdfast improve``: a run that resumes, and keeps the weights of its best validation."""

import json
import platform
import shutil
import signal
from dataclasses import replace
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.models.factory import load_torch_model
from holdfast.runtime.signals import Terminated
from holdfast.training.checkpoint import save_weights
from holdfast.training.loop import train
from holdfast.training.phases import parts_of
from holdfast.training.probe_phase import FOLDER, probe_run
from holdfast.training.recipe import ProbeRecipe, Recipe
from holdfast.training.recipe_files import to_yaml
from holdfast.training.run_folder import RunFolder

STOPPED = "early_stop.json"


def train_run(recipe: Recipe, out: Path, *, probe: tuple[Recipe, Path] | None = None, show: bool | None = None) -> Path:
    """Train a recipe, or go on with it; returns the folder of the finished run, whose weights are the best ones.

    Args:
        recipe: the recipe.
        out: the run's folder.
        probe: a finished linear probe and its recipe, which LP-FT takes over if it would fit the same one.
        show: show progress.
    """
    parts = parts_of(recipe, out)
    folder = parts[-1].folder if parts else out
    if (folder / STOPPED).is_file():
        return folder
    if probe is not None and recipe.train.probe is not None:
        _take_over(probe, recipe, out)
    result = train(recipe, out=out, resume=True, show=show)
    if result.stopped_by:
        raise Terminated if result.stopped_by == signal.SIGTERM else KeyboardInterrupt
    _keep_best(folder, adapted=recipe.model.adapt is not None)
    return folder


def train_run_there(recipe: Recipe, out: Path, folder: Path, probe: tuple[Recipe, Path] | None) -> None:
    """The same in a worker of a cluster, in a folder that all nodes share."""
    if not out.is_dir():
        raise HoldfastError(
            f"{str(out)!r} does not exist on {platform.node()}: --out must be a folder that all nodes share"
        )
    train_run(recipe, folder, probe=probe, show=False)


def probe_of(recipe: Recipe) -> Recipe:
    """The recipe of the linear probe alone."""
    settings = recipe.train.probe or ProbeRecipe()
    return replace(recipe, train=replace(recipe.train, probe=replace(settings, only=True)))


def probe_start(recipe: Recipe, out: Path) -> None:
    """Fit a head to the frozen start, unless that is done."""
    if not RunFolder(out).finished:
        probe_run(probe_of(recipe), out)


def _take_over(probe: tuple[Recipe, Path], recipe: Recipe, out: Path) -> None:
    """Copy a probe that was fitted to the same features, by the recipe that LP-FT asks for."""
    fitted, folder = probe
    goal, first = out / FOLDER, probe_of(recipe)
    if goal.exists() or _features(fitted) != _features(recipe):
        return
    goal.parent.mkdir(parents=True, exist_ok=True)
    with atomic.new_folder(goal) as unfinished:
        for name in ("config.json", "model.safetensors", "log.jsonl"):
            shutil.copy2(folder / name, unfinished / name)
        (unfinished / "recipe.yaml").write_text(to_yaml(first), encoding="utf-8")


def _features(recipe: Recipe) -> tuple[object, ...]:
    """All that a linear probe depends on."""
    return recipe.seed, recipe.data, recipe.model, recipe.augment, recipe.train.batch_size, recipe.train.device


def _keep_best(folder: Path, *, adapted: bool) -> None:
    """Put the weights of the best validation into the run, and drop the checkpoints."""
    checkpoints = RunFolder(folder).checkpoints
    best, last = (checkpoints / name for name in ("best", "last"))
    earlier = not adapted and best.exists() and last.exists() and best.resolve() != last.resolve()
    if earlier:
        model = load_torch_model(f"run:{folder}@best", what="holdfast improve").model
        with atomic.replace_file(folder / "model.safetensors") as unfinished:
            save_weights(model, unfinished)
    atomic.write_text(folder / STOPPED, json.dumps({"earlier": earlier}) + "\n")
    shutil.rmtree(checkpoints, ignore_errors=True)


def stopped_early(folder: Path) -> bool:
    """Whether the run's weights are those of an earlier validation than the last."""
    try:
        return bool(json.loads((folder / STOPPED).read_text())["earlier"])
    except (OSError, ValueError, KeyError):
        return False
