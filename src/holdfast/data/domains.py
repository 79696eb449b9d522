"""Images in domain folders: ``DIR/DOMAIN/CLASS/**/<image>`` or ``DIR/DOMAIN/SPLIT/CLASS/**/<image>``.

A domain is one way in which images of the same classes come: photographs and sketches, one hospital and another. Data
without splits get one: a fifth of each domain, chosen by a digest of the image ids, is ``val`` and the rest ``train``
(the in- and out-splits of DomainBed, Gulrajani and Lopez-Paz 2021); ``test`` is then all images. A domain with a folder
``train`` but none for ``val`` holds out a fifth of it in the same way, unless the spec says ``split=train``.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast import rng
from holdfast.data.image_folder import EXTENSIONS, FolderSource, listed_folders, shared_bytes
from holdfast.data.source import in_label_order
from holdfast.data.subsets import Subset
from holdfast.errors import HoldfastError, nearest
from holdfast.io.folder_index import FileNames, index_folder
from holdfast.io.images import check_exif
from holdfast.io.yaml import read_yaml

PREFIX = "domains:"
SPLITS = ("train", "val", "test")
HELD_OUT = 0.2  # share of a domain without a folder val that is its val split
SHOWN = 3


@dataclass(frozen=True)
class DomainSpec:
    """A parsed ``DIR[,DOMAIN …][,-DOMAIN …][,split=S][,train=DOMAIN|DOMAIN]``.

    Attributes:
        root: the folder of the domains.
        chosen: names of the domains to take; empty for all.
        left_out: names of the domains to leave out.
        split: split to take; empty for the usual one.
        trained: domains that the model was trained on, if the spec says so.
    """

    root: Path
    chosen: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    split: str = ""
    trained: tuple[str, ...] = ()

    @classmethod
    def parse(cls, rest: str) -> "DomainSpec":
        """Parse what follows ``domains:``."""
        folder, *words = rest.split(",")
        options = {key: value for key, sign, value in (word.partition("=") for word in words) if sign}
        names = [word for word in words if "=" not in word]
        if unknown := [key for key in options if key not in ("split", "train")]:
            raise HoldfastError(f"domains:{rest} takes split=… and train=…, got {unknown[0]!r}")
        split = options.get("split", "")
        if split not in ("", *SPLITS):
            raise HoldfastError(f"split of domains must be one of {', '.join(SPLITS)}, got {split!r}")
        return cls(
            Path(folder).expanduser(),
            tuple(name for name in names if name and not name.startswith("-")),
            tuple(name[1:] for name in names if name.startswith("-")),
            split,
            tuple(name for name in options.get("train", "").split("|") if name),
        )

    def domains(self, known: Sequence[str]) -> tuple[str, ...]:
        """The domains to take, of those that exist."""
        for name in (*self.chosen, *self.left_out, *self.trained):
            if name not in known:
                hint = nearest(name, known)
                raise HoldfastError(f"domains:{self.root} has {', '.join(known)}, got {name!r}{hint}")
        return tuple(name for name in known if name in (self.chosen or known) and name not in self.left_out)


class DomainSource(FolderSource):
    """The images of some domains; an image's id is its path below the folder of the domains.

    Attributes:
        domains: names of the domains.
        trained: domains that the model was trained on, if the spec says so.
    """

    def __init__(self, spec: DomainSpec, *, split: str, exif: str = "ignore") -> None:
        self.root, self.exif, self.trained = spec.root, check_exif(exif), spec.trained
        known = in_label_order(listed_folders(spec.root, what="domains"))
        self.domains = spec.domains(known)
        if not self.domains:
            raise HoldfastError(f"domains:{spec.root} must hold one folder per domain, got none to take")
        parts = _parts(spec, self.domains, split=split)
        self.classes = _same_classes({name: top for name, (top, _) in parts.items()}, root=spec.root)
        self._paths, self.targets = _images(list(parts.values()), self.classes, root=spec.root)
        self.gifs: list[str] = []
        self._turned = shared_bytes(len(self.targets))


def open_domains(rest: str, *, split: str, exif: str = "ignore") -> DomainSource:
    """Open ``domains:DIR[,DOMAIN …][,-DOMAIN …][,split=S][,train=DOMAIN|DOMAIN]``."""
    return DomainSource(DomainSpec.parse(rest), split=split, exif=exif)


def domain_of(id: str) -> str:
    """The domain in an image's id: ``photo`` of ``photo/test/dog/056.jpg``."""
    return id.partition("/")[0]


def domains_of(source: Any) -> tuple[str, ...]:
    """Names of a source's domains; empty for a source without any."""
    return domains_of(source.source) if isinstance(source, Subset) else getattr(source, "domains", ())


