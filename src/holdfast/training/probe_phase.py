"""LP-FT (Kumar et al., ICLR 2022): phase 1 fits the head to the frozen features, phase 2 trains everything from there.

Phase 1 is a run of its own in ``RUN/phase1-probe``: a control for what fine-tuning brings, and the start that WiSE-FT
interpolates from.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from accelerate import Accelerator

from holdfast.data import stratified_subset
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.runtime.device import choose_device
from holdfast.tasks import task_of
from holdfast.training.build import image_format, open_sources
from holdfast.training.initialize import ResumedRun, class_order, named_model, with_init_settings
from holdfast.training.linear_probe import Probe, fit_head
from holdfast.training.recipe import ProbeRecipe, Recipe
from holdfast.training.recipe_files import to_yaml
from holdfast.training.recipe_images import RecipeImages
from holdfast.training.run_folder import RunFolder, export_model
from holdfast.training.seeding import Stream, seeded

FOLDER = "phase1-probe"


def after_probe(recipe: Recipe, out: Path, accelerator: Accelerator) -> Recipe:
    """The recipe of phase 2, which starts from the probe in ``out``; that is fitted first if it is not there."""
    if recipe.train.probe is None:
        return recipe
    folder = out / FOLDER
    first = replace(recipe, train=replace(recipe.train, probe=replace(recipe.train.probe, only=True)))
    RunFolder(folder).check(first, resume=True)
    if accelerator.is_main_process and not RunFolder(folder).finished:
        probe_run(first, folder)
    accelerator.wait_for_everyone()
    model = replace(recipe.model, init=f"run:{folder}", init_weights="auto", head="keep")
    return replace(recipe, model=model)


def probe_run(recipe: Recipe, out: Path) -> Probe:
    """Fit the head of a recipe's model to its frozen features, and write a finished run folder."""
    written, recipe = recipe, with_init_settings(replace(recipe, model=named_model(recipe.model)))
    train, val = open_sources(recipe.data, seed=recipe.seed, order=partial(class_order, ResumedRun(), recipe.model))
    if not task_of(train).scoring.one_class:
        raise HoldfastError(f"train.probe fits the head of a classifier, got data of {task_of(train).name}")
    most = (recipe.train.probe or ProbeRecipe()).images
    if len(train) > most:
        train = stratified_subset(train, most, seed=recipe.seed)
    with seeded(Stream.WEIGHTS, recipe.seed):
        model = task_of(train).training.build(recipe.model, classes=len(train.classes), size=recipe.data.size)
        device = choose_device(recipe.train.device, model, fixed=True)
        images = RecipeImages(recipe, train, val, image_format(recipe.data, model), device)
        batches = images.each_training_image(), images.each_validation_image()
        probe = fit_head(model.to(device), *batches, device=device)
    lines = [
        {"event": "epoch", "step": 0, "epoch": 0, "top1": probe.accuracy, "probe_c": probe.c},
        {"event": "end", "step": 0, "epoch": 0, "best": probe.accuracy},
    ]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic.new_folder(out) as folder:
            export_model(model.cpu(), folder, recipe=recipe, image=images.image, classes=train.classes)
            (folder / "recipe.yaml").write_text(to_yaml(written), encoding="utf-8")
            (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(out)!r} ({error.strerror})") from error
    return probe
