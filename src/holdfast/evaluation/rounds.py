"""``Rounds``: which (image, cell) pairs every round of an anytime evaluation measures, in parts of some hundred passes.

A round brings all cells of every goal that is not reached yet to the next number of images. Every image of
a corrupted cell is also measured clean once, right after it, so that it is decoded once for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from holdfast.evaluation.order import FIRST_IMAGES, Order, Rows, depths

PART = 1024  # passes per part, which is the most that an interrupted process measures again
MOST_PARTS = 500  # per round, as each is a file


@dataclass(frozen=True)
class Pick:
    """Some images to measure in one cell, and those of them to measure clean, too."""

    cell: int
    rows: tuple[int, ...]
    clean: tuple[int, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part of a round, written as one file.

    Attributes:
        number: number of the part since the start.
        round: number of its round since the start.
        picks: what to measure.
    """

    number: int
    round: int
    picks: tuple[Pick, ...]

    @property
    def passes(self) -> int:
        """Forward passes: pairs of an image and a cell."""
        return sum(len(pick.rows) + len(pick.clean) for pick in self.picks)


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds of an anytime evaluation.

    Attributes:
        order: order of the pairs.
        cells: numbers in the plan of the cells that share the images, in the order of their names.
        clean: number of the clean cell; None if there is none, or if it is one of ``cells``.
        first: images per cell in the first round.
        passes: passes per part.
    """

    order: Order
    cells: tuple[int, ...]
    clean: int | None = None
    first: int = FIRST_IMAGES
    passes: int = PART
    _place: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_place", {cell: place for place, cell in enumerate(self.cells)})

    @property
    def depths(self) -> list[int]:
        """Images per cell after each round."""
        return list(depths(len(self.order.images), first=self.first))

    @property
    def first_passes(self) -> int:
        """Passes of the first round, before which nothing is known."""
        clean = 0 if self.clean is None else len(self.rows(self.clean, self.depths[0]))
        return self.depths[0] * len(self.cells) + clean

    def rows(self, cell: int, images: int) -> Rows:
        """The first images of a cell; of the clean cell those of so many images per corrupted cell."""
        if cell in self._place:
            return self.order.take(self._place[cell], 0, images)
        used = [self.order.take(place, 0, images) for place in range(len(self.cells))]
        return np.unique(np.concatenate(used))

    def reached(self, cells: Sequence[int], done: np.ndarray) -> int:
        """The number of rounds that are complete in all of some cells; ``done`` says so by cell and row."""
        count = 0
        for depth in self.depths:
            if not all(done[cell, self.rows(cell, depth)].all() for cell in cells):
                break
            count += 1
        return count

    def begun(self, cells: Sequence[int], done: np.ndarray) -> bool:
        """Whether the next round of some cells is measured in part, as after an interruption.

        Every part of a round has images of all its cells, so then a cell has some of them; one that other goals drew
        further has all of them.
        """
        complete = self.reached(cells, done)
        if complete == len(self.depths):
            return False
        before, after = [0, *self.depths][complete : complete + 2]
        for cell in [cell for cell in cells if cell != self.clean] or cells:
            news = np.setdiff1d(self.rows(cell, after), self.rows(cell, before))
            if 0 < done[cell, news].sum() < len(news):
                return True
        return False

    def parts(self, goals: Sequence[Sequence[int]], done: np.ndarray) -> Iterator[Part]:
        """The parts of all further rounds for some goals, each the numbers of its cells, until all images are used."""
        done, number = done.copy(), 0
        levels = [self.reached(cells, done) for cells in goals]
        for count in range(len(self.depths) - min(levels, default=0)):
            targets: dict[int, int] = {}
            for cells, level in zip(goals, levels, strict=True):
                depth = self.depths[min(level + count, len(self.depths) - 1)]
                targets |= {cell: max(depth, targets.get(cell, 0)) for cell in cells}
            for picks in self._split(self._missing(targets, done)):
                yield Part(number, count, picks)
                number += 1

    def _missing(self, targets: Mapping[int, int], done: np.ndarray) -> list[Pick]:
        """What is to be measured to reach so many images in some cells; marks it as done."""
        picks = []
        for cell in sorted(targets, key=lambda cell: cell == self.clean):
            used = self.rows(cell, targets[cell])
            rows, clean = used[~done[cell, used]], np.empty(0, np.int64)
            done[cell, rows] = True
            if self.clean is not None and cell != self.clean:
                clean = used[~done[self.clean, used]]
                done[self.clean, clean] = True
                if len(others := clean[~np.isin(clean, rows)]):  # measured in the cell before, but not clean
                    picks.append(Pick(self.clean, tuple(others.tolist())))
            if len(rows):
                picks.append(Pick(cell, tuple(rows.tolist()), tuple(rows[np.isin(rows, clean)].tolist())))
        return picks

    def _split(self, picks: Sequence[Pick]) -> Iterator[tuple[Pick, ...]]:
        """Cut a round into parts with the same number of images in every cell."""
        longest = max((len(pick.rows) for pick in picks), default=0)
        step = max(1, self.passes // (2 * max(1, len(picks))), -(-longest // MOST_PARTS))
        for start in range(0, longest, step):
            pieces = [(pick, pick.rows[start : start + step]) for pick in picks]
            yield tuple(
                Pick(pick.cell, rows, tuple(row for row in rows if row in set(pick.clean)))
                for pick, rows in pieces
                if rows
            )
