"""A run that goes on with another number of processes takes the same images per step."""

from dataclasses import replace
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.training.checkpoint import last_intact
from holdfast.training.recipe import Recipe


def shared_out(recipe: Recipe, checkpoints: Path, processes: int) -> Recipe:
    """The recipe with the batch and accumulation by which so many processes take the steps that the run began with.

    No process sees more images at once than the recipe says: fewer processes accumulate more.
    """
    before = last_intact(checkpoints)
    images = before[1]["position"].get("images_per_step") if before else None
    train = recipe.train
    if images is None or images == train.batch_size * train.accumulate * processes:
        return recipe
    if images % processes:
        raise HoldfastError(
            f"the run takes {images} images per step, which {processes} processes cannot share evenly; "
            f"go on with a number of processes that divides {images}"
        )
    mine = images // processes
    times = next(count for count in range(1, mine + 1) if mine % count == 0 and mine // count <= train.batch_size)
    return replace(recipe, train=replace(train, batch_size=mine // times, accumulate=times))
