"""Images in class folders, as torchvision's ImageFolder reads them: ``DIR/<class>/**/<image>``."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"})


class FolderSource:
    """One folder per class, sorted by name; the id of an image is its path below the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.classes = tuple(sorted(entry.name for entry in _entries(root) if entry.is_dir()))
        if not self.classes:
            raise HoldfastError(f"folder:{root} must hold one folder per class, got no folder at all")
        found = [(path, label) for label, name in enumerate(self.classes) for path in _images_below(root, name)]
        # one array of fixed-width text instead of a list: forked workers then share its memory
        self._paths = np.array([path for path, _ in found], dtype=np.str_)
        self.targets = np.array([label for _, label in found], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The path below the root, with forward slashes."""
        return str(self._paths[index])

    def image(self, index: int) -> Image.Image:
        """Decode one file."""
        id = self.id(index)
        return decoded(self.root / id, id=id)


def decoded(path: Path, *, id: str) -> Image.Image:
    """One file as an RGB image; raises :class:`UnreadableImage` with that id."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadableImage(id, str(error) or type(error).__name__) from error


def open_folder(rest: str, *, split: str) -> FolderSource:
    """``folder:DIR``. The split is the folder's business: name another folder for validation."""
    return FolderSource(Path(rest).expanduser())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise HoldfastError(f"folder:{folder} must be a folder of class folders ({error.strerror})") from error


def _images_below(root: Path, name: str) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root / name, followlinks=True):
        subfolders.sort()
        for file in sorted(files):
            if os.path.splitext(file)[1].lower() in EXTENSIONS:
                yield Path(folder, file).relative_to(root).as_posix()
