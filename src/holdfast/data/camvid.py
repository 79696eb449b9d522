"""CamVid in SegNet's form: 701 street scenes of 11 classes, 480×360, from four recordings.

Brostow et al. 2009; classes and split by Badrinarayanan et al. 2017. The official val split is 6.7 seconds next to
training frames, so do not select models on it. ``camvid:DIR,all,0001TP`` takes the recording at dusk as a natural
shift. ``camvid:DIR,train,0006R0,held`` takes every sixth block of ten frames as a held-out set, ``kept`` the others.
"""

from pathlib import Path

from holdfast.data.label_maps import PairedFiles, label_table
from holdfast.errors import HoldfastError, nearest

CLASSES = (
    *("sky", "building", "pole", "road", "pavement", "tree"),
    *("sign", "fence", "car", "pedestrian", "bicyclist"),
)
VOID = 11
SPLITS = ("train", "val", "test")
STRETCH, EVERY = 10, 6  # neighbouring frames are nearly equal: hold out blocks of ten, one in six, not single frames
EXTENSIONS = (".png", ".webp", ".jpg")


def open_camvid(rest: str, *, split: str) -> PairedFiles:
    """Open ``camvid:DIR`` with a split (train, val, test, trainval, all), recordings, and ``kept`` or ``held``."""
    folder, *words = rest.split(",")
    root = Path(folder).expanduser()
    groups = {**{name: (name,) for name in SPLITS}, "trainval": ("train", "val"), "all": SPLITS}
    splits = [word for word in words if word in groups] or [split]
    parts = [word for word in words if word in ("held", "kept")]
    recordings = [word for word in words if word not in groups and word not in parts]
    names = [(part, name) for word in splits for part in groups[word] for name in _names(root, part)]
    known = sorted({recording_of(name) for _, name in names})
    for word in recordings:
        if word not in known:
            hint = nearest(word, [*groups, *known])
            raise HoldfastError(
                f"camvid has the splits {', '.join(groups)} and here recordings {known}, got {word!r}{hint}"
            )
    chosen = [(part, name) for part, name in names if not recordings or recording_of(name) in recordings]
    if parts:
        chosen = [item for item, held in zip(chosen, held_out(chosen), strict=True) if held == (parts == ["held"])]
    return PairedFiles(
        f"camvid:{rest}",
        ids=[f"{part}/{name}" for part, name in chosen],
        images=[_image(root, part, name) for part, name in chosen],
        labels=[_label(root, part, name) for part, name in chosen],
        classes=CLASSES,
        table=label_table({number: number for number in range(VOID)}),
    )


def recording_of(name: str) -> str:
    """Return the recording of a frame: ``0001TP`` of ``0001TP_008550``."""
    return name.rpartition("/")[2].partition("_")[0]


def held_out(names: list[tuple[str, str]]) -> list[bool]:
    """Whether each frame lies in a held-out block, counted per recording."""
    counted: dict[str, int] = {}
    held = []
    for _, name in names:
        place = counted[recording_of(name)] = counted.get(recording_of(name), -1) + 1
        held.append(place // STRETCH % EVERY == EVERY - 1)
    return held


def _names(root: Path, split: str) -> list[str]:
    listed = root / f"{split}.txt"
    try:
        lines = listed.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise HoldfastError(f"camvid:{root} must hold {split}.txt, train, val and test ({error.strerror})") from error
    # SegNet's own lists name image and label, each with a path
    return [Path(line.split()[0]).stem for line in lines if line.strip()]


def _image(root: Path, split: str, name: str) -> Path:
    places = [folder / f"{name}{end}" for folder in (root / "images" / split, root / split) for end in EXTENSIONS]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise HoldfastError(f"camvid:{root} must hold an image of {name!r} in images/{split} or {split}, but has none")
    return found


def _label(root: Path, split: str, name: str) -> Path:
    ours = root / "labels" / split / f"{name}.png"
    return ours if ours.parent.is_dir() else root / f"{split}annot" / f"{name}.png"
