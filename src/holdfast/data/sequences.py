"""Perturbation sequences from disk: ImageNet-P and CIFAR-P, Hendrycks & Dietterich 2019.

ImageNet-P is ``DIR/<folder>/<wnid>/<sequence>``, where a sequence is either a video ``<sequence>.mp4``, as distributed
and decoded by OpenCV, or a folder of frames ``<sequence>/<frame>.png`` in numeric order. The distributed videos are
lossy (x264); frames extracted by another decoder may differ. Nothing is resized or cropped. Labels are ranks of the
sorted folder names. CIFAR-P is ``DIR/<kind>.npy``, lossless.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.sequences import frame_count
from holdfast.data.image_folder import EXTENSIONS, decode_file
from holdfast.data.official_set_readers import CIFAR_CLASSES, array, existing_folder
from holdfast.data.source import UnreadableImage, in_label_order
from holdfast.errors import HoldfastError

FILMS = frozenset({".mp4", ".avi", ".mkv"})

Frames = NDArray[np.uint8]  # F H W 3


class FilmSource:
    """Labelled sequences of one perturbation; the id is the path relative to the root."""

    def __init__(self, root: Path, *, frames: int) -> None:
        self.root = root
        self.frame_count = frames
        self.classes = in_label_order(entry.name for entry in _list_frames(root) if entry.is_dir())
        if not self.classes:
            raise HoldfastError(f"ImageNet-P in {str(root)!r} must hold one folder per class, got no folders")
        found = [
            (f"{name}/{entry.name}", label)
            for label, name in enumerate(self.classes)
            for entry in _list_frames(root / name)
            if entry.is_dir() or entry.suffix.lower() in FILMS
        ]
        self._paths = np.array([path for path, _ in found], dtype=np.str_)
        self.targets = np.array([label for _, label in found], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The relative path without the extension of a video."""
        path = str(self._paths[index])
        stem, ending = os.path.splitext(path)
        return stem if ending.lower() in FILMS else path

    def frames(self, index: int) -> Frames:
        """All frames of one sequence, uint8 RGB; raises `UnreadableImage` if their number is wrong."""
        path = self.root / str(self._paths[index])
        frames = _frames_in_folder(path, id=self.id(index)) if path.is_dir() else _frames_of_film(path)
        if len(frames) != self.frame_count:
            raise UnreadableImage(self.id(index), f"expected {self.frame_count} frames, got {len(frames)}")
        if len({frame.shape for frame in frames}) != 1:
            raise UnreadableImage(self.id(index), "expected frames of one size, got several")
        return np.stack(frames)


def open_imagenet_p(root: Path | str, *, kind: str, folder: str | None = None, preset: str = "imagenet") -> FilmSource:
    """Open the sequences of one perturbation of ImageNet-P.

    Args:
        root: the folder that holds one folder per perturbation.
        kind: the perturbation, which determines the number of frames.
        folder: the folder's name if it differs from the kind, as for the stronger noise levels.
        preset: ``imagenet``, or ``tiny`` for Tiny-ImageNet-P.
    """
    frames = frame_count(kind, preset=preset)
    path = Path(root).expanduser() / (folder or kind)
    if not path.is_dir():
        raise HoldfastError(f"ImageNet-P in {str(root)!r} must hold a folder per kind, but {path.name} is missing")
    return FilmSource(path, frames=frames)


@dataclass(frozen=True)
class ArrayFilms:
    """Sequences in one array, uint8 (N, frames, H, W, 3); a target of −1 means that no label is known."""

    name: str
    array: np.ndarray
    targets: np.ndarray
    classes: tuple[str, ...]

    @property
    def frame_count(self) -> int:
        """Number of frames per sequence."""
        return self.array.shape[1]

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """``name/number``, the id of the clean test image."""
        return f"{self.name}/{index:06d}"

    def frames(self, index: int) -> Frames:
        """All frames of one sequence, uint8 RGB."""
        return np.array(self.array[index])


def open_cifar_p(root: Path | str, *, kind: str, dataset: str = "cifar10", file: str | None = None) -> ArrayFilms:
    """Open one perturbation of CIFAR-10-P or CIFAR-100-P: ``DIR/<kind>.npy``, (N, frames, 32, 32, 3).

    Flip rates need no labels; ``labels.npy`` is read if it exists. ``file`` names the array if it differs from the
    kind, as for the stronger noise levels.
    """
    if dataset not in CIFAR_CLASSES:
        raise HoldfastError(f"dataset must be {' or '.join(CIFAR_CLASSES)}, got {dataset!r}")
    frames = frame_count(kind, preset="cifar")
    folder = existing_folder(Path(root), what="a CIFAR-P folder")
    path, labels = folder / f"{file or kind}.npy", folder / "labels.npy"
    images = array(path)
    if images.dtype != np.uint8 or images.ndim != 5 or images.shape[1] != frames or images.shape[-1] != 3:
        raise HoldfastError(f"{str(path)!r} must be uint8 (N, {frames}, H, W, 3), got {images.dtype} {images.shape}")
    targets = array(labels) if labels.is_file() else np.full(len(images), -1)
    if (
        targets.shape != (len(images),)
        or not -1 <= targets.min(initial=0) <= targets.max(initial=0) < CIFAR_CLASSES[dataset]
    ):
        raise HoldfastError(f"labels.npy must hold {len(images)} classes of {dataset}, got shape {targets.shape}")
    classes = tuple(str(number) for number in range(CIFAR_CLASSES[dataset]))
    return ArrayFilms(f"{dataset}/test", images, targets.astype(np.int64), classes)


def _list_frames(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _in_order(path: Path) -> tuple[list[int], str]:
    return [int(number) for number in re.findall(r"\d+", path.stem)], path.name


def _frames_in_folder(folder: Path, *, id: str) -> list[Frames]:
    files = sorted((path for path in _list_frames(folder) if path.suffix.lower() in EXTENSIONS), key=_in_order)
    return [np.asarray(decode_file(path, id=f"{id}/{path.name}")) for path in files]


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
