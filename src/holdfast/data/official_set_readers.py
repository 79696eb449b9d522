"""Readers of the official robustness sets as distributed; pixels change only as the protocol demands.

====================  ===============================================================  ==========================
set                   layout                                                           what is read
====================  ===============================================================  ==========================
ImageNet-C            ``DIR/<kind>/<severity>/<wnid>/*.JPEG``                          centre crop 224, no resize
ImageNet-C-bar        likewise, or its magnitudes, as generated, for severities: 2.35  centre crop 224, no resize
CIFAR-10-C, -100-C    ``DIR/<kind>.npy``, ``DIR/labels.npy``, five severities stacked  the bytes
CIFAR-10-C-bar        likewise                                                         the bytes
ImageNet-A, -R        ``DIR/<wnid>/*``, their 200 wnids                                the files
ImageNet-Sketch       ``DIR/<wnid>/*``                                                 the files
====================  ===============================================================  ==========================

Labels are ranks of the sorted folder names. An image has the same id in every cell of a set.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.cells import CellSpec, corruption_cell
from holdfast.corruptions.severities import PUBLISHED, SEVERITIES, STANDARD, parameters
from holdfast.data.image_folder import FolderSource
from holdfast.data.source import ArraySource, UnreadableImage
from holdfast.errors import HoldfastError, nearest
from holdfast.published import published

CIFAR_CLASSES = {"cifar10": 10, "cifar100": 100}


class CroppedFolder(FolderSource):
    """A folder of class folders with centre-cropped images; nothing is resized or padded."""

    def __init__(self, root: Path, *, side: int) -> None:
        super().__init__(root)
        self.side = side

    def image(self, index: int) -> Image.Image:
        """The centre crop of one image."""
        image = super().image(index)
        width, height = image.size
        if min(width, height) < self.side:
            raise UnreadableImage(self.id(index), f"expected at least {self.side}×{self.side}, got {width}×{height}")
        left, top = (width - self.side) // 2, (height - self.side) // 2
        # half-open box: PIL excludes the right and lower edge, so the crop has exactly ``side`` pixels
        return image.crop((left, top, left + self.side, top + self.side))


def missing_cells(root: Path | str, *, kinds: Sequence[str] = STANDARD) -> list[CellSpec]:
    """List the missing cells of an ImageNet-C tree in order; a score without them is partial."""
    folder = existing_folder(Path(root), what="an ImageNet-C tree")
    cells = [corruption_cell(kind, severity) for kind in kinds for severity in SEVERITIES]
    return [cell for cell in cells if not _cell_folder(folder, cell).is_dir()]


def _cell_folder(root: Path, cell: CellSpec) -> Path:
    """The folder of a cell; the generator of ImageNet-C-bar names it by the magnitude with two decimals."""
    folder = root / str(cell)
    if folder.is_dir() or "magnitude" not in (values := parameters(cell.kind, cell.severity, preset="imagenet")):
        return folder
    return root / cell.kind / f"{values['magnitude']:.2f}"


def open_imagenet_c(
    root: Path | str, *, kind: str, severity: int, side: int = 224, classes: Sequence[str] | None = None
) -> CroppedFolder:
    """Open one cell of ImageNet-C, Hendrycks & Dietterich 2019: the stored 224-px files, centre crop 224 and no resize.

    Args:
        root: the folder that holds one folder per corruption.
        kind: the corruption.
        severity: 1 to 5.
        side: 224; 64 for Tiny-ImageNet-C, 299 for the Inception set.
        classes: the expected class folders, such as those of the clean set; None skips the check.
    """
    cell = _checked_cell(kind, severity)
    folder = existing_folder(Path(root), what="an ImageNet-C tree")
    if not (folder / kind).is_dir():
        raise HoldfastError(f"ImageNet-C in {str(root)!r} must hold a folder per kind, but {kind} is missing")
    if not _cell_folder(folder, cell).is_dir():
        raise HoldfastError(
            f"ImageNet-C in {str(root)!r} must hold 5 severities per kind, but severity {severity} of {kind} is missing"
        )
    source = CroppedFolder(_cell_folder(folder, cell), side=side)
    if classes is not None:
        _check_classes(source, classes, name=f"ImageNet-C {cell}")
    return source


def open_cifar_c(root: Path | str, *, kind: str, severity: int, dataset: str = "cifar10") -> ArraySource:
    """Open one cell of CIFAR-10-C or CIFAR-100-C: severity s is rows 10 000 (s − 1) to 10 000 s (exclusive) of 50 000.

    The ids are those of the clean test set, ``cifar10/test/000123``; class names are numbers.
    """
    if dataset not in CIFAR_CLASSES:
        raise HoldfastError(f"dataset must be {' or '.join(CIFAR_CLASSES)}, got {dataset!r}")
    _checked_cell(kind, severity)
    folder = existing_folder(Path(root), what="a CIFAR-C folder")
    images, labels = array(folder / f"{kind}.npy"), array(folder / "labels.npy")
    _check_stack(images, labels, name=str(folder / f"{kind}.npy"), classes=CIFAR_CLASSES[dataset])
    size = len(images) // len(SEVERITIES)
    rows = slice(size * (severity - 1), size * severity)
    classes = tuple(str(number) for number in range(CIFAR_CLASSES[dataset]))
    return ArraySource(f"{dataset}/test", images[rows], labels[rows].astype(np.int64), classes, np.arange(size))


def open_imagenet_a(root: Path | str) -> FolderSource:
    """ImageNet-A, Hendrycks et al. 2021: 7500 images of 200 classes, see ``evaluation.restricted``."""
    return _of_200_classes(root, "imagenet_a")


def open_imagenet_r(root: Path | str) -> FolderSource:
    """ImageNet-R, Hendrycks et al. 2021: 30 000 images of 200 classes, see ``evaluation.restricted``."""
    return _of_200_classes(root, "imagenet_r")


def open_imagenet_sketch(root: Path | str) -> FolderSource:
    """ImageNet-Sketch, Wang et al. 2019: drawings of all 1000 classes, scored without restriction."""
    return FolderSource(existing_folder(Path(root), what="ImageNet-Sketch"))


def _of_200_classes(root: Path | str, dataset: str) -> FolderSource:
    table = published(f"{dataset}_indices")
    source = FolderSource(existing_folder(Path(root), what=table["dataset"]))
    _check_classes(source, table["wnids"], name=table["dataset"])
    return source


def _check_classes(source: FolderSource, classes: Sequence[str], *, name: str) -> None:
    missing, extra = sorted(set(classes) - set(source.classes)), sorted(set(source.classes) - set(classes))
    if missing or extra:  # one folder more or less shifts the label of every class behind it
        found = (("missing", missing), ("extra", extra))
        parts = ", ".join(f"{len(names)} {what} ({names[0]} …)" for what, names in found if names)
        raise HoldfastError(f"{name} in {str(source.root)!r} must hold its {len(classes)} class folders: {parts}")


def _checked_cell(kind: str, severity: int) -> CellSpec:
    if kind not in PUBLISHED:
        raise HoldfastError(f"kind must be a corruption, got {kind!r}{nearest(kind, PUBLISHED)}")
    if severity not in SEVERITIES:
        raise HoldfastError(f"severity must be 1 to {SEVERITIES[-1]}, got {severity!r}")
    return corruption_cell(kind, severity)


def existing_folder(folder: Path, *, what: str) -> Path:
    """Return the folder if it exists; raises an error otherwise."""
    folder = folder.expanduser()
    if not folder.is_dir():
        raise HoldfastError(f"{what} must be a folder, but {str(folder)!r} does not exist")
    return folder


def array(path: Path) -> np.ndarray:
    """Memory-map an ``.npy`` file; never unpickles."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "truncated, or not an .npy file"
        raise HoldfastError(f"file {str(path)!r} cannot be read ({reason})") from error


def _check_stack(images: np.ndarray, labels: np.ndarray, *, name: str, classes: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) % len(SEVERITIES):
        raise HoldfastError(
            f"{name!r} must be uint8 (5·N, H, W, 3), five severities stacked, got {images.dtype} {images.shape}"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(images):
        raise HoldfastError(f"labels.npy must hold {len(images)} integers, got {labels.dtype} {labels.shape}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise HoldfastError(f"labels.npy must be 0 to {classes - 1}, got {labels.min()} to {labels.max()}")
