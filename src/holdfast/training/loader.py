"""Data loading: the sampling order of images over processes, transforms, batches and unreadable images."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from holdfast import rng
from holdfast.data import Source, UnreadableImage
from holdfast.errors import HoldfastError
from holdfast.io.images import ImageSizeError, check_short_side
from holdfast.runtime.cores import core_count
from holdfast.runtime.signals import exit_when_orphaned
from holdfast.tasks import Task, task_of
from holdfast.training.seeding import Stream, reseed

SHORT_SIDE = 256  # pixels; short side of validation images in most recipes
PairTransform = Callable[[Any, Any], tuple[Tensor, Any]]  # of an image and its target


class Key(NamedTuple):
    """Index of an image, and of its augmentation."""

    image: int
    epoch: int = 0
    repeat: int = 0


class Item(NamedTuple):
    """One loaded image; without a tensor if it could not be read."""

    image: Tensor | None
    target: Any
    unreadable: tuple[str, ...] = ()


class Batch(NamedTuple):
    """Images (B, 3, H, W), their targets as the task batches them, and messages about unreadable images.

    Images of different sizes stay a list.
    """

    images: Tensor | list[Tensor]
    targets: Any
    unreadable: list[str]


class EpochSampler:
    """The images of each batch and process, determined by (seed, epoch) alone.

    A global batch is a slice of the epoch's permutation, distributed to the processes in turn, so two processes
    together see the same images as one process with twice the batch. With ``repeats`` > 1 each image appears that often
    in a row (repeated augmentation, Hoffer et al. 2020), and the epoch keeps its length. The last incomplete batch is
    dropped.
    """

    def __init__(
        self,
        length: int,
        *,
        batch_size: int,
        accumulate: int = 1,
        processes: int = 1,
        rank: int = 0,
        seed: int,
        repeats: int = 1,
    ) -> None:
        self.length, self.seed, self.repeats = length, seed, repeats
        self.processes, self.rank = processes, rank
        self.global_batch = batch_size * processes
        self.batches_per_epoch = length // (self.global_batch * accumulate) * accumulate
        if self.batches_per_epoch == 0:
            raise HoldfastError(
                f"train.batch_size × processes × accumulate must not exceed the {length} training images, "
                f"got {batch_size} × {processes} × {accumulate} = {self.global_batch * accumulate}; "
                "lower --train.batch_size, or --train.global_batch where the recipe has one"
            )
        self._permutation = lru_cache(maxsize=2)(self._draw)

    def batch(self, number: int) -> list[Key]:
        """This process's part of batch ``number``, counted over all epochs."""
        epoch, position = divmod(number, self.batches_per_epoch)
        places = np.arange(position * self.global_batch, (position + 1) * self.global_batch)[
            self.rank :: self.processes
        ]
        images = self._permutation(epoch)[places // self.repeats]
        return [Key(int(i), epoch, int(r)) for i, r in zip(images, places % self.repeats, strict=True)]

    def _draw(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([Stream.ORDER, self.seed, epoch]).permutation(self.length)


class BatchRangeSampler(Sampler[list[Key]]):
    """Batches ``start`` to ``stop`` of an `EpochSampler`: one range covers a whole run, so workers never restart."""

    def __init__(self, order: EpochSampler, start: int, stop: int) -> None:
        self.order, self.start, self.stop = order, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[Key]]:
        return (self.order.batch(number) for number in range(self.start, self.stop))


class TransformedImages(Dataset[Item]):
    """A data source with a transform of images and targets, seeded per (seed, epoch, image, repeat)."""

    def __init__(
        self, source: Source, transform: PairTransform, *, seed: int, replace_unreadable: bool = False
    ) -> None:
        self.source, self.transform, self.seed = source, transform, seed
        self.task = task_of(source)
        self.replace_unreadable = replace_unreadable

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, key: Key) -> Item:
        """The image, or (``replace_unreadable``) the next readable one, with messages about those skipped."""
        unreadable: list[str] = []
        for index in self._candidates(key.image):
            try:
                image, target = self.source.image(index), self.task.evaluation.target(self.source, index)
                self._check_shape(image, index)
            except UnreadableImage as error:
                unreadable.append(str(error))
                continue
            number = rng.number(self.source.id(index), order="little")
            reseed(Stream.SAMPLE, self.seed, key.epoch, number, key.repeat)
            return Item(*self.transform(image, target), tuple(unreadable))
        return Item(None, None, tuple(unreadable))

    def _check_shape(self, image: Image.Image, index: int) -> None:
        """Raise an error for a very elongated image: resizing its short side for classifiers would take all memory."""
        if self.task.evaluation.batched:
            try:
                check_short_side(image.size, SHORT_SIDE)
            except ImageSizeError as error:
                raise UnreadableImage(self.source.id(index), str(error)) from error

    def _candidates(self, index: int) -> Sequence[int]:
        length = len(self.source)
        return [(index + step) % length for step in range(length)] if self.replace_unreadable else [index]


def collate(items: list[Item], *, task: Task) -> Batch:
    """Batch the items that could be read."""
    read = [item for item in items if item.image is not None]
    return Batch(
        _together([item.image for item in read if item.image is not None]),
        task.evaluation.collate([item.target for item in read]),
        [sentence for item in items for sentence in item.unreadable],
    )


def _together(images: list[Tensor]) -> Tensor | list[Tensor]:
    if not images:
        return torch.empty(0)
    return torch.stack(images) if len({image.shape for image in images}) == 1 else images


class Unreadable:
    """Counts and names unreadable images; the first one stops the run unless they may be skipped."""

    def __init__(self, accelerator: Accelerator, *, skip: bool) -> None:
        self._accelerator, self._skip = accelerator, skip
        self._sentences: set[str] = set()

    def check(self, batch: Batch) -> Batch:
        """Record the batch's unreadable images."""
        self._sentences.update(batch.unreadable)
        if batch.unreadable and not self._skip:
            count = len(batch.unreadable)
            raise HoldfastError(
                f"{batch.unreadable[0]}; {count} unreadable so far, add --skip-bad to continue without them"
            )
        return batch

    def summary(self) -> dict[str, Any]:
        """The count and the messages of all processes, for the log; empty if there were none."""
        mine = sorted(self._sentences)
        everyones = sorted(set(gather_object(mine))) if self._accelerator.num_processes > 1 else mine
        return {"unreadable": len(everyones), "unreadable_images": everyones} if everyones else {}


def training_loader(
    images: TransformedImages, sampler: BatchRangeSampler, *, workers: int, pin: bool
) -> DataLoader[Any]:
    """The batches of a range in order, for any number of workers."""
    return _loader(images, batch_sampler=sampler, workers=workers, pin=pin)


def validation_loader(
    images: TransformedImages, *, batch_size: int, processes: int, rank: int, workers: int, pin: bool
) -> DataLoader[Any]:
    """Every image once, distributed over the processes."""
    mine = [Key(index) for index in range(rank, len(images), processes)]
    batches = [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]
    return _loader(images, batch_sampler=batches, workers=workers, pin=pin)


def _loader(
    images: TransformedImages, *, batch_sampler: Iterable[list[Key]], workers: int, pin: bool
) -> DataLoader[Any]:
    return DataLoader(
        images,
        batch_sampler=batch_sampler,
        collate_fn=partial(collate, task=images.task),
        num_workers=min(workers, core_count()),
        persistent_workers=workers > 0,
        pin_memory=pin,
        worker_init_fn=_begin_worker,
        generator=torch.Generator(),  # otherwise a loader draws from the global generator
    )


def _begin_worker(number: int) -> None:
    exit_when_orphaned()
