"""Cityscapes (Cordts et al. 2016) as it is distributed, and stored Cityscapes-C trees.

Labels are read from ``…_gtFine_labelIds.png`` and mapped to the 19 evaluated classes; all other ids are ignored.
"""

from pathlib import Path

from holdfast.corruptions.severities import ALL, SEVERITIES
from holdfast.data.label_maps import PairedFiles, label_table
from holdfast.errors import HoldfastError, nearest

# class → id in labelIds files, in the order of the train ids 0 to 18. The files use 34 ids; the benchmark scores 19 and
# ignores the rest, which are rare (caravan, tunnel), void (ego vehicle) or ambiguous (parking, rail track).
LABEL_IDS = {
    **{"road": 7, "sidewalk": 8, "building": 11, "wall": 12, "fence": 13, "pole": 17, "traffic light": 19},
    **{"traffic sign": 20, "vegetation": 21, "terrain": 22, "sky": 23, "person": 24, "rider": 25, "car": 26},
    **{"truck": 27, "bus": 28, "train": 31, "motorcycle": 32, "bicycle": 33},
}
CLASSES = tuple(LABEL_IDS)
SPLITS = ("train", "val", "test")
TABLE = label_table({number: label for label, number in enumerate(LABEL_IDS.values())})
IMAGE_END, LABEL_END = "_leftImg8bit.png", "_gtFine_labelIds.png"


def open_cityscapes(rest: str, *, split: str) -> PairedFiles:
    """Open ``cityscapes:DIR[,SPLIT]``: by default train for training, otherwise val; test has no labels."""
    folder, _, word = rest.partition(",")
    root = Path(folder).expanduser()
    part = word or ("train" if split == "train" else "val")
    if part not in SPLITS:
        raise HoldfastError(f"cityscapes has the splits {', '.join(SPLITS)}, got {part!r}{nearest(part, SPLITS)}")
    images = _images(root / "leftImg8bit" / part, name=f"cityscapes:{rest}")
    labels = None if part == "test" else [_label(root, part, image) for image in images]
    return _source(f"cityscapes:{rest}", part, images, labels)


def city(id: str) -> str:
    """Return the city in an image's id: ``frankfurt`` of ``val/frankfurt/frankfurt_000000_000294``."""
    return id.rpartition("/")[2].partition("_")[0]


def cityscapes_c_cells(root: Path) -> list[str]:
    """List the existing cells of a stored Cityscapes-C tree, ``fog/3`` …, in canonical order."""
    return [f"{kind}/{level}" for kind in ALL for level in SEVERITIES if _cell_folder(root, kind, level) is not None]


def open_cityscapes_c(root: Path, *, kind: str, severity: int, labels: Path | None = None) -> PairedFiles:
    """Open one cell of stored Cityscapes-C; images have the ids and labels of the clean val images.

    Args:
        root: holds ``<kind>/<severity>/<city>``, ``<kind>/<severity>/val/<city>`` or either below ``leftImg8bit``.
        kind: a corruption.
        severity: 1 to 5.
        labels: the Cityscapes folder that holds ``gtFine``; by default searched next to and inside ``root``.
    """
    folder = _cell_folder(root, kind, severity)
    if folder is None:
        raise HoldfastError(f"cityscapes-c in {str(root)!r} must hold {kind}/{severity}, but does not")
    images = _images(folder, name=f"cityscapes-c {kind}/{severity}")
    ground = _ground_truth(root, labels)
    return _source(f"cityscapes-c:{root}", "val", images, [_label(ground, "val", image) for image in images])


def _ground_truth(root: Path, labels: Path | None) -> Path:
    places = [labels] if labels is not None else [root, root.parent, root / "cityscapes"]
    for place in places:
        if (place / "gtFine" / "val").is_dir():
            return place
    raise HoldfastError(
        f"the labels of cityscapes-c must be in gtFine/val in or beside {str(root)!r}, or given as in "
        "cityscapes-c:DIR,CITYSCAPES"
    )


def _source(name: str, part: str, images: list[Path], labels: list[Path] | None) -> PairedFiles:
    ids = [f"{part}/{image.parent.name}/{image.name.removesuffix(IMAGE_END)}" for image in images]
    source = PairedFiles(name, ids=ids, images=images, labels=labels, classes=CLASSES, table=TABLE)
    source.numbers = tuple(LABEL_IDS.values())
    return source


def _images(folder: Path, *, name: str) -> list[Path]:
    found = sorted(folder.glob(f"*/*{IMAGE_END}"))
    if not found:
        raise HoldfastError(f"{name} must hold images <city>/*{IMAGE_END} in {str(folder)!r}, but has none")
    return found


def _label(root: Path, part: str, image: Path) -> Path:
    return root / "gtFine" / part / image.parent.name / (image.name.removesuffix(IMAGE_END) + LABEL_END)


def _cell_folder(root: Path, kind: str, severity: int) -> Path | None:
    for top in (root, root / "leftImg8bit"):
        for inner in ("val", "."):
            folder = top / kind / str(severity) / inner
            if folder.is_dir() and any(folder.glob(f"*/*{IMAGE_END}")):
                return folder
    return None
