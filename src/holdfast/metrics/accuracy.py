"""Top-1 and top-5 accuracy from logits, and the 200-class restriction of ImageNet-A and ImageNet-R.

Functions return one value per image, because intervals and paired comparisons need them; the score is their mean.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError, nearest
from holdfast.published import published

RESTRICTED = ("imagenet_a", "imagenet_r")


def checked_logits(logits: ArrayLike, *, classes: int = 1) -> NDArray[np.floating]:
    """Check and return logits as float64 (…, classes), without NaN and with at least ``classes`` classes."""
    array = np.asarray(logits)
    if array.dtype.kind not in "fiu":
        raise HoldfastError(f"logits must be numbers, got {array.dtype}")
    if array.ndim < 1 or array.shape[-1] < classes:
        raise HoldfastError(f"logits must have at least {classes} classes in the last axis, got shape {array.shape}")
    if np.isnan(array).any():
        raise HoldfastError(f"logits must be numbers, got NaN in {int(np.isnan(array).any(axis=-1).sum())} rows")
    return array.astype(np.float64, copy=False)


def checked_targets(targets: ArrayLike, *, shape: tuple[int, ...], classes: int) -> NDArray[np.int64]:
    """Check and return targets as int64, one per row of logits, each below ``classes``."""
    array = np.asarray(targets)
    if array.dtype.kind not in "iu" or array.shape != shape:
        raise HoldfastError(f"targets must be integers of shape {shape}, got {array.dtype} of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < classes:
        raise HoldfastError(f"targets must be 0 to {classes - 1}, got {array.min()} to {array.max()}")
    return array.astype(np.int64)


def ranked(logits: ArrayLike, *, count: int) -> NDArray[np.int64]:
    """The ``count`` classes with the largest logits, best first; ties go to the lower class index.

    Hendrycks & Dietterich 2019 break ties the same way (ordinal ranks).
    """
    array = checked_logits(logits, classes=count)
    # a stable sort of the negated logits puts the lower index first among ties; reversing an ascending sort would not
    return np.argsort(-array, axis=-1, kind="stable")[..., :count]  # … count


def predicted(logits: ArrayLike) -> NDArray[np.int64]:
    """The class with the largest logit."""
    return np.argmax(checked_logits(logits), axis=-1)


def correct(logits: ArrayLike, targets: ArrayLike, *, top: int = 1) -> NDArray[np.bool_]:
    """Whether the target is among the ``top`` best classes, one value per image.

    A model with fewer classes than ``top`` raises an error, because it would always be correct.
    """
    array = checked_logits(logits, classes=top)
    labels = checked_targets(targets, shape=array.shape[:-1], classes=array.shape[-1])
    return (ranked(array, count=top) == labels[..., None]).any(axis=-1)


def accuracy(logits: ArrayLike, targets: ArrayLike, *, top: int = 1) -> float:
    """Top-1 (or top-``top``) accuracy, 0 to 1."""
    hits = correct(logits, targets, top=top)
    if not hits.size:
        raise HoldfastError("targets must contain at least one image, got none")
    return float(hits.mean())


def restricted_classes(dataset: str) -> NDArray[np.int64]:
    """The ImageNet-1k indices of the 200 classes of ``imagenet_a`` or ``imagenet_r``, ascending.

    ImageNet-A, Hendrycks et al. 2021 (natural adversarial examples); ImageNet-R, Hendrycks et al. 2021 (renditions).
    """
    if dataset not in RESTRICTED:
        raise HoldfastError(f"dataset must be {' or '.join(RESTRICTED)}, got {dataset!r}{nearest(dataset, RESTRICTED)}")
    return np.array(published(f"{dataset}_indices")["indices"], dtype=np.int64)


def restricted(logits: ArrayLike, dataset: str) -> NDArray[np.floating]:
    """Select the 200 logits of ``imagenet_a`` or ``imagenet_r`` out of 1000; column r is the r-th class folder."""
    array = checked_logits(logits)
    if array.shape[-1] != 1000:
        raise HoldfastError(f"logits must be of the 1000 ImageNet classes, got {array.shape[-1]}")
    return array[..., restricted_classes(dataset)]  # … 200
