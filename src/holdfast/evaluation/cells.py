"""A cell is one thing that is done to all images of a data set: ``clean``, ``fog/3``, ``pgd5``, ``sequence/rotate``."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from holdfast.errors import HoldfastError

How = Literal["clean", "corrupted", "sequence", "attacked", "stored", "film"]


@dataclass(frozen=True, eq=False)
class Cell:
    """What to do, and to which images.

    Attributes:
        name: as in records.
        how: ``clean``, ``corrupted``, ``sequence`` and ``attacked`` start from a picture and follow the protocol;
            ``stored`` images and ``film`` frames are taken as they are.
        source: where the images are; the same object for all cells that share their pictures.
        definition: what the records say about the cell, as plain data.
        kind: which corruption or perturbation.
        severity: of a corruption.
        attack: the settings of an attack.
        restricted_to: ``imagenet_a`` or ``imagenet_r``, if only their 200 classes count.
        places: the image's number in ``source`` for every row of the record set, −1 where it has none; None for equal.
    """

    name: str
    how: How
    source: Any = field(repr=False)
    definition: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    severity: int = 0
    attack: Any = None
    restricted_to: str | None = None
    places: np.ndarray | None = field(default=None, repr=False)

    def place(self, row: int) -> int:
        """The number in ``source`` of a row of the record set; −1 if the cell lacks it."""
        return row if self.places is None else int(self.places[row])

    @property
    def several(self) -> bool:
        """Whether every image is seen several times."""
        return self.how in ("sequence", "film")


@dataclass(frozen=True, eq=False)
class Plan:
    """All images of a record set and all cells to measure on them.

    Attributes:
        ids: the images' names, one per row.
        targets: their classes.
        classes: how many classes the data set has.
        cells: what to do with them.
        missing: names of cells that the stored set should have and does not.
    """

    ids: tuple[str, ...]
    targets: np.ndarray
    classes: int
    cells: tuple[Cell, ...]
    missing: tuple[str, ...] = ()

    def shards(self, size: int) -> int:
        """How many shards of at most ``size`` images there are."""
        return -(-len(self.ids) // size)

    def rows(self, shard: int, size: int) -> range:
        """The rows of a shard: every so-many-th image, so that every shard is a sample of all classes."""
        return range(shard, len(self.ids), self.shards(size))


def shared_plan(source: Any, make: Callable[[Any], Sequence[Cell]]) -> Plan:
    """A plan whose cells all start from the same pictures."""
    ids = tuple(source.id(index) for index in range(len(source)))
    return Plan(_unique(ids), np.asarray(source.targets), len(source.classes), tuple(make(source)))


def stored_plan(cells: Sequence[Cell], *, limit: int | None, missing: Sequence[str]) -> Plan:
    """A plan whose cells have images of their own, the same ones by id; what a cell lacks counts as unreadable."""
    targets: dict[str, int] = {}
    own_ids = []
    for cell in cells:
        if cell.source.classes != cells[0].source.classes:
            raise HoldfastError(
                f"{cell.name} must have the {len(cells[0].source.classes)} classes of {cells[0].name}, "
                f"got {len(cell.source.classes)}: a folder more or less shifts all labels behind it"
            )
        ids = [cell.source.id(index) for index in range(len(cell.source))]
        own_ids.append(ids)
        targets.update(zip(ids, map(int, cell.source.targets), strict=True))
    names, labels = list(targets), np.array(list(targets.values()), dtype=np.int64)
    if limit is not None:
        chosen = limited(names, labels, limit)
        names, labels = [names[row] for row in chosen], labels[chosen]
    placed = [_placed(cell, ids, names) for cell, ids in zip(cells, own_ids, strict=True)]
    return Plan(tuple(names), labels, len(cells[0].source.classes), tuple(placed), tuple(missing))


def limited(ids: Sequence[str], targets: np.ndarray, limit: int) -> np.ndarray:
    """The rows of a subset with every class in its share, the same for everybody: chosen by a digest of the ids.

    A smaller limit gives a subset of a larger one's.
    """
    if limit < 1:
        raise HoldfastError(f"limit must be at least 1, got {limit}")
    if limit >= len(ids):
        return np.arange(len(ids))
    order = np.argsort(np.array([_key(name) for name in ids], dtype=np.uint64), kind="stable")
    shares = np.empty(len(ids))
    for label in np.unique(targets):
        members = order[targets[order] == label]
        shares[members] = (np.arange(len(members)) + 0.5) / len(members)
    first = order[np.argsort(shares[order], kind="stable")][:limit]
    return np.sort(first)


def _placed(cell: Cell, own: list[str], names: list[str]) -> Cell:
    if own == names:
        return cell
    numbers = {name: number for number, name in enumerate(own)}
    places = np.array([numbers.get(name, -1) for name in names], dtype=np.int64)
    return Cell(**{**vars(cell), "places": places})


def _unique(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) != len(ids):
        raise HoldfastError(f"ids of a data set must differ, got {len(ids) - len(set(ids))} that appear twice")
    return ids


def _key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big")
