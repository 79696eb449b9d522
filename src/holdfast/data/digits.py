"""Digits of scikit-learn as 32-px RGB images: an embedded data set that needs no download."""

from functools import cache

import numpy as np
from PIL import Image

from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError, nearest

SIZE = 32
# within each class, of every six images in their original order: four train, one val, one test
_SPLIT_OF_POSITION = ("train", "train", "train", "train", "val", "test")
SPLITS = ("train", "val", "test")


def open_digits(rest: str, *, split: str) -> ArraySource:
    """Open ``digits`` (the given split) or ``digits:train|val|test``.

    UCI's optical digits as shipped by scikit-learn: 1797 images of 8×8, enlarged fourfold (bicubic).
    """
    split = rest or split
    if split not in SPLITS:
        raise HoldfastError(f"digits has the splits {', '.join(SPLITS)}, got {split!r}{nearest(split, SPLITS)}")
    images, targets = _all_digits()
    numbers = np.flatnonzero(split_of_every_image(targets) == split)
    classes = tuple(str(digit) for digit in range(10))
    return ArraySource("digits", images[numbers], targets[numbers], classes, numbers)


@cache
def _all_digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    levels = np.round(digits.images * (255 / 16)).astype(np.uint8)
    enlarged = [np.asarray(Image.fromarray(level).resize((SIZE, SIZE), Image.Resampling.BICUBIC)) for level in levels]
    return np.repeat(np.stack(enlarged)[..., None], 3, axis=-1), digits.target.astype(np.int64)


def split_of_every_image(targets: np.ndarray) -> np.ndarray:
    """Assign train, val or test to every digit of scikit-learn by its class and its position within the class."""
    splits = np.empty(len(targets), dtype="<U5")
    for label in np.unique(targets):
        members = np.flatnonzero(targets == label)
        splits[members] = [_SPLIT_OF_POSITION[position % 6] for position in range(len(members))]
    return splits
