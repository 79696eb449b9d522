"""CIFAR-10 and CIFAR-100 through torchvision, which verifies the archive's checksum before reading it."""

from functools import partial
from pathlib import Path

import numpy as np

from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError

DEFAULT_FOLDER = Path("~/.cache/holdfast")


def open_cifar(rest: str, *, split: str, kind: str, download: bool = False) -> ArraySource:
    """Open ``cifar10:[DIR]`` or ``cifar100:[DIR]``: the train split for training, otherwise the test split."""
    from torchvision import datasets

    root = Path(rest or DEFAULT_FOLDER).expanduser()
    part = "train" if split == "train" else "test"
    dataset = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[kind]
    try:
        data = dataset(str(root), train=part == "train", download=download)
    except (RuntimeError, OSError) as error:
        hint = "the download failed" if download else "add --data.download=true to fetch it"
        raise HoldfastError(f"{kind} must be in {str(root)!r}, but it is missing or damaged; {hint}") from error
    targets = np.asarray(data.targets, dtype=np.int64)
    return ArraySource(f"{kind}/{part}", data.data, targets, tuple(data.classes), np.arange(len(targets)))


open_cifar10 = partial(open_cifar, kind="cifar10")
open_cifar100 = partial(open_cifar, kind="cifar100")