def strata_of_domains(source: Any, strata: np.ndarray) -> np.ndarray:
    """Strata of a source's images: its domains, and in each their own strata, so that subsets have both in proportion.

    One column without domains, two with them, the domain first; see `holdfast.evaluation.order.stratified_order`.
    """
    names = domains_of(source)
    if not names:
        return strata
    places = np.array([names.index(domain_of(source.id(row))) for row in range(len(source))])
    return np.stack([places, places * (int(strata.max(initial=0)) + 1) + strata], axis=1)


def trained_domains(source: Any, run: Path | None) -> tuple[str, ...]:
    """Domains that a model was trained on: those that the spec names, else those of the run's recipe."""
    names = domains_of(source)
    while isinstance(source, Subset):
        source = source.source
    found = getattr(source, "trained", ())
    if names and not found and run is not None:
        with suppress(HoldfastError, OSError, ValueError, KeyError, TypeError, AttributeError):
            recipe = read_yaml((run / "recipe.yaml").read_text(encoding="utf-8"), name="recipe.yaml")
            first, *others = str(recipe["data"]["train"]).split(f"+{PREFIX}")
            parts = [first.removeprefix(PREFIX), *others] if first.startswith(PREFIX) else []
            specs = [DomainSpec.parse(part.partition("[")[0]) for part in parts]
            found = tuple(name for spec in specs for name in _taken(spec, names))
    return tuple(name for name in names if name in found)


def _taken(spec: DomainSpec, names: Sequence[str]) -> list[str]:
    """Domains of a recipe's training data; of data that are gone they may be any that the spec does not leave out."""
    there: Sequence[str] = spec.chosen or names
    if not spec.chosen and spec.root.is_dir():
        there = listed_folders(spec.root, what="domains")
    return [name for name in there if name not in spec.left_out]


def _parts(spec: DomainSpec, domains: Sequence[str], *, split: str) -> dict[str, tuple[str, str]]:
    """The folder of every domain's class folders and the share of it: train, val (a fifth), or empty for all."""
    inside = {name: listed_folders(spec.root / name, what="domains") for name in domains}
    if not all(names and set(names) <= set(SPLITS) for names in inside.values()):
        wanted = spec.split or split
        return {name: (name, "" if wanted == "test" else wanted) for name in domains}
    return {name: _part(spec, name, there, split=split) for name, there in inside.items()}


def _part(spec: DomainSpec, domain: str, there: Sequence[str], *, split: str) -> tuple[str, str]:
    """The same of one domain with split folders."""
    wanted = spec.split or split
    if wanted == "test" and not spec.split and "test" not in there:
        wanted = "val"  # as where a benchmark withholds its test labels
    if "train" in there and "val" not in there and (wanted == "val" or (wanted == "train" and not spec.split)):
        return f"{domain}/train", wanted
    if wanted not in there:
        raise HoldfastError(
            f"domains:{spec.root} must have the split {spec.split or split} of every domain, but {domain!r} has "
            f"{', '.join(sorted(there))}: name other domains, or split=…"
        )
    return f"{domain}/{wanted}", ""


def _same_classes(tops: dict[str, str], *, root: Path) -> tuple[str, ...]:
    """The class folders, which must be the same in every domain."""
    found = {name: in_label_order(listed_folders(root / top, what="domains")) for name, top in tops.items()}
    first, classes = next(iter(found.items()))
    if not classes:
        raise HoldfastError(f"domains:{root} must hold class folders in every domain, but {first!r} has none")
    for name, others in found.items():
        apart = sorted(set(classes) ^ set(others))
        if apart:
            more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
            raise HoldfastError(
                f"domains:{root} must have the same class folders in every domain, but {first!r} and {name!r} "
                f"differ in {', '.join(map(repr, apart[:SHOWN]))}{more}"
            )
    return classes


def _images(parts: Sequence[tuple[str, str]], classes: Sequence[str], *, root: Path) -> tuple[FileNames, np.ndarray]:
    """Paths below the root and labels of all images."""
    labels, names, targets = {name: label for label, name in enumerate(classes)}, list[str](), list[int]()
    for top, share in parts:
        for name in index_folder(root / top, EXTENSIONS, links=True).names:
            label = labels.get(name.split("/", 1)[0]) if "/" in name else None
            id = f"{top}/{name}"
            if label is not None and (not share or _is_held_out(id) == (share == "val")):
                names.append(id)
                targets.append(label)
    return FileNames.of(names), np.array(targets, dtype=np.int64)


def _is_held_out(id: str) -> bool:
    return rng.number(id) < HELD_OUT * 2**64
