"""Factory of data sources from specs such as ``folder:clean+folder:edsr``; data passed as objects get a spec too."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.data.acdc import open_acdc
from holdfast.data.camvid import open_camvid
from holdfast.data.cifar import open_cifar, open_cifar10, open_cifar100
from holdfast.data.cityscapes import open_cityscapes
from holdfast.data.coco import open_coco
from holdfast.data.digits import open_digits
from holdfast.data.domains import open_domains
from holdfast.data.fingerprints import content_fingerprint, data_fingerprint
from holdfast.data.image_folder import open_folder
from holdfast.data.mask_folder import open_masks
from holdfast.data.npz import open_npz
from holdfast.data.official_sets import is_official
from holdfast.data.scenes import open_scene_objects, open_scenes
from holdfast.data.source import Source, check_not_empty
from holdfast.data.subsets import Joined, Subset
from holdfast.errors import HoldfastError, nearest
from holdfast.registry import Registry, add_row

GIVEN: dict[str, Source] = {}
GIVEN_NAME = "given"  # the first part of the spec of data that are handed over in Python: recipes name data by specs


@contextmanager
def register_sources(train: Source, val: Source) -> Iterator[tuple[str, str]]:
    """Register two sources under specs such as ``given:tensors-3f0a…``, which depend on the contents."""
    from holdfast.data.torch_datasets import TensorSource

    numbered = [each for each in (train, val) if isinstance(each, TensorSource) and each.counted]
    if len(numbered) == 2:  # classes inferred from labels: one of the two may miss the last
        train.classes = val.classes = max(train.classes, val.classes, key=len)  # type: ignore[misc]
    specs = _spec(train), _spec(val)
    GIVEN.update(zip(specs, (train, val), strict=True))
    try:
        yield specs
    finally:
        for spec in specs:
            GIVEN.pop(spec, None)


def open_given(spec: str) -> Source:
    """Return the registered source of a spec."""
    if spec not in GIVEN:
        raise HoldfastError(
            f"data {spec!r} were passed as Python objects and are not available here: pass them again or name others"
        )
    return GIVEN[spec]


def _spec(source: Any) -> str:
    ids = [source.id(index) for index in range(len(source))]
    digest = data_fingerprint(ids, source.targets, content=content_fingerprint(source))
    return f"{GIVEN_NAME}:{getattr(source, 'name', type(source).__name__)}-{digest[:12]}"


class SourceRow(NamedTuple):
    """A kind of data source: its spec, description and opener."""

    form: str
    line: str
    open: Callable[..., Any]
    needs_path: bool = False
    downloads: bool = False
    turns: bool = False  # accepts ``exif``


def _open_cifar_training_images(rest: str, *, split: str, kind: str, download: bool = False) -> Source:
    return open_cifar(rest, split="train", kind=kind, download=download)


_SHIPPED: dict[str, SourceRow] = {
    "digits": SourceRow(
        "digits[:SPLIT]", "1797 digits of scikit-learn, 32 px, embedded; train, val or test", open_digits
    ),
    "scenes": SourceRow(
        "scenes[:SPLIT,HxW,COUNT,plain]", "digits on procedural backgrounds, 96×128, embedded; label maps", open_scenes
    ),
    "masks": SourceRow(
        "masks:IMAGES,LABELS", "your images with label maps: [,classes=FILE][,ignore=N]", open_masks, needs_path=True
    ),
    "camvid": SourceRow("camvid:DIR[,SPLIT]", "CamVid, 11 classes, 480×360; label maps", open_camvid, needs_path=True),
    "cityscapes": SourceRow(
        "cityscapes:DIR[,SPLIT]", "Cityscapes, 19 classes; label maps", open_cityscapes, needs_path=True
    ),
    "acdc": SourceRow(
        "acdc:DIR[,CONDITION][,SPLIT]", "ACDC: fog, night, rain, snow; val by default", open_acdc, needs_path=True
    ),
    "npz": SourceRow("npz:FILE", "arrays x (uint8, N×H×W×3) and y, optionally classes", open_npz, needs_path=True),
    "folder": SourceRow("folder:DIR", "one folder of images per class", open_folder, needs_path=True, turns=True),
    "domains": SourceRow(
        "domains:DIR[,DOMAIN…]",
        "one folder per domain, the same class folders in each: [,-DOMAIN][,split=S][,train=DOMAIN]",
        open_domains,
        needs_path=True,
        turns=True,
    ),
    "cifar10": SourceRow("cifar10:[DIR]", "CIFAR-10; --data.download=true fetches it", open_cifar10, downloads=True),
    "cifar100": SourceRow(
        "cifar100:[DIR]", "CIFAR-100; --data.download=true fetches it", open_cifar100, downloads=True
    ),
    "cifar10-train": SourceRow(
        "cifar10-train:[DIR]",
        "CIFAR-10's training images, also for validation: cifar10-train:[45000:] holds some out",
        partial(_open_cifar_training_images, kind="cifar10"),
        downloads=True,
    ),
    "coco": SourceRow(
        "coco:IMAGES,ANNOTATIONS", "objects in COCO's format: image folder and JSON file", open_coco, needs_path=True
    ),
    "scene-objects": SourceRow(
        "scene-objects[:SPLIT,HxW,COUNT,plain]",
        "digits in procedural scenes, with boxes and masks, embedded",
        open_scene_objects,
    ),
}
SOURCES: Registry[str, SourceRow] = Registry(_SHIPPED, register="holdfast.data.register_source")


def register_source(
    name: str,
    open: Callable[..., Any],
    line: str,
    *,
    form: str = "",
    needs_path: bool = False,
    downloads: bool = False,
    turns: bool = False,
) -> None:
    """Register a kind of data source, whose specs begin with its name.

    Args:
        name: its name, as in ``--data NAME`` or ``--data NAME:REST``.
        open: ``open(rest, split=…)`` returns the source; ``rest`` is what follows the colon.
        line: one-line description for ``holdfast list data``.
        form: the form of its specs; by default the name.
        needs_path: whether a spec must have a rest.
        downloads: whether ``open`` takes ``download``.
        turns: whether ``open`` takes ``exif``.
    """
    add_row(SOURCES, name, SourceRow(form or name, line, open, needs_path, downloads, turns), what="data")


# [40000:45000], half-open like a Python slice, optionally with a step
_SLICE = re.compile(r"^(?P<spec>.*)\[(?P<start>\d*):(?P<stop>\d*)(?::(?P<step>[1-9]\d*))?\]$")
# a plus sign joins two sources only where a new source begins, so that paths may contain it
_JOINT = re.compile(r"\+(?=(?:" + "|".join(SOURCES) + r")(?::|\+|\[|$))")


def open_data(spec: str, *, split: str = "val", download: bool = False, exif: str = "ignore") -> Source:
    """Open a data source.

    Args:
        spec: ``digits``, ``npz:FILE``, ``folder:DIR``, ``cifar10:[DIR]``, ``cifar100:[DIR]``, or several with ``+``.
            ``[START:STOP]`` after any of them takes a range of its images.
        split: train, val or test, for sources whose spec does not name one.
        download: let torchvision download missing data.
        exif: ``ignore`` or ``apply`` the EXIF orientation of images in folders.
    """
    names = _JOINT.split(spec)
    parts = [_open_one(part, split=split, download=download, exif=exif) for part in names]
    return parts[0] if len(parts) == 1 else Joined(parts, names=names)


def sliced_spec(spec: str, bounds: str) -> str:
    """The spec of a stretch of the images of every part of a spec, such as ``folder:a[0::2]+folder:b[0::2]``."""
    return "+".join(f"{part}[{bounds}]" for part in _JOINT.split(spec))


def _open_one(spec: str, *, split: str, download: bool, exif: str) -> Source:
    bounds = _SLICE.match(spec)
    if bounds:
        whole = _open_one(bounds["spec"], split=split, download=download, exif=exif)
        return _slice(whole, bounds, spec=spec)
    name, _, rest = spec.partition(":")
    if name == GIVEN_NAME:
        return open_given(spec)
    if name not in SOURCES:
        if is_official(spec):
            raise HoldfastError(
                f"data {spec!r} is an official test set: use it in `holdfast evaluate` with its own suite"
            )
        if meant := _spec_of_path(Path(spec).expanduser()):
            raise HoldfastError(f"unknown data {spec!r}; did you mean {f'{meant}:{spec}'!r}?")
        forms = ", ".join(kind.form for kind in SOURCES.values())
        raise HoldfastError(f"unknown data {spec!r}{nearest(name, SOURCES) or f'; expected one of {forms}'}")
    kind = SOURCES[name]
    if kind.needs_path and not rest:
        raise HoldfastError(f"data {spec!r} must name a path, as in {kind.form}")
    options = ({"download": download} if kind.downloads else {}) | ({"exif": exif} if kind.turns else {})
    source = kind.open(rest, split=split, **options)
    check_not_empty(source, spec=spec)
    return source


def _spec_of_path(path: Path) -> str:
    """The kind of data that an existing path probably is; empty if it is none."""
    return "folder" if path.is_dir() else "npz" if path.suffix == ".npz" and path.is_file() else ""


def _slice(source: Source, bounds: re.Match[str], *, spec: str) -> Source:
    parts = (int(bounds[part]) if bounds[part] else None for part in ("start", "stop", "step"))
    numbers = np.arange(len(source))[slice(*parts)]
    if int(bounds["stop"] or 0) > len(source) or not len(numbers):
        raise HoldfastError(f"data {spec!r} must name a range of its {len(source)} images, as in [0:{len(source)}]")
    return Subset(source, numbers)
