"""Folders of images and label maps: ``masks:IMAGES,LABELS``.

Label images hold one class id per pixel, as grey or palette PNG, with the image's relative path and name. Class names
come from ``classes=FILE`` (one per line), else from ``LABELS/classes.txt``, else they are the ids that occur.
"""

import os
from pathlib import Path

import numpy as np

from holdfast.data.image_folder import EXTENSIONS
from holdfast.data.label_maps import IGNORED, PairedFiles, label_table, read_label_file
from holdfast.errors import HoldfastError, nearest

OPTIONS = ("classes", "ignore")
CLASS_FILE = "classes.txt"


def open_masks(rest: str, *, split: str) -> PairedFiles:
    """Open ``masks:IMAGES,LABELS[,classes=FILE][,ignore=NUMBER]``; ``split`` is ignored."""
    words = rest.split(",")
    options = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    unknown = [word for word in words[2:] if word.partition("=")[0] not in OPTIONS]
    if len(words) < 2 or not words[0] or not words[1] or unknown:
        hint = nearest(unknown[0].partition("=")[0], OPTIONS) if unknown else ""
        raise HoldfastError(f"masks must be IMAGES,LABELS[,classes=FILE][,ignore=NUMBER], got {rest!r}{hint}")
    images, labels = (_folder(word) for word in words[:2])
    found = _files(images)
    partners = [labels / path.relative_to(images).with_suffix(".png") for path in found]
    ids = [path.relative_to(images).as_posix() for path in found]
    ignored = _ignored_label(options.get("ignore"))
    source = PairedFiles(
        f"masks:{rest}",
        ids=ids,
        images=found,
        labels=partners,
        classes=_classes(options.get("classes"), labels, partners, ignored=ignored),
        table=None if ignored is None else label_table({n: n for n in range(256) if n != ignored}),
    )
    return source


def _folder(word: str) -> Path:
    folder = Path(word).expanduser()
    if not folder.is_dir():
        raise HoldfastError(f"masks needs two folders, images and labels, but {word!r} is not a folder")
    return folder


def _files(folder: Path) -> list[Path]:
    found = [
        Path(root, file)
        for root, _, files in os.walk(folder, followlinks=True)
        for file in files
        if os.path.splitext(file)[1].lower() in EXTENSIONS
    ]
    return sorted(found)


def _ignored_label(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) > IGNORED:
        raise HoldfastError(f"ignore must be a number from 0 to {IGNORED}, got {text!r}")
    return int(text)


def _classes(file: str | None, labels: Path, partners: list[Path], *, ignored: int | None) -> tuple[str, ...]:
    path = Path(file).expanduser() if file is not None else labels / CLASS_FILE
    if file is not None or path.is_file():
        return _class_names(path)
    known = {IGNORED, ignored}
    highest = max(
        (
            int(n)
            for path in partners
            if path.is_file()
            for n in np.unique(read_label_file(path))
            if int(n) not in known
        ),
        default=-1,
    )
    return tuple(str(number) for number in range(highest + 1))


def _class_names(path: Path) -> tuple[str, ...]:
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"classes must be a text file of one name per line, got {str(path)!r} ({error})") from error
    if not names or len(set(names)) < len(names) or len(names) >= IGNORED:
        raise HoldfastError(
            f"{str(path)!r} must name 1 to {IGNORED - 1} different classes, one per line, got {len(names)}"
        )
    return names
