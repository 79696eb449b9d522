"""How the images of a cell are made in a worker. A new kind of cell is one more class like those below.

A making gets a bench (what is known about the evaluation, with pictures prepared once for all cells that start from
the same source) and yields pieces: rows of the record set, their images as the model gets them, what was unreadable.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from holdfast.corruptions import corrupt_batch, keyed
from holdfast.corruptions.sequences import perturb
from holdfast.data.source import UnreadableImage
from holdfast.evaluation.preprocessing import Pixels, PreprocessingSteps
from holdfast.io.images import ImageSizeError

if TYPE_CHECKING:
    from holdfast.evaluation.plan import Cell, Plan

Unreadable = list[tuple[int, str]]  # row and sentence


class Samples(NamedTuple):
    """Some rows of a cell: their images (H W 3), or films (F H W 3), their targets, and rows that could not be read."""

    rows: list[int]
    images: list[Pixels]
    targets: list[Any]
    unreadable: Unreadable


class CellImages(Protocol):
    """How the images of a cell are made.

    ``way``, if it has one, says which steps they take, see ``PreprocessingSteps.named``.
    """

    @property
    def repeated(self) -> bool:
        """Whether every image is seen several times, as the frames of a film."""
        ...

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: "WorkerCache") -> Iterator[Samples]:
        """The images of some rows."""
        ...


@dataclass
class WorkerCache:
    """What a worker has at hand for some rows of a shard.

    Attributes:
        plan: images and cells.
        steps: from a picture to what the model gets.
        seed: of corruptions.
        prepared: pictures that several cells start from, by source and form.
    """

    plan: "Plan"
    steps: PreprocessingSteps
    seed: int
    prepared: dict[tuple[int, str], Samples] = field(default_factory=dict)

    def pictures(self, cell: "Cell", rows: Sequence[int], *, form: str, prepare: Callable[[Any], Pixels]) -> Samples:
        """The pictures of some rows with their targets, decoded once for all cells of one source and form."""
        key = (id(cell.source), form)
        if key not in self.prepared:
            self.prepared[key] = self.read(cell, rows, lambda place: prepare(cell.source.image(place)))
        return self.prepared[key]

    def read(self, cell: "Cell", rows: Sequence[int], image: Callable[[int], Pixels]) -> Samples:
        """Read every row's image and target from the cell's own source."""
        piece = Samples([], [], [], [])
        for row in rows:
            try:
                place = self._place(cell, row)
                pixels, target = image(place), self.plan.task.target(cell.source, place)
            except UnreadableImage as error:
                piece.unreadable.append((row, str(error)))
                continue
            except (ImageSizeError, MemoryError) as error:
                piece.unreadable.append(self.refused(row, error))
                continue
            piece.rows.append(row)
            piece.images.append(pixels)
            piece.targets.append(target)
        return piece

    def refused(self, row: int, error: Exception) -> tuple[int, str]:
        """A row whose image is of a size that nothing can be made of: an unreadable one."""
        reason = "not enough memory for it" if isinstance(error, MemoryError) else str(error)
        return row, str(UnreadableImage(self.plan.ids[row], reason))

    def _place(self, cell: "Cell", row: int) -> int:
        place = cell.place(row)
        if place < 0:
            raise UnreadableImage(self.plan.ids[row], f"{cell.name} has no such image")
        return place


@dataclass(frozen=True)
class CleanImages:
    """The pictures as the model wants them: clean images, and what attacks start from."""

    repeated: bool = False
    way: str = "clean"

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: WorkerCache) -> Iterator[Samples]:
        """One piece."""
        if not bench.steps.same_for_clean:
            yield bench.pictures(cell, rows, form="clean", prepare=bench.steps.clean)
            return
        piece = bench.pictures(cell, rows, form="image", prepare=bench.steps.before)
        yield piece._replace(images=[bench.steps.after(image, corrupted=False) for image in piece.images])


@dataclass(frozen=True)
class CorruptedImages:
    """The same pictures under a corruption, keyed by image id."""

    kind: str
    severity: int
    repeated: bool = False
    way: str = "corrupted"

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: WorkerCache) -> Iterator[Samples]:
        """One piece."""
        piece = bench.pictures(cell, rows, form="image", prepare=bench.steps.before)
        try:
            images = self._corrupted(piece, bench)
        except (ImageSizeError, MemoryError) as error:
            if isinstance(error, ImageSizeError) and bench.steps.size is not None:
                raise  # all images are of that size: the settings are wrong, and not one of the images
            if len(piece.rows) > 1:  # which of them it was
                for row in rows:
                    yield from self.pieces(cell, [row], WorkerCache(bench.plan, bench.steps, bench.seed))
            else:
                yield Samples([], [], [], [bench.refused(piece.rows[0], error)])
            return
        yield piece._replace(images=[bench.steps.after(image, corrupted=True) for image in images])

    def _corrupted(self, piece: Samples, bench: WorkerCache) -> list[Pixels]:
        ids = [bench.plan.ids[row] for row in piece.rows]
        options: dict[str, Any] = {"severity": self.severity, "preset": bench.steps.preset, "seed": bench.seed}
        return corrupt_batch(piece.images, self.kind, ids=ids, **options)


@dataclass(frozen=True)
class PerturbedImages:
    """A perturbation sequence of every picture; one piece per image, because a film is large."""

    kind: str
    repeated: bool = True
    way: str = "frames"

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: WorkerCache) -> Iterator[Samples]:
        """A piece per film, and one for what could not be read."""
        steps = bench.steps
        form = f"sequence {self.kind}" if steps.preset == "tiny" else "sequence"
        found = bench.pictures(cell, rows, form=form, prepare=lambda p: steps.before_sequence(p, self.kind))
        for row, image, target in zip(found.rows, found.images, found.targets, strict=True):
            draws = keyed(bench.seed, bench.plan.ids[row], f"{self.kind} sequence", 1)
            try:
                frames = perturb(image, self.kind, preset=steps.preset, rng=draws)
            except (ImageSizeError, MemoryError) as error:
                yield Samples([], [], [], [bench.refused(row, error)])
                continue
            yield Samples([row], [_film(frames, steps)], [target], [])
        if found.unreadable:
            yield Samples([], [], [], found.unreadable)


@dataclass(frozen=True)
class StoredImages:
    """Images of a stored set, taken as they are."""

    repeated: bool = False
    way: str = "stored"

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: WorkerCache) -> Iterator[Samples]:
        """One piece."""
        piece = bench.read(cell, rows, lambda place: np.array(cell.source.image(place).convert("RGB")))
        yield piece._replace(images=[bench.steps.after(image, corrupted=False) for image in piece.images])


@dataclass(frozen=True)
class SequenceImages:
    """Films of a stored set, taken as they are."""

    repeated: bool = True
    way: str = "stored"

    def pieces(self, cell: "Cell", rows: Sequence[int], bench: WorkerCache) -> Iterator[Samples]:
        """A piece per film."""
        for row in rows:
            yield bench.read(cell, [row], lambda place: _film(cell.source.frames(place), bench.steps))


def _film(frames: np.ndarray, steps: PreprocessingSteps) -> Pixels:
    # stored sequences are films or arrays, never JPEGs
    return np.stack([steps.after(frame, corrupted=False) for frame in frames])
