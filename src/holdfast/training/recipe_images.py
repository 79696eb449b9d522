"""A recipe's images without a training run: for linear probes, BatchNorm's statistics and validation scores."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.data import Source
from holdfast.errors import HoldfastError
from holdfast.runtime.device import choose_device
from holdfast.tasks import Task, task_of
from holdfast.training.augment.classification import ImageFormat
from holdfast.training.build import image_format, open_sources
from holdfast.training.loader import (
    Batch,
    BatchRangeSampler,
    EpochSampler,
    TransformedImages,
    training_loader,
    validation_loader,
)
from holdfast.training.recipe import Recipe


@dataclass(frozen=True)
class RecipeImages:
    """The training and validation images of a recipe, as a model is shown them."""

    recipe: Recipe
    train: Source
    val: Source
    image: ImageFormat
    device: torch.device

    @property
    def task(self) -> Task:
        """What the images are for."""
        return task_of(self.train)

    def each_training_image(self) -> Iterator[Batch]:
        """Every training image once, augmented as in the first epoch."""
        return self._each(self._transformed(self.train, 0))

    def each_validation_image(self) -> Iterator[Batch]:
        """Every validation image once."""
        return self._each(self._transformed(self.val, 1))

    def shuffled_training_images(self, most: int) -> Iterator[Tensor]:
        """Full batches of augmented training images in the order of the first epoch, about so many images."""
        size = min(self.recipe.train.batch_size, len(self.train))
        order = EpochSampler(len(self.train), batch_size=size, seed=self.recipe.seed)
        stretch = BatchRangeSampler(order, 0, min(order.batches_per_epoch, max(1, -(-most // size))))
        images = self._transformed(self.train, 0)
        for batch in self._checked(training_loader(images, stretch, workers=self.recipe.data.workers, pin=False)):
            yield send_to_device(batch.images, self.device)

    def _transformed(self, source: Source, which: int) -> TransformedImages:
        transform = self.task.training.transforms(self.recipe.augment, self.image)[which]
        skip = self.recipe.data.skip_bad
        return TransformedImages(source, transform, seed=self.recipe.seed, replace_unreadable=skip)

    def _each(self, images: TransformedImages) -> Iterator[Batch]:
        size = self.recipe.train.batch_size if images.task.evaluation.batched else 1
        workers = self.recipe.data.workers
        loader = validation_loader(images, batch_size=size, processes=1, rank=0, workers=workers, pin=False)
        return self._checked(loader)

    def _checked(self, batches: DataLoader[Any]) -> Iterator[Batch]:
        for batch in batches:
            if batch.unreadable and not self.recipe.data.skip_bad:
                raise HoldfastError(f"{batch.unreadable[0]}; --data.skip_bad=true continues without such images")
            yield batch


def open_images(recipe: Recipe, model: nn.Module, *, classes: tuple[str, ...] | None = None) -> RecipeImages:
    """The images of a recipe for a model, which moves to the recipe's device; ``classes`` says their order."""
    train, val = open_sources(recipe.data, seed=recipe.seed, order=lambda _: classes)
    device = choose_device(recipe.train.device, model, fixed=True)
    model.to(device)
    return RecipeImages(recipe, train, val, image_format(recipe.data, model), device)


@torch.no_grad()
def validation_scores(model: nn.Module, images: RecipeImages) -> dict[str, float]:
    """The task's scores of a model on the validation images, in percent; the first one decides what is best."""
    model.eval()
    task, device = images.task, images.device
    counts = task.training.tally(None, None).to(device)
    for batch in images.each_validation_image():
        if len(batch.images) > 0:
            output = model(send_to_device(batch.images, device))
            counts = counts + task.training.tally(output, send_to_device(batch.targets, device))
    return task.training.validation_scores(counts)
