"""From a spec string such as ``folder:clean+folder:edsr`` to a source."""

import re
from collections.abc import Callable
from typing import NamedTuple

from holdfast.data.arrays import open_npz
from holdfast.data.cifar import open_cifar10, open_cifar100
from holdfast.data.combine import Joined
from holdfast.data.digits import open_digits
from holdfast.data.folders import open_folder
from holdfast.data.source import Source, check_not_empty
from holdfast.errors import HoldfastError, nearest


class Kind(NamedTuple):
    """One row of the table below."""

    form: str
    line: str
    open: Callable[..., Source]
    needs_path: bool = False
    downloads: bool = False


SOURCES: dict[str, Kind] = {
    "digits": Kind("digits[:SPLIT]", "1797 digits of scikit-learn, 32 px, embedded; train, val or test", open_digits),
    "npz": Kind("npz:FILE", "arrays x (uint8, N×H×W×3) and y, optionally classes", open_npz, needs_path=True),
    "folder": Kind("folder:DIR", "one folder of images per class", open_folder, needs_path=True),
    "cifar10": Kind("cifar10:[DIR]", "CIFAR-10; --data.download=true fetches it", open_cifar10, downloads=True),
    "cifar100": Kind("cifar100:[DIR]", "CIFAR-100, likewise", open_cifar100, downloads=True),
}
# a plus sign joins two sources only where a new source begins, so that paths may contain it
_JOINT = re.compile(r"\+(?=(?:" + "|".join(SOURCES) + r")(?::|\+|$))")


def open_data(spec: str, *, split: str = "val", download: bool = False) -> Source:
    """Open a data source.

    Args:
        spec: ``digits``, ``npz:FILE``, ``folder:DIR``, ``cifar10:[DIR]``, ``cifar100:[DIR]``, or several with ``+``.
        split: which part to take of sources that have several and do not say.
        download: let torchvision fetch what is missing.
    """
    parts = [_open_one(part, split=split, download=download) for part in _JOINT.split(spec)]
    return parts[0] if len(parts) == 1 else Joined(parts)


def _open_one(spec: str, *, split: str, download: bool) -> Source:
    name, _, rest = spec.partition(":")
    if name not in SOURCES:
        forms = ", ".join(kind.form for kind in SOURCES.values())
        raise HoldfastError(f"unknown data {spec!r}{nearest(name, SOURCES) or f'; expected one of {forms}'}")
    kind = SOURCES[name]
    if kind.needs_path and not rest:
        raise HoldfastError(f"data {spec!r} must name a path, as in {kind.form}")
    options = {"download": download} if kind.downloads else {}
    source = kind.open(rest, split=split, **options)
    check_not_empty(source, spec=spec)
    return source
