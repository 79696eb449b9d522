"""Perturbation sequences from disk: ImageNet-P, Hendrycks & Dietterich 2019.

Read is ``DIR/<folder>/<wnid>/<sequence>``, where a sequence is either a film ``<sequence>.mp4``, as distributed and
decoded by OpenCV, or a folder of frames ``<sequence>/<frame>.png`` in the order of the numbers in their names. The
distributed films are lossy (x264); frames cut from them by another decoder may differ. Nothing is
resized or cropped. Classes are sorted folder names, so labels are ranks.
"""

import os
import re
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.sequences import frame_count
from holdfast.data.folders import EXTENSIONS, decoded
from holdfast.data.source import UnreadableImage
from holdfast.errors import HoldfastError

FILMS = frozenset({".mp4", ".avi", ".mkv"})

Frames = NDArray[np.uint8]  # F H W 3


class FilmSource:
    """Sequences of one perturbation with the class of what they show; the id is the path below the root."""

    def __init__(self, root: Path, *, frames: int) -> None:
        self.root = root
        self.frame_count = frames
        self.classes = tuple(entry.name for entry in _listed(root) if entry.is_dir())
        if not self.classes:
            raise HoldfastError(f"ImageNet-P in {str(root)!r} must hold one folder per class, got no folder at all")
        found = [
            (f"{name}/{entry.name}", label)
            for label, name in enumerate(self.classes)
            for entry in _listed(root / name)
            if entry.is_dir() or entry.suffix.lower() in FILMS
        ]
        self._paths = np.array([path for path, _ in found], dtype=np.str_)
        self.targets = np.array([label for _, label in found], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The path below the root without the ending of a film."""
        path = str(self._paths[index])
        stem, ending = os.path.splitext(path)
        return stem if ending.lower() in FILMS else path

    def frames(self, index: int) -> Frames:
        """All frames of one sequence, uint8 RGB; raises :class:`UnreadableImage` for any other number of them."""
        path = self.root / str(self._paths[index])
        frames = _frames_in_folder(path, id=self.id(index)) if path.is_dir() else _frames_of_film(path)
        if len(frames) != self.frame_count:
            raise UnreadableImage(self.id(index), f"expected {self.frame_count} frames, got {len(frames)}")
        if len({frame.shape for frame in frames}) != 1:
            raise UnreadableImage(self.id(index), "expected frames of one size, got several")
        return np.stack(frames)


def open_imagenet_p(root: Path | str, *, kind: str, folder: str | None = None, preset: str = "imagenet") -> FilmSource:
    """The sequences of one perturbation.

    Args:
        root: the folder that holds one folder per perturbation.
        kind: which perturbation; says how many frames a sequence has.
        folder: the folder's name where it is not the kind's, as for the stronger levels of the noises.
        preset: ``imagenet``, or ``tiny`` for Tiny-ImageNet-P.
    """
    frames = frame_count(kind, preset=preset)
    path = Path(root).expanduser() / (folder or kind)
    if not path.is_dir():
        raise HoldfastError(f"ImageNet-P in {str(root)!r} must hold a folder per kind, but {path.name} is missing")
    return FilmSource(path, frames=frames)


def _listed(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _in_order(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.stem)], path.name


def _frames_in_folder(folder: Path, *, id: str) -> list[Frames]:
    files = sorted((path for path in _listed(folder) if path.suffix.lower() in EXTENSIONS), key=_in_order)
    return [np.asarray(decoded(path, id=f"{id}/{path.name}")) for path in files]


def _frames_of_film(path: Path) -> list[Frames]:
    film = cv2.VideoCapture(str(path))
    frames: list[Frames] = []
    try:
        while True:
            more, frame = film.read()
            if not more:
                return frames
            frames.append(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    finally:
        film.release()
