"""Warnings about recipes that are valid but probably not intended."""

from collections.abc import Iterator

import numpy as np

from holdfast.data import Source, Subset, UnreadableImage
from holdfast.training.recipe import Recipe

LOOKED_AT = 16


def recipe_warnings(recipe: Recipe, train: Source, val: Source, *, steps: int, steps_per_epoch: int) -> Iterator[str]:
    """Warnings about a recipe and its data; ``steps`` is the length of the run without its cool-down."""
    if same_images(_whole(train, recipe.data.train_subset), _whole(val, recipe.data.val_subset)):
        yield (
            "data.train and data.val hold the same images: the validation score measures memorisation, "
            "not generalisation"
        )
    if recipe.model.needs_init and recipe.model.init is None:
        yield "the recipe expects pretrained weights, but this run starts from random ones; name them with --init"
    if too_long := _warmup(recipe, steps=steps, steps_per_epoch=steps_per_epoch):
        yield too_long


def same_images(train: Source, val: Source) -> bool:
    """Whether two sources hold the same images under the same names; only a few of many are compared."""
    if len(train) != len(val) or any(train.id(index) != val.id(index) for index in range(len(train))):
        return False
    few = np.unique(np.linspace(0, len(train) - 1, LOOKED_AT).astype(int))
    try:
        return all(train.image(index).tobytes() == val.image(index).tobytes() for index in few.tolist())
    except UnreadableImage:  # reported when training reaches it
        return False


def _whole(source: Source, subset: float | None) -> Source:
    """The source that a subset was drawn from."""
    return source.source if subset is not None and isinstance(source, Subset) else source


def _warmup(recipe: Recipe, *, steps: int, steps_per_epoch: int) -> str | None:
    schedule = recipe.schedule
    if schedule.shape == "poly":
        name, value, warmup = "schedule.warmup_steps", f"{schedule.warmup_steps}", float(schedule.warmup_steps)
    else:
        name, value = "schedule.warmup_epochs", f"{schedule.warmup_epochs:g}"
        warmup = schedule.warmup_epochs * steps_per_epoch
    if not warmup or warmup < steps:
        return None
    return (
        f"the warm-up ({name}={value}, {warmup:g} steps) is as long as the whole training or longer ({steps} steps): "
        "the learning rate never reaches its peak"
    )
