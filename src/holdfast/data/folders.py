"""Images in class folders, as torchvision's ImageFolder reads them: ``DIR/<class>/**/<image>``."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from holdfast.data.class_order import in_label_order
from holdfast.data.source import UnreadableImage
from holdfast.decoding import UnreadableFile, check_exif, decode
from holdfast.errors import HoldfastError
from holdfast.listing import Names, listed

if TYPE_CHECKING:
    from torch import Tensor

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})


class FolderSource:
    """One folder per class, integers in the order of their values, else by name; an image's id is its path below."""

    def __init__(self, root: Path, *, exif: str = "ignore") -> None:
        self.root, self.exif = root, check_exif(exif)
        self.classes = in_label_order(entry.name for entry in _entries(root) if entry.is_dir())
        if not self.classes:
            raise HoldfastError(f"folder:{root} must hold one folder per class, got no folder at all")
        self._paths, self.targets = _images(root, self.classes)
        self._turned = _shared_bytes(len(self.targets))  # workers note it, others read it

    @property
    def turned(self) -> int:
        """How many of the images decoded so far, in this process and its workers, ask to be rotated by EXIF."""
        return int(self._turned.sum())

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The path below the root, with forward slashes."""
        return self._paths[index]

    def image(self, index: int) -> Image.Image:
        """Decode one file."""
        id = self.id(index)
        try:
            found = decode(self.root / id, exif=self.exif)
        except UnreadableFile as error:
            raise UnreadableImage(id, str(error)) from error
        if found.turned:
            self._turned[index] = 1
        return found.image


def decoded(path: Path, *, id: str) -> Image.Image:
    """One file as an RGB image; raises :class:`UnreadableImage` with that id."""
    try:
        return decode(path).image
    except UnreadableFile as error:
        raise UnreadableImage(id, str(error)) from error


def open_folder(rest: str, *, split: str, exif: str = "ignore") -> FolderSource:
    """``folder:DIR``. The split is the folder's business: name another folder for validation."""
    return FolderSource(Path(rest).expanduser(), exif=exif)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise HoldfastError(f"folder:{folder} must be a folder of class folders ({error.strerror})") from error


def _images(root: Path, classes: tuple[str, ...]) -> tuple[Names, np.ndarray]:
    """The images of all classes and their labels; what lies beside the class folders, or is hidden, is none of them."""
    names = listed(root, EXTENSIONS, links=True).names
    labels = {name: label for label, name in enumerate(classes)}
    targets = np.fromiter((labels.get(name.split("/", 1)[0], -1) if "/" in name else -1 for name in names), np.int64)
    if (targets >= 0).all():
        return names, targets
    kept = np.flatnonzero(targets >= 0)
    return Names.of([names[int(place)] for place in kept]), targets[kept]


def _shared_bytes(count: int) -> "Tensor":
    import torch

    return torch.zeros(count, dtype=torch.uint8).share_memory_()
