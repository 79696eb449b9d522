"""Images of a cell, made in a worker: clean, corrupted, perturbed or stored. A new kind of cell is one more class.

Each class gets a cache (plan, preprocessing and seed, with the preprocessed images shared by all cells of one source)
and yields samples: rows of the record set, their images at the model's size, and the rows that could not be read.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from holdfast.corruptions import corrupt_batch, keyed
from holdfast.corruptions.sequences import perturb
from holdfast.data.source import UnreadableImage
from holdfast.evaluation.preprocessing import Pixels, Preprocessing
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


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Several samples as one."""
    return Samples(
        [row for part in parts for row in part.rows],
        [image for part in parts for image in part.images],
        [target for part in parts for target in part.targets],
        [each for part in parts for each in part.unreadable],
    )


class CellImages(Protocol):
    """Makes the images of a cell.

    ``way``, if present, names the preprocessing they go through, see ``Preprocessing.cell_steps``.
    """

    @property
    def repeated(self) -> bool:
        """Whether every image is predicted several times, as the frames of a film."""
        ...

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: "WorkerCache") -> Iterator[Samples]:
        """Make the images of some rows."""
        ...


@dataclass
class WorkerCache:
    """A worker's cache for some images.

    Attributes:
        plan: images and cells of the evaluation.
        steps: preprocessing.
        seed: seed of the corruptions.
        clean_too: rows that are also needed clean, which are prepared for that when they are decoded.
        prepared: preprocessed images that several cells start from, by source, form and row.
    """

    plan: "Plan"
    steps: Preprocessing
    seed: int
    clean_too: Container[int] = ()
    prepared: dict[tuple[int, str], dict[int, Samples]] = field(default_factory=dict)

    def pictures(self, cell: "Cell", rows: Sequence[int], *, form: str, prepare: Callable[[Any], Pixels]) -> Samples:
        """Images and targets of some rows, decoded once for all cells of one source and form."""
        held = self.prepared.setdefault((id(cell.source), form), {})
        for row in rows:
            if row not in held:
                held[row] = self._read(cell, row, prepare, clean_too=form != "clean" and row in self.clean_too)
        return join_samples([held[row] for row in rows])

    def _read(self, cell: "Cell", row: int, prepare: Callable[[Any], Pixels], *, clean_too: bool) -> Samples:
        def pixels(place: int) -> Pixels:
            picture = cell.source.image(place)
            if clean_too:
                clean = self.prepared.setdefault((id(cell.source), "clean"), {})
                clean[row] = self.read_samples(cell, [row], lambda _: self.steps.clean(picture))
            return prepare(picture)

        return self.read_samples(cell, [row], pixels)

    def read_samples(self, cell: "Cell", rows: Sequence[int], image: Callable[[int], Pixels]) -> Samples:
        """Read the image and target of every row from the cell's source."""
        samples = Samples([], [], [], [])
        for row in rows:
            try:
                place = self._place(cell, row)
                pixels, target = image(place), self.plan.task.evaluation.target(cell.source, place)
            except UnreadableImage as error:
                samples.unreadable.append((row, str(error)))
                continue
            except (ImageSizeError, MemoryError) as error:
                samples.unreadable.append(self.unreadable_row(row, error))
                continue
            samples.rows.append(row)
            samples.images.append(pixels)
            samples.targets.append(target)
        return samples

    def unreadable_row(self, row: int, error: Exception) -> tuple[int, str]:
        """A row whose image is too small, too large or needs too much memory, as an unreadable one."""
        reason = "not enough memory" if isinstance(error, MemoryError) else str(error)
        return row, str(UnreadableImage(self.plan.ids[row], reason))

    def _place(self, cell: "Cell", row: int) -> int:
        place = cell.place(row)
        if place < 0:
            raise UnreadableImage(self.plan.ids[row], f"{cell.name} has no such image")
        return place


