"""Registry of the official test sets: ``imagenet-c:DIR`` and others, opened cell by cell.

``open_official(spec)`` lists the existing and missing cells of a folder without reading an image.
``OfficialSet.open(cell)`` then opens one cell as a source of images or, for ``sequence/…`` cells, of frames:

>>> data = open_official("imagenet-c:/data/imagenet-c")           # doctest: +SKIP
>>> data.suite, data.preset, data.cells[:2], data.missing         # doctest: +SKIP
('imagenet-c', 'imagenet', (CellSpec('gaussian_noise/1', …), CellSpec('gaussian_noise/2', …)), ())
>>> source = data.open("fog/3")                                   # doctest: +SKIP
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast.benchmarks import BENCHMARKS
from holdfast.cells import CellSpec, corruption_cell, sequence_cell, set_cell
from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.corruptions.corrupt_folder import MANIFEST, read_manifest
from holdfast.corruptions.sequences import SEQUENCES, TEST_SEQUENCES
from holdfast.corruptions.severities import ALL, SEVERITIES, STANDARD
from holdfast.data import official_set_readers
from holdfast.data.cityscapes import cityscapes_c_cells, open_cityscapes_c
from holdfast.data.cue_conflict import open_cue_conflict
from holdfast.data.natural_sets import open_imagenet_v2, open_objectnet
from holdfast.data.sequences import Frames, open_cifar_p, open_imagenet_p
from holdfast.data.source import Source
from holdfast.errors import HoldfastError, nearest

CITYSCAPES_C = BENCHMARKS["cityscapes-c"].cells


class SequenceSource(Protocol):
    """Perturbation sequences: a source whose items are videos. A target of −1 means that no label is known."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, in the order of the targets."""
        ...

    @property
    def targets(self) -> np.ndarray:
        """The class of every sequence, int64."""
        ...

    @property
    def frame_count(self) -> int:
        """Number of frames per sequence."""
        ...

    def __len__(self) -> int: ...

    def id(self, index: int) -> str:
        """The stable id of one sequence."""
        ...

    def frames(self, index: int) -> Frames:
        """All frames of one sequence, uint8 RGB; raises ``UnreadableImage``."""
        ...


