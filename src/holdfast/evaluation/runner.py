"""Evaluation runner: workers make images, the model predicts them, and finished units are written to files.

The unit of work is (cell, shard of images). Units on disk are not measured again, so an interrupted evaluation
resumes where it stopped; several processes on one file system share the units and need no lock.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence

from holdfast.evaluation.loader import Chunks, Job, chunk_loader, ended_workers
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.predict_chunks import ChunkPredictor, predict_chunks
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.evaluation.unit_writer import UnitWriter
from holdfast.evaluation.work import Key, ProgressCallback, Work, report_unit
from holdfast.models.corruption_model import Corruptor
from holdfast.records.round_files import Measured
from holdfast.records.shard_files import DamagedUnit, Unit, read_unit, set_aside
from holdfast.runtime.signals import worker_deaths

logger = logging.getLogger(__name__)

WAY_ON = "finished units are kept: run the same command again to resume, with fewer --workers if memory is short"


def finished_units(work: Work, views: Sequence[str], *, repair: bool, progress: ProgressCallback) -> set[Key]:
    """Keys of the valid units on disk; ``repair`` sets damaged ones aside, so that they are measured again."""
    done = set()
    for key in work.units():
        path = work.path(key)
        if not path.exists():
            continue
        try:
            unit = finished_unit(work, key, views)
        except DamagedUnit as error:
            if repair:
                logger.warning("%s; kept as %s, measuring again", error, set_aside(path).name)
            continue
        done.add(key)
        report_unit(progress, work, key, unit)
    return done


def finished_unit(work: Work, key: Key, views: Sequence[str]) -> Unit:
    """Read a unit; raises `DamagedUnit` if it belongs to another evaluation or its content is damaged."""
    unit = read_unit(work.path(key))
    _check_origin(unit, work, key, views)
    return unit


def run_units(
    work: Work,
    keys: Sequence[Key],
    *,
    normalized_model: NormalizedModel,
    steps: Preprocessing,
    progress: ProgressCallback,
    corruptors: Mapping[str, Corruptor] | None = None,
    known: Measured | None = None,
) -> None:
    """Measure units and write each one as soon as it is complete; images in ``known`` are not measured again."""
    predictor = ChunkPredictor(work, normalized_model, corruptors or {})
    writer = UnitWriter(work, predictor, progress, known)
    jobs = list(_jobs(work, keys, writer))
    chunks = Chunks(work.plan, jobs, steps=steps, seed=work.seed, shard_size=work.shard_size)
    loader = chunk_loader(chunks, workers=work.workers, pin=normalized_model.device.type == "cuda")
    with worker_deaths(way_on=WAY_ON), ended_workers(loader) as made:
        for chunk, part in predict_chunks(made, predictor):
            writer.add(chunk, part)
    assert not writer.open, "every unit is complete when all chunks are through"


def _jobs(work: Work, keys: Sequence[Key], writer: UnitWriter) -> Iterator[Job]:
    """What remains to be measured, shard by shard; units of which every image is known are written at once."""
    for shard in dict.fromkeys(shard for shard, _ in keys):
        cells, known = list[int](), dict[int, frozenset[int]]()
        for key in (key for key in keys if key[0] == shard):
            unit = writer.begin(key)
            writer.finish_if_complete(key, unit)
            rows = frozenset([*unit.rows, *unit.unreadable])
            if len(rows) < len(work.plan.rows(shard, work.shard_size)):
                cells.append(key[1])
                known |= {key[1]: rows} if rows else {}
        if cells:
            yield Job(shard, tuple(cells), known)


def _check_origin(unit: Unit, work: Work, key: Key, views: Sequence[str]) -> None:
    cell, rows = work.plan.cells[key[1]], work.plan.rows(key[0], work.shard_size)
    wanted = (work.fingerprint, cell.name, cell.record_definition, key[0], list(views))
    found = tuple(unit.header.get(name) for name in ("fingerprint", "cell", "definition", "shard", "views"))
    if found != wanted:
        raise DamagedUnit(f"{work.path(key).name} was measured with other settings")
    if sorted([*unit.rows.tolist(), *unit.excluded.tolist()]) != list(rows):
        raise DamagedUnit(f"{work.path(key).name} is damaged: it does not hold the images of its shard")
