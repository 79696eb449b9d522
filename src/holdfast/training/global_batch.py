"""How many images a step takes over all processes, and batch norms that see all of them.

Published learning rates belong to a published batch: ``train.global_batch`` keeps it on any number of processes.
"""

from dataclasses import replace

from torch import nn

from holdfast.errors import HoldfastError
from holdfast.training.recipe import Recipe

PER_PROCESS_NOTE = (
    "batch norms take the statistics of each process' own images: SyncBatchNorm (train.sync_bn) works on CUDA alone"
)
PLAIN_PARTS = ("dilation_predictor",)  # TAP's batch norm, which the release leaves plain among synchronised ones


def share_batch(recipe: Recipe, processes: int) -> Recipe:
    """The recipe with the batch and accumulation by which so many processes take steps of its global batch."""
    images = recipe.train.global_batch
    return recipe if images is None else share_images(recipe, images, processes)


def share_images(recipe: Recipe, images: int, processes: int) -> Recipe:
    """The recipe by which so many processes take so many images per step.

    No process sees more images at once than train.batch_size: fewer processes accumulate more, and never less often
    than train.accumulate.
    """
    mine, rest = divmod(images, processes)
    if rest:
        raise HoldfastError(
            f"the run takes {images} images per step, which {processes} processes cannot share evenly; "
            f"choose a number of processes that divides {images}"
        )
    train = recipe.train
    pairs = 2 if recipe.augment.mixup > 0 or recipe.augment.cutmix > 0 else 1  # they mix an even number of images
    passes = [count for count in range(train.accumulate, mine + 1) if mine % (count * pairs) == 0]
    times = next((count for count in passes if mine // count <= train.batch_size), None)
    if times is None:
        even = "an even number of " if pairs == 2 else ""
        raise HoldfastError(
            f"the run takes {images} images per step, {mine} in each of {processes} processes, which cannot pass in "
            f"equal parts of {even}at most {train.batch_size} images (train.batch_size) in at least {train.accumulate} "
            "passes (train.accumulate); change one of them or train.global_batch"
        )
    return replace(recipe, train=replace(train, batch_size=mine // times, accumulate=times))


def synchronize_batch_norms(module: nn.Module) -> nn.Module:
    """The module with torch's SyncBatchNorm in place of its batch norms, but for those that the papers leave plain."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    for name, child in module.named_children():
        if name not in PLAIN_PARTS:
            setattr(module, name, synchronize_batch_norms(child))
    return module