@dataclass(frozen=True)
class OfficialSet:
    """One official set on disk.

    Attributes:
        name: ``imagenet-c``, ``cifar10-p`` …, the word before the colon of the spec.
        root: the folder.
        suite: the suite that scores it: ``imagenet-c``, ``cifar-c``, ``perturbations``, ``imagenet-a`` …
        preset: ``imagenet`` or ``cifar``, the protocol that generated its images.
        cells: the existing cells, in order: ``fog/3``, ``sequence/rotate``, ``imagenet-a``.
        reader: opens a cell; call `open`, which checks its name.
        missing: the missing standard cells; a score without them is partial.
        restricted_to: table of ``holdfast.published`` with the outputs of a 1000-class model that are its classes:
            ``imagenet_a``, ``imagenet_r``, ``imagenet_16``, ``objectnet``; else None.
        extras: whether the set's protocol includes extra corruptions.
        whole_images: whether images reach the model's size by a resize of the whole image, without a crop.
    """

    name: str
    root: Path
    suite: str
    preset: str
    cells: tuple[CellSpec, ...]
    reader: Callable[[CellSpec], Source | SequenceSource] = field(repr=False, compare=False)
    missing: tuple[str, ...] = ()
    restricted_to: str | None = None
    extras: bool = False
    whole_images: bool = False

    @property
    def origin(self) -> str | None:
        """The settings of ``holdfast corrupt`` from the manifest; None for a set as distributed."""
        if not (self.root / MANIFEST).is_file():
            return None
        try:
            manifest = read_manifest(self.root)
            quality = manifest["quality"]
            form = "png" if quality is None else f"jpeg:{quality}"
            return f"made by holdfast corrupt, seed {manifest['seed']}, preset {manifest['preset']}, {form}"
        except (HoldfastError, KeyError):
            return "of unknown making, its manifest.json cannot be read"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the existing cells."""
        return tuple(cell.name for cell in self.cells)

    def open(self, cell: CellSpec | str) -> Source | SequenceSource:
        """Open a cell or the cell of that name: a `Source` of images, or a `SequenceSource` of videos."""
        name = cell if isinstance(cell, str) else cell.name
        found = next((known for known in self.cells if known.name == name), None)
        if found is None:
            raise HoldfastError(f"cell must exist in {self.name} in {str(self.root)!r}, got {name!r}")
        return self.reader(found)


class StoredLayout(NamedTuple):
    """The on-disk layout of an official set: its description and the function that lists its cells."""

    line: str
    find: Callable[..., OfficialSet]
    options: Mapping[str, Any] = {}


def is_official(spec: str) -> bool:
    """Whether a data spec names an official test set."""
    return spec.partition(":")[0] in OFFICIAL


def open_official(spec: str) -> OfficialSet:
    """Open the official set of a spec such as ``cifar10-c:DIR``; a set without cells is refused."""
    name, _, rest = spec.partition(":")
    if name not in OFFICIAL:
        forms = ", ".join(f"{known}:DIR" for known in OFFICIAL)
        raise HoldfastError(f"unknown official set {spec!r}{nearest(name, OFFICIAL) or f'; expected one of {forms}'}")
    if not rest:
        raise HoldfastError(f"data {spec!r} must name a path, as in {name}:DIR")
    layout = OFFICIAL[name]
    found = layout.find(name, Path(rest).expanduser(), **layout.options)
    if not found.cells:
        raise HoldfastError(f"{name} in {str(found.root)!r} must hold at least one of its cells, got none")
    return found


def check_imagenet_order(classes: tuple[str, ...], *, name: str) -> None:
    """Refuse 1000 folders other than ImageNet's, checked by the 314 wnids that are shipped.

    The label of a folder is its rank among the sorted names, which is right only if all 1000 exist.
    """
    if len(classes) != 1000:  # subsets such as ImageNet-A are checked by their own lists of wnids
        return
    for dataset in ("imagenet_a", "imagenet_r"):
        table = official_set_readers.published(f"{dataset}_indices")
        for wnid, index in zip(table["wnids"], table["indices"], strict=True):
            if classes[index] != wnid:
                raise HoldfastError(
                    f"{name} must have ImageNet's 1000 class folders, but number {index} in sorted order is "
                    f"{classes[index]!r}, not {wnid!r}"
                )


def _imagenet_c(
    name: str,
    root: Path,
    *,
    suite: str = "imagenet-c",
    kinds: tuple[str, ...] = ALL,
    wanted: tuple[str, ...] = STANDARD,
) -> OfficialSet:
    absent = set(official_set_readers.missing_cells(root, kinds=kinds))
    cells = tuple(cell for cell in _cells(kinds) if cell not in absent)
    missing = tuple(cell.name for cell in _cells(wanted) if cell in absent)

    def open_cell(cell: CellSpec) -> Source:
        source = official_set_readers.open_imagenet_c(root, kind=cell.kind, severity=cell.severity)
        check_imagenet_order(source.classes, name=f"{name}:{root} {cell.name}")
        return source

    return OfficialSet(name, root, suite, "imagenet", cells, open_cell, missing)


def _cifar_c(
    name: str,
    root: Path,
    *,
    dataset: str,
    suite: str = "cifar-c",
    kinds: tuple[str, ...] = ALL,
    wanted: tuple[str, ...] = STANDARD,
) -> OfficialSet:
    official_set_readers.existing_folder(root, what="a CIFAR-C folder")
    there = {kind for kind in kinds if (root / f"{kind}.npy").is_file()}
    missing = tuple(cell.name for cell in _cells(wanted) if cell.kind not in there)

    def open_cell(cell: CellSpec) -> Source:
        return official_set_readers.open_cifar_c(root, kind=cell.kind, severity=cell.severity, dataset=dataset)

    cells = tuple(cell for cell in _cells(kinds) if cell.kind in there)
    return OfficialSet(name, root, suite, "cifar", cells, open_cell, missing)


def _imagenet_p(name: str, root: Path) -> OfficialSet:
    official_set_readers.existing_folder(root, what="ImageNet-P")
    there = [kind for kind in SEQUENCES if (root / kind).is_dir()]
    return _sequences(name, root, there, preset="imagenet", reader=partial(open_imagenet_p, root))


def _cifar_p(name: str, root: Path, *, dataset: str) -> OfficialSet:
    official_set_readers.existing_folder(root, what="CIFAR-P")
    there = [kind for kind in SEQUENCES if (root / f"{kind}.npy").is_file()]
    return _sequences(name, root, there, preset="cifar", reader=partial(open_cifar_p, root, dataset=dataset))


def _sequences(
    name: str, root: Path, kinds: list[str], *, preset: str, reader: Callable[..., SequenceSource]
) -> OfficialSet:
    cells = tuple(map(sequence_cell, kinds))
    missing = tuple(sequence_cell(kind).name for kind in TEST_SEQUENCES if kind not in kinds)
    return OfficialSet(name, root, "perturbations", preset, cells, lambda cell: reader(kind=cell.kind), missing)


def _single(
    name: str, root: Path, *, reader: Callable[[Path], Source], by_class: bool = False, **settings: Any
) -> OfficialSet:
    """A set of one cell; ``by_class`` if its folders must be in ImageNet's order."""
    official_set_readers.existing_folder(root, what=name)

    def open_cell(cell: CellSpec) -> Source:
        source = reader(root)
        if by_class:
            check_imagenet_order(source.classes, name=f"{name}:{root}")
        return source

    return OfficialSet(name, root, name, "imagenet", (set_cell(name),), open_cell, **settings)


