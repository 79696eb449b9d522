"""Cue conflict stimuli (Geirhos et al., ICLR 2019): the shape of one thing with the texture of another.

Files are ``DIR/SHAPE/SHAPEn-TEXTUREm.png``, such as ``airplane/airplane1-bicycle2.png``; a prefix that ends in ``_``
is ignored. The label of an image is its shape; 80 of the 1,280 images have the texture of the same class.
"""

import re
from pathlib import Path

from holdfast.data.image_folder import FolderSource
from holdfast.errors import HoldfastError
from holdfast.published import published
from holdfast.published.cue_names import cues_of

SHOWN = 3


def open_cue_conflict(root: Path) -> FolderSource:
    """Open the stimuli; other folders than the 16 categories, and names without two cues, are refused."""
    source = FolderSource(root.expanduser())
    wanted = tuple(published("imagenet_16")["classes"])
    if source.classes != wanted:
        apart = sorted(set(source.classes) ^ set(wanted))
        raise HoldfastError(
            f"cue-conflict in {str(root)!r} must hold the folders of the 16 categories, but "
            f"{', '.join(apart[:SHOWN])}{' …' if len(apart) > SHOWN else ''} {'are' if len(apart) > 1 else 'is'} "
            "missing or too many"
        )
    names = [source.id(row) for row in range(len(source))]
    odd = [name for name in names if not _fits(name, wanted)]
    if odd:
        raise HoldfastError(
            f"cue-conflict in {str(root)!r} must hold files called like airplane/airplane1-bicycle2.png, "
            f"got {', '.join(map(repr, odd[:SHOWN]))}"
        )
    return source


def _fits(name: str, classes: tuple[str, ...]) -> bool:
    cues = cues_of(name)
    return cues is not None and cues.shape == re.split("/", name)[0] and cues.texture in classes
