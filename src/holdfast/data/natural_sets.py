"""Readers of ImageNet-V2 (Recht et al. 2019) and ObjectNet (Barbu et al. 2019), as distributed.

===========  ==========================================================================================
ImageNet-V2  ``DIR/<0 … 999>/*`` or ``DIR/<wnid>/*``: all 1000 classes; a number is the class itself
ObjectNet    ``DIR/<object>/*`` or ``DIR/images/<object>/*``: the 113 of 313 folders that ImageNet has; 2 pixels
             of red border are cut off on every side
===========  ==========================================================================================
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.data.image_folder import FolderSource
from holdfast.data.imagenet_classes import COUNT, are_wnids, wnids
from holdfast.data.source import UnreadableImage, are_integers
from holdfast.errors import HoldfastError
from holdfast.io.folder_index import FileNames
from holdfast.published import published

BORDER = 2  # pixels of ObjectNet's red border
SHOWN = 3


def open_imagenet_v2(root: Path | str) -> FolderSource:
    """Open one of ImageNet-V2's three sets; the rank of a folder must be its class, so all 1000 must be there."""
    source = FolderSource(Path(root).expanduser())
    names = source.classes
    if are_wnids(names):
        wanted: Sequence[str] = wnids()
    elif are_integers(names):
        wanted, names = [str(number) for number in range(COUNT)], tuple(str(int(name)) for name in names)
    else:
        wanted = wnids()
    _check_names(names, wanted, what=f"ImageNet-V2 in {str(root)!r}", held="1000 folders, 0 to 999 or wnids")
    source.classes = wnids()  # also of numbered folders, so that tables and reports have names
    return source


class ObjectNetFolder(FolderSource):
    """ObjectNet's folders that are among ImageNet's classes, without the red border of the images."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / "images" if (root / "images").is_dir() else root)
        kept = tuple(published("objectnet")["classes"])
        there = tuple(name for name in self.classes if name in kept)
        _check_names(there, kept, what=f"ObjectNet in {str(root)!r}", held="113 folders that ImageNet has")
        labels = np.array([kept.index(name) if name in kept else -1 for name in self.classes])[self.targets]
        rows = np.flatnonzero(labels >= 0)
        self._paths, self.targets = FileNames.of([self._paths[int(row)] for row in rows]), labels[rows]
        self.classes = kept

    def image(self, index: int) -> Image.Image:
        """One image without its border."""
        image = super().image(index)
        width, height = image.size
        if min(width, height) <= 2 * BORDER:
            raise UnreadableImage(
                self.id(index), f"expected more than a border of {BORDER} pixels, got {width}×{height}"
            )
        return image.crop((BORDER, BORDER, width - BORDER, height - BORDER))


def open_objectnet(root: Path | str) -> ObjectNetFolder:
    """Open ObjectNet; its terms forbid any use in training, so it is no data of recipes."""
    return ObjectNetFolder(Path(root).expanduser())


def _check_names(names: Sequence[str], wanted: Sequence[str], *, what: str, held: str) -> None:
    missing, extra = (sorted(set(one) - set(other)) for one, other in ((wanted, names), (names, wanted)))
    if missing or extra or len(names) != len(wanted):
        told = [
            f"{len(found)} are {word} ({', '.join(found[:SHOWN])}{' …' if len(found) > SHOWN else ''})"
            for word, found in (("missing", missing), ("too many", extra))
            if found
        ]
        raise HoldfastError(f"{what} must hold its {held}, but {' and '.join(told) or 'some are there twice'}")
