"""The images of ``holdfast improve``: validation images are shared out, test images are touched once.

Even images of the validation set stop trainings early, odd ones choose; where there is no test set, every third one is
kept for the report and the others are shared out in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from holdfast.data import Source, open_data
from holdfast.data.factory import sliced_spec
from holdfast.data.source import UnreadableImage
from holdfast.data.subsets import Joined
from holdfast.errors import HoldfastError
from holdfast.tasks import task_of
from holdfast.training.recipe import DataRecipe

COMPARED = 9  # images of equal ids whose pixels tell whether two sets share images
LEAST_TRAIN, LEAST = 20, 30  # images to learn from; to stop, to choose and to report on


@dataclass(frozen=True)
class Shares:
    """Who sees which images.

    Attributes:
        train: spec of the images to learn from.
        stop: spec of the validation images that stop a training early, as ``data.val`` of its recipe.
        choose: spec of the validation images that choose, opened like ``stop``.
        test: spec of the images of the report.
        counts: number of images of each of them.
        classes: number of classes.
        task: name of the task.
        remark: a sentence where the test images come from the validation set.
    """

    train: str
    stop: str
    choose: str
    test: str
    counts: Mapping[str, int]
    classes: int
    task: str
    remark: str = ""


def share_images(data: DataRecipe, test: str | None) -> Shares:
    """Share the images out; raises an error for too few of them, one class, or sets that are the same."""
    train = open_data(data.train, split="train", download=data.download, exif=data.exif)
    val = open_data(data.val, split="val", download=data.download, exif=data.exif)
    task = task_of(train)
    if task.scoring.one_class and len(train.classes) < 2:
        raise HoldfastError(f"data.train must have at least two classes, got {len(train.classes)}: {data.train!r}")
    if len(train) < LEAST_TRAIN:
        raise HoldfastError(f"data.train must hold at least {LEAST_TRAIN} images, got {len(train)}")
    remark, parts = "", 2
    if test is None:
        test, parts = _test_of(data.val, val)
        remark = (
            f"no --data.test: every third image of {data.val} is the test set"
            if parts == 3
            else f"no --data.test: the test images of {test} are reported on"
        )
    if len(val) < parts * LEAST:
        raise HoldfastError(
            f"data.val must hold at least {parts * LEAST} images, {LEAST} to stop early, {LEAST} to choose"
            f"{' and as many to report on' if parts == 3 else ''}; got {len(val)}"
        )
    held = open_data(test, split="test", exif=data.exif)
    if task_of(held) is not task:
        raise HoldfastError(f"data.test must be data of {task.name}, got {task_of(held).name}")
    if parts == 2:
        _check_apart(held, val, "data.test", "data.val")
    _check_apart(held, train, "data.test", "data.train")
    _check_apart(val, train, "data.val", "data.train")
    if len(held) < LEAST:
        raise HoldfastError(f"data.test must hold at least {LEAST} images, got {len(held)}")
    stop, choose = (sliced_spec(data.val, f"{number}::{parts}") for number in range(2))
    counts = {"train": len(train), "stop": -(-len(val) // parts), "choose": -(-(len(val) - 1) // parts)}
    return Shares(
        data.train, stop, choose, test, counts | {"test": len(held)}, len(train.classes), task.name, remark=remark
    )


def stopped_by(data: DataRecipe, stop: str) -> DataRecipe:
    """A recipe's data with these images to stop early by: all of them if its ``val_subset`` asks for more."""
    there = len(open_data(stop, split="val", exif=data.exif))
    more = data.val_subset is not None and data.val_subset > there
    return replace(data, val=stop, val_subset=None if more else data.val_subset)


def _test_of(spec: str, val: Source) -> tuple[str, int]:
    """The test images of a set that has some of its own, or a third of the validation images."""
    try:
        other = open_data(spec, split="test")
    except HoldfastError:
        other = val
    if shared_image(other, val) is None:
        return spec, 2
    return sliced_spec(spec, "2::3"), 3


def _check_apart(one: Source, other: Source, name: str, than: str) -> None:
    if (id := shared_image(one, other)) is not None:
        raise HoldfastError(f"{name} must be other images than {than}, got {id!r} in both")


def shared_image(one: Source, other: Source) -> str | None:
    """The id of an image that is in both sets: some of those with equal ids are compared pixel by pixel."""
    for mine, theirs in product(_parts_of(one), _parts_of(other)):
        numbers = {theirs.id(n): n for n in range(len(theirs))}
        pairs = [(n, numbers[id]) for n in range(len(mine)) if (id := mine.id(n)) in numbers]
        for k in sorted({round(x) for x in np.linspace(0, len(pairs) - 1, COMPARED)} if pairs else ()):
            if _equal(mine, pairs[k][0], theirs, pairs[k][1]):
                return mine.id(pairs[k][0])
    return None


def _parts_of(source: Source) -> list[Source]:
    return [leaf for part in source.parts for leaf in _parts_of(part)] if isinstance(source, Joined) else [source]


def _equal(one: Source, number: int, other: Source, other_number: int) -> bool:
    try:
        return np.array_equal(np.asarray(one.image(number)), np.asarray(other.image(other_number)))
    except UnreadableImage:
        return False
