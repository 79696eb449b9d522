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
from holdfast.io.validation import counted

if TYPE_CHECKING:
    from torch import Tensor

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})
SPLITS = frozenset({"train", "val", "valid", "validation", "test"})
GIF = ".gif"  # may hold several frames: skipped with a warning
NO_CLASS = "__MACOSX"  # resource forks that macOS adds to ZIP archives; not a class
logger = logging.getLogger(__name__)


class FolderSource:
    """One folder per class, in the order of `in_label_order`; an image's id is its relative path."""

    def __init__(self, root: Path, *, exif: str = "ignore") -> None:
        self.root, self.exif = root, check_exif(exif)
        self.classes = in_label_order(listed_folders(root))
        if not self.classes:
            raise HoldfastError(f"folder:{root} must hold one folder of images per class, got {_flat(root)}")
        self._paths, self.targets, self.gifs = _images(root, self.classes)
        self._turned = shared_bytes(
            len(self.targets)
        )  # shared memory: data loader workers write, the main process reads

    @property
    def turned_count(self) -> int:
        """Number of images with a non-trivial EXIF orientation among those decoded so far, over all workers."""
        return int(self._turned.sum())

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The path relative to the root, with forward slashes."""
        return self._paths[index]

    def image(self, index: int) -> Image.Image:
        """Decode one image file; raises `UnreadableImage`."""
        id = self.id(index)
        try:
            found = decode(self.root / id, exif=self.exif)
        except UnreadableFile as error:
            raise UnreadableImage(id, str(error)) from error
        if found.turned:
            self._turned[index] = 1
        return found.image


def decode_file(path: Path, *, id: str) -> Image.Image:
    """Decode one file as RGB; raises `UnreadableImage` with that id."""
    try:
        return decode(path).image
    except UnreadableFile as error:
        raise UnreadableImage(id, str(error)) from error


def open_folder(rest: str, *, split: str, exif: str = "ignore") -> FolderSource:
    """Open ``folder:DIR``; ``split`` is ignored, so name another folder for validation."""
    source = FolderSource(Path(rest).expanduser(), exif=exif)
    _refuse_splits(source)
    for sentence in _warnings(source):
        _warn_once(sentence)
    return source


def _flat(root: Path) -> str:
    """The contents of a folder without folders, in words."""
    count = sum(Path(entry.name).suffix.lower() in EXTENSIONS for entry in _entries(root))
    return f"{counted(count, 'image')} and no folders" if count else "no folders"


def _refuse_splits(source: FolderSource) -> None:
    """Raise an error for a folder of splits, which would be taken for classes."""
    if not SPLITS.issuperset(source.classes):
        return
    inner = [name for name in source.classes if listed_folders(source.root / name)]
    if len(inner) == len(source.classes):
        names = " or ".join(f"'folder:{source.root / name}'" for name in inner)
        raise HoldfastError(f"folder:{source.root} holds splits instead of classes; did you mean {names}?")


def listed_folders(folder: Path, *, what: str = "folder") -> list[str]:
    """Names of the folders in a folder, without hidden ones."""
    return [entry.name for entry in _entries(folder, what=what) if entry.is_dir()]


def _entries(folder: Path, *, what: str = "folder") -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".") and entry.name != NO_CLASS]
    except OSError as error:
        kind = "class folders" if what == "folder" else "folders"
        problem = (
            f": {str(folder)!r} does not exist" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
        )
        raise HoldfastError(f"{what}:{folder} must be a folder of {kind}{problem}") from error


def _images(root: Path, classes: tuple[str, ...]) -> tuple[FileNames, np.ndarray, list[str]]:
    """Return the images of all classes, their labels, and the skipped GIF files.

    Files outside class folders and hidden files are no images.
    """
    names = index_folder(root, EXTENSIONS | {GIF}, links=True).names
    labels = {name: label for label, name in enumerate(classes)}
    targets = np.fromiter((labels.get(name.split("/", 1)[0], -1) if "/" in name else -1 for name in names), np.int64)
    gifs: list[int] = []
    if (
        GIF.encode() in names.text.tobytes().lower()
    ):  # one substring search instead of a Python loop over a million names
        gifs = [place for place, name in enumerate(names) if targets[place] >= 0 and name.lower().endswith(GIF)]
    targets[gifs] = -1
    if (targets >= 0).all():
        return names, targets, []
    rows = np.flatnonzero(targets >= 0)
    return FileNames.of([names[int(row)] for row in rows]), targets[rows], [names[place] for place in gifs]


def _warnings(source: FolderSource) -> Iterator[str]:
    """Warnings about a folder that is usable nevertheless."""
    where, gifs = f"folder:{source.root}", source.gifs
    if gifs:
        are = "files are" if len(gifs) > 1 else "file is"
        yield f"{where}: {len(gifs)} GIF {are} skipped, such as {gifs[0]!r}; convert them to PNG to use them"
    counts = np.bincount(source.targets, minlength=len(source.classes))
    empty = [source.classes[label] for label in np.flatnonzero(counts == 0)]
    if empty and len(source):
        names = ", ".join(map(repr, empty[:5])) + (" …" if len(empty) > 5 else "")
        have = "has" if len(empty) == 1 else "have"
        yield f"{where}: {len(empty)} of {len(source.classes)} classes {have} no image: {names}"


@cache
def _warn_once(sentence: str) -> None:
    logger.warning(sentence)


def shared_bytes(count: int) -> "Tensor":
    """Zeros that data loader workers write and the main process reads."""
    import torch

    return torch.zeros(count, dtype=torch.uint8).share_memory_()
