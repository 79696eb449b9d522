"""ACDC, adverse conditions (Sakaridis et al. 2021): fog, night, rain and snow, with the classes of Cityscapes.

Models are trained on Cityscapes only. Here the val images are scored; papers report the test split, whose labels are
withheld by the benchmark's server, so its predictions are exported. Report the split with every number.
"""

from pathlib import Path

from holdfast.data.cityscapes import CLASSES, LABEL_IDS, TABLE
from holdfast.data.label_maps import PairedFiles
from holdfast.errors import HoldfastError, nearest

CONDITIONS = ("fog", "night", "rain", "snow")
BOX = (1024, 2048)  # released: the 1080×1920 images become 1024×1820, and logits are resampled back
SPLITS = ("train", "val", "test")
IMAGE_END, LABEL_END = "_rgb_anon.png", "_gt_labelIds.png"


def open_acdc(rest: str, *, split: str) -> PairedFiles:
    """Open ``acdc:DIR[,CONDITION …][,SPLIT]``, such as ``acdc:DIR,night,val``; by default all conditions of val."""
    folder, *words = rest.split(",")
    root = Path(folder).expanduser()
    for word in words:
        if word not in (*CONDITIONS, *SPLITS):
            hint = nearest(word, (*CONDITIONS, *SPLITS))
            known = f"the conditions {', '.join(CONDITIONS)} and the splits {', '.join(SPLITS)}"
            raise HoldfastError(f"acdc has {known}, got {word!r}{hint}")
    part = next((word for word in words if word in SPLITS), "train" if split == "train" else "val")
    conditions = [word for word in CONDITIONS if word in words] or list(CONDITIONS)
    images = [image for condition in conditions for image in _images(root, condition, part)]
    source = PairedFiles(
        f"acdc:{rest}",
        ids=[_id(image, part) for image in images],
        images=images,
        labels=None if part == "test" else [_label(root, image, part) for image in images],
        classes=CLASSES,
        table=TABLE,
    )
    source.box, source.numbers = BOX, tuple(LABEL_IDS.values())
    return source


def condition(id: str) -> str:
    """Return the condition in an image's id: ``fog`` of ``fog/val/GOPR0475/…``."""
    return id.partition("/")[0]


def _images(root: Path, condition: str, part: str) -> list[Path]:
    places = [top / "rgb_anon" / condition / part for top in (root, root / "rgb_anon_trainvaltest")]
    found = next((sorted(place.glob(f"*/*{IMAGE_END}")) for place in places if place.is_dir()), [])
    if not found:
        raise HoldfastError(f"acdc:{root} must hold images in rgb_anon/{condition}/{part}/<sequence>, but has none")
    return found


def _id(image: Path, part: str) -> str:
    condition = image.parents[2].name
    return f"{condition}/{part}/{image.parent.name}/{image.name.removesuffix(IMAGE_END)}"


def _label(root: Path, image: Path, part: str) -> Path:
    below = Path(image.parents[2].name, part, image.parent.name, image.name.removesuffix(IMAGE_END) + LABEL_END)
    places = [top / "gt" / below for top in (root, root / "gt_trainval")]
    return next((place for place in places if place.is_file()), places[0])