@dataclass(frozen=True)
class CleanImages:
    """Images with the model's own preprocessing: clean images, and the starting point of attacks."""

    repeated: bool = False
    way: str = "clean"

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: WorkerCache) -> Iterator[Samples]:
        """Yield the samples of all rows at once."""
        if not cache.steps.same_for_clean:
            yield cache.pictures(cell, rows, form="clean", prepare=cache.steps.clean)
            return
        samples = cache.pictures(cell, rows, form="image", prepare=cache.steps.to_protocol)
        yield samples._replace(images=[cache.steps.to_model(image, corrupted=False) for image in samples.images])


@dataclass(frozen=True)
class CorruptedImages:
    """Images under a corruption, whose random numbers are keyed by image id."""

    kind: str
    severity: int
    repeated: bool = False
    way: str = "corrupted"

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: WorkerCache) -> Iterator[Samples]:
        """Yield the samples of all rows at once."""
        samples = cache.pictures(cell, rows, form="image", prepare=cache.steps.to_protocol)
        try:
            images = self._corrupt_images(samples, cache)
        except (ImageSizeError, MemoryError) as error:
            if isinstance(error, ImageSizeError) and cache.steps.size is not None:
                raise  # all images have that size: the settings are wrong, not one image
            if len(samples.rows) > 1:  # one by one, to exclude the failing image only
                for row in rows:
                    yield from self.pieces(cell, [row], WorkerCache(cache.plan, cache.steps, cache.seed))
            else:
                yield Samples([], [], [], [cache.unreadable_row(samples.rows[0], error)])
            return
        yield samples._replace(images=[cache.steps.to_model(image, corrupted=True) for image in images])

    def _corrupt_images(self, samples: Samples, cache: WorkerCache) -> list[Pixels]:
        ids = [cache.plan.ids[row] for row in samples.rows]
        options: dict[str, Any] = {"severity": self.severity, "preset": cache.steps.preset, "seed": cache.seed}
        return corrupt_batch(samples.images, self.kind, ids=ids, **options)


@dataclass(frozen=True)
class PerturbedImages:
    """A perturbation sequence of every image; one film at a time, because a film is large."""

    kind: str
    repeated: bool = True
    way: str = "frames"

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: WorkerCache) -> Iterator[Samples]:
        """One group of samples per film, and one for what could not be read."""
        steps = cache.steps
        form = f"sequence {self.kind}" if steps.preset == "tiny" else "sequence"
        found = cache.pictures(cell, rows, form=form, prepare=lambda p: steps.to_sequence(p, self.kind))
        for row, image, target in zip(found.rows, found.images, found.targets, strict=True):
            draws = keyed(cache.seed, cache.plan.ids[row], f"{self.kind} sequence", 1)
            try:
                frames = perturb(image, self.kind, preset=steps.preset, rng=draws)
            except (ImageSizeError, MemoryError) as error:
                yield Samples([], [], [], [cache.unreadable_row(row, error)])
                continue
            yield Samples([row], [_film(frames, steps)], [target], [])
        if found.unreadable:
            yield Samples([], [], [], found.unreadable)


@dataclass(frozen=True)
class StoredImages:
    """Images of a stored set, used as they are; ``way`` is None for whole images, which no step prepares."""

    repeated: bool = False
    way: str | None = "stored"

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: WorkerCache) -> Iterator[Samples]:
        """Yield the samples of all rows at once."""
        samples = cache.read_samples(cell, rows, lambda place: np.array(cell.source.image(place).convert("RGB")))
        yield samples._replace(images=[cache.steps.to_model(image, corrupted=False) for image in samples.images])


@dataclass(frozen=True)
class SequenceImages:
    """Films of a stored set, used as they are."""

    repeated: bool = True
    way: str = "stored"

    def pieces(self, cell: "Cell", rows: Sequence[int], cache: WorkerCache) -> Iterator[Samples]:
        """Yield the samples of every film."""
        for row in rows:
            yield cache.read_samples(cell, [row], lambda place: _film(cell.source.frames(place), cache.steps))


def _film(frames: np.ndarray, steps: Preprocessing) -> Pixels:
    # corrupted=False: ImageNet-P stored videos, not JPEGs, so no frame is re-encoded
    return np.stack([steps.to_model(frame, corrupted=False) for frame in frames])