def _cells(kinds: tuple[str, ...]) -> list[CellSpec]:
    return [corruption_cell(kind, severity) for kind in kinds for severity in SEVERITIES]


def _cityscapes_c(name: str, root: Path) -> OfficialSet:
    folder, _, labels = str(root).partition(",")
    tree = official_set_readers.existing_folder(Path(folder), what="a Cityscapes-C tree")
    wanted = [corruption_cell(kind, each) for kind, severities in CITYSCAPES_C.items() for each in severities]
    there = cityscapes_c_cells(tree)
    cells = tuple(cell for cell in wanted if cell.name in there)
    missing = tuple(cell.name for cell in wanted if cell.name not in there)
    ground = Path(labels).expanduser() if labels else None

    def open_cell(cell: CellSpec) -> Any:
        return open_cityscapes_c(tree, kind=cell.kind, severity=cell.severity, labels=ground)

    return OfficialSet(name, tree, "cityscapes-c", "any", cells, open_cell, missing, extras=True)


def _c_bar(suite: str) -> dict[str, Any]:
    return {"suite": suite, "kinds": C_BAR_SUITES[suite], "wanted": C_BAR_SUITES[suite]}


OFFICIAL: dict[str, StoredLayout] = {
    "imagenet-c": StoredLayout("stored ImageNet-C: kind/severity/wnid/*.JPEG", _imagenet_c, {}),
    "cifar10-c": StoredLayout("stored CIFAR-10-C: kind.npy and labels.npy", _cifar_c, {"dataset": "cifar10"}),
    "cifar100-c": StoredLayout("stored CIFAR-100-C: kind.npy and labels.npy", _cifar_c, {"dataset": "cifar100"}),
    "imagenet-c-bar": StoredLayout(
        "stored ImageNet-C-bar: kind/severity or magnitude/wnid/*.JPEG", _imagenet_c, _c_bar("imagenet-c-bar")
    ),
    "cifar10-c-bar": StoredLayout(
        "stored CIFAR-10-C-bar: kind.npy and labels.npy", _cifar_c, {"dataset": "cifar10", **_c_bar("cifar-c-bar")}
    ),
    "imagenet-p": StoredLayout("stored ImageNet-P: kind/wnid/*.mp4, or folders of frames", _imagenet_p, {}),
    "cifar10-p": StoredLayout(
        "stored CIFAR-10-P: kind.npy of (N, frames, 32, 32, 3)", _cifar_p, {"dataset": "cifar10"}
    ),
    "cifar100-p": StoredLayout(
        "stored CIFAR-100-P: kind.npy of (N, frames, 32, 32, 3)", _cifar_p, {"dataset": "cifar100"}
    ),
    "imagenet-a": StoredLayout(
        "ImageNet-A: its 200 wnid folders",
        _single,
        {"reader": official_set_readers.open_imagenet_a, "by_class": True, "restricted_to": "imagenet_a"},
    ),
    "imagenet-r": StoredLayout(
        "ImageNet-R: its 200 wnid folders",
        _single,
        {"reader": official_set_readers.open_imagenet_r, "by_class": True, "restricted_to": "imagenet_r"},
    ),
    "imagenet-sketch": StoredLayout(
        "ImageNet-Sketch: 1000 wnid folders",
        _single,
        {"reader": official_set_readers.open_imagenet_sketch, "by_class": True},
    ),
    "imagenet-v2": StoredLayout(
        "ImageNet-V2, matched frequency: folders 0 to 999 or wnids", _single, {"reader": open_imagenet_v2}
    ),
    "imagenet-v2-threshold": StoredLayout(
        "ImageNet-V2, threshold 0.7: likewise", _single, {"reader": open_imagenet_v2}
    ),
    "imagenet-v2-top": StoredLayout("ImageNet-V2, top images: likewise", _single, {"reader": open_imagenet_v2}),
    "objectnet": StoredLayout(
        "ObjectNet: its object folders, of which 113 are used",
        _single,
        {"reader": open_objectnet, "restricted_to": "objectnet"},
    ),
    "cue-conflict": StoredLayout(
        "cue conflict stimuli: SHAPE/SHAPEn-TEXTUREm.png, 16 categories",
        _single,
        {"reader": open_cue_conflict, "restricted_to": "imagenet_16", "whole_images": True},
    ),
    "cityscapes-c": StoredLayout("stored Cityscapes-C: kind/severity/city/*.png, labels in gtFine", _cityscapes_c, {}),
}
