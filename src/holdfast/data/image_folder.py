"""Images in class folders, as torchvision's ImageFolder reads them: ``DIR/<class>/**/<image>``."""

import logging
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from holdfast.data.source import UnreadableImage, in_label_order
from holdfast.errors import HoldfastError
from holdfast.io.folder_index import FileNames, index_folder
from holdfast.io.images import UnreadableFile, check_exif, decode

if TYPE_CHECKING:
    from torch import Tensor

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
GIF = ".gif"  # several images in one file: left out, and said
NO_CLASS = "__MACOSX"  # what a Mac adds to archives
logger = logging.getLogger(__name__)


class FolderSource:
    """One folder per class, integers in the order of their values, else by name; an image's id is its path below."""

    def __init__(self, root: Path, *, exif: str = "ignore") -> None:
        self.root, self.exif = root, check_exif(exif)
        self.classes = in_label_order(entry.name for entry in _entries(root) if entry.is_dir())
        if not self.classes:
            raise HoldfastError(f"folder:{root} must hold one folder per class, got no folder at all")
        self._paths, self.targets, self.gifs = _images(root, self.classes)
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


def decode_file(path: Path, *, id: str) -> Image.Image:
    """One file as an RGB image; raises :class:`UnreadableImage` with that id."""
    try:
        return decode(path).image
    except UnreadableFile as error:
        raise UnreadableImage(id, str(error)) from error


def open_folder(rest: str, *, split: str, exif: str = "ignore") -> FolderSource:
    """``folder:DIR``. The split is the folder's business: name another folder for validation."""
    source = FolderSource(Path(rest).expanduser(), exif=exif)
    for sentence in _cautions(source):
        _warn_once(sentence)
    return source


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".") and entry.name != NO_CLASS]
    except OSError as error:
        raise HoldfastError(f"folder:{folder} must be a folder of class folders ({error.strerror})") from error


def _images(root: Path, classes: tuple[str, ...]) -> tuple[FileNames, np.ndarray, list[str]]:
    """The images of all classes, their labels, and the GIF files among them, which are left out.

    What lies beside the class folders, or is hidden, is none of them.
    """
    names = index_folder(root, EXTENSIONS | {GIF}, links=True).names
    labels = {name: label for label, name in enumerate(classes)}
    targets = np.fromiter((labels.get(name.split("/", 1)[0], -1) if "/" in name else -1 for name in names), np.int64)
    gifs: list[int] = []
    if GIF.encode() in names.text.tobytes().lower():  # a quick look at a million names
        gifs = [place for place, name in enumerate(names) if targets[place] >= 0 and name.lower().endswith(GIF)]
    targets[gifs] = -1
    if (targets >= 0).all():
        return names, targets, []
    kept = np.flatnonzero(targets >= 0)
    return FileNames.of([names[int(place)] for place in kept]), targets[kept], [names[place] for place in gifs]


def _cautions(source: FolderSource) -> Iterator[str]:
    """What a user should know of a folder that is read all the same."""
    where, gifs = f"folder:{source.root}", source.gifs
    if gifs:
        are = "files are" if len(gifs) > 1 else "file is"
        yield f"{where}: {len(gifs)} GIF {are} left out, such as {gifs[0]!r}; convert them to PNG to use them"
    counts = np.bincount(source.targets, minlength=len(source.classes))
    empty = [source.classes[label] for label in np.flatnonzero(counts == 0)]
    if empty and len(source):
        shown = ", ".join(map(repr, empty[:5])) + (" …" if len(empty) > 5 else "")
        have = "has" if len(empty) == 1 else "have"
        yield f"{where}: {len(empty)} of {len(source.classes)} classes {have} no image: {shown}"


@cache
def _warn_once(sentence: str) -> None:
    logger.warning(sentence)


def _shared_bytes(count: int) -> "Tensor":
    import torch

    return torch.zeros(count, dtype=torch.uint8).share_memory_()
