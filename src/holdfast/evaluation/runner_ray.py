"""Evaluation on a Ray cluster: every task prepares the same evaluation and calls ``run_units`` on some units."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.cells import CellSpec
from holdfast.errors import HoldfastError
from holdfast.evaluation.record_set import FINGERPRINTED
from holdfast.evaluation.round_runner import MeasureParts, run_parts
from holdfast.evaluation.rounds import Part
from holdfast.evaluation.runner import finished_unit, run_units
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, fit_corruption_models, prepare_evaluation
from holdfast.evaluation.work import Key, ProgressCallback, Work, report_unit
from holdfast.models.output_probe import same_answers
from holdfast.records.header import HEADER
from holdfast.records.round_files import CellPart
from holdfast.records.shard_files import DamagedUnit
from holdfast.runtime.gather import check_shared, read_files, task_folder, write_files
from holdfast.runtime.ray import Cluster, tasks_on

TASKS_PER_SLOT = 4  # small tasks, so that a slow one at the end does not leave the other slots idle for long


@dataclass(frozen=True)
class RemoteRequest:
    """The evaluation that a Ray worker prepares.

    Attributes:
        request: arguments of the evaluation.
        header: header of the record set on the driver; the worker's must agree.
        folder: folder of the records; None to return the units to the driver.
        files: fitted corruption models by file name, if the folder is not shared.
    """

    request: EvaluationRequest
    header: Mapping[str, Any]
    folder: Path | None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class RemoteRecords:
    """Units that a Ray worker finished: a progress callback that collects them for the driver."""

    finished: list[tuple[str, np.ndarray | None]] = field(default_factory=list)  # cell, sums of its running score
    files: dict[str, bytes] = field(default_factory=dict)

    def advance_images(self, count: int) -> None:
        """Do nothing: the driver shows progress by finished units."""

    def finish_unit(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Collect a finished unit for the driver."""
        self.finished.append((cell.name, sums))


def run_on_ray(prepared: PreparedEvaluation, keys: Sequence[Key], *, progress: ProgressCallback) -> None:
    """Measure units on the request's Ray cluster."""
    cluster, work = prepared.request.compute.cluster, prepared.work
    assert cluster is not None
    if not keys:
        return
    specs = {cell.name: cell.spec for cell in work.plan.cells}
    order = _remote_request(prepared, cluster)
    with tasks_on(cluster) as tasks:
        for part in parts(keys, slots=tasks.slots):
            tasks.submit(part, measure_units, order, part)
        for part, found in tasks.results():
            write_files(work.folder, found.files)
            for name, sums in found.finished:
                progress.finish_unit(specs[name], sums)
            progress.advance_images(sum(len(work.plan.rows(shard, work.shard_size)) for shard, _ in part))


@contextmanager
def parts_on_ray(prepared: PreparedEvaluation, clean: int | None) -> Iterator[MeasureParts]:
    """Measure the parts of rounds on the request's Ray cluster; this process writes them."""
    cluster = prepared.request.compute.cluster
    assert cluster is not None
    # the results come back to this process, so workers need not see the folder
    order = replace(_remote_request(prepared, cluster), folder=None)

    with tasks_on(cluster) as tasks:

        def measure(parts: Sequence[Part], progress: ProgressCallback) -> Iterator[list[CellPart]]:
            for part in parts:
                tasks.submit(part, measure_part, order, part, clean)
            for part, cells in tasks.results():
                progress.advance_images(part.passes)
                yield cells

        yield measure


def measure_part(order: RemoteRequest, part: Part, clean: int | None) -> list[CellPart]:
    """Measure one part of a round, in a Ray worker."""
    prepared = _prepare_here(order)
    made = run_parts(
        prepared.work,
        [part],
        clean,
        normalized_model=prepared.normalized_model,
        steps=prepared.steps,
        progress=RemoteRecords(),
    )
    return [each for _, cells in made for each in cells]


def parts(keys: Sequence[Key], *, slots: int) -> Iterator[list[Key]]:
    """Split units into tasks: one per shard, to decode its images once; shards are split by cells if there are few."""
    shards = {shard: [key for key in keys if key[0] == shard] for shard in dict.fromkeys(shard for shard, _ in keys)}
    pieces = -(-TASKS_PER_SLOT * slots // len(shards))
    for mine in shards.values():
        size = -(-len(mine) // min(pieces, len(mine)))
        yield from (mine[start : start + size] for start in range(0, len(mine), size))


def measure_units(order: RemoteRequest, keys: Sequence[Key]) -> RemoteRecords:
    """Measure the units that are not on disk yet, in a Ray worker."""
    prepared = _prepare_here(order)
    work, views, found = prepared.work, prepared.normalized_model.views, RemoteRecords()
    todo = []
    for key in keys:
        try:
            report_unit(found, work, key, finished_unit(work, key, views))
        except (DamagedUnit, OSError):
            todo.append(key)
    corruptors = fit_corruption_models(prepared, todo)
    run_units(
        work,
        todo,
        normalized_model=prepared.normalized_model,
        steps=prepared.steps,
        progress=found,
        corruptors=corruptors,
    )
    if order.folder is None:
        paths = [work.path(key) for key in keys]
        found.files |= read_files(work.folder, paths)
        for path in paths:
            path.unlink()
    return found


def _remote_request(prepared: PreparedEvaluation, cluster: Cluster) -> RemoteRequest:
    request = prepared.request
    if not isinstance(request.model, str | Path) or not isinstance(request.data, str):
        raise HoldfastError(
            "an evaluation on a cluster needs a model spec and a data spec, got an object: write them as text"
        )
    if prepared.processes.count > 1:
        raise HoldfastError("--on ray must run in one process, which distributes the units: start it without torchrun")
    workers = request.workers if request.workers is not None else max(0, int(cluster.cpus) - 1)
    compute = replace(request.compute, cluster=None, keep_examples=0)
    there = replace(request, workers=workers, compute=compute, check=None)
    if not cluster.gather:
        return RemoteRequest(there, prepared.header, prepared.work.folder.absolute())
    fitted = read_files(prepared.work.folder, prepared.work.folder.glob("corruptor.*.safetensors"))
    return RemoteRequest(there, prepared.header, None, fitted)


_open: list[tuple[Any, ExitStack, PreparedEvaluation]] = []  # this worker's prepared evaluation, with its model


def _prepare_here(order: RemoteRequest) -> PreparedEvaluation:
    """Prepare the evaluation once per worker and request."""
    key = (order.header["fingerprint"], order.folder, repr(order.request))
    if _open and _open[0][0] == key:
        return _open[0][2]
    while _open:
        _open.pop()[1].close()
    stack = ExitStack()
    out = order.request.out if order.folder else stack.enter_context(task_folder(None))
    prepared = stack.enter_context(prepare_evaluation(replace(order.request, out=out)))
    _check_same(order, prepared)
    prepared = replace(prepared, work=_prepare_work(order, prepared.work))
    _open.append((key, stack, prepared))
    return prepared


def _prepare_work(order: RemoteRequest, work: Work) -> Work:
    if order.folder is not None:
        check_shared(order.folder, there=lambda folder: (folder / HEADER).is_file())
        return replace(work, folder=order.folder, fingerprint=order.header["fingerprint"])
    work.folder.mkdir(parents=True, exist_ok=True)
    write_files(work.folder, order.files)
    return replace(work, fingerprint=order.header["fingerprint"])


def _check_same(order: RemoteRequest, prepared: PreparedEvaluation) -> None:
    """Raise an error if the worker has other library versions, other images or other predictions than the driver."""
    other = [name for name in FINGERPRINTED if prepared.header.get(name) != order.header.get(name)]
    if not same_answers(order.header["probe"], prepared.header["probe"], tolerance=prepared.normalized_model.tolerance):
        other.append("answers to the probe images")
    if not other:
        return
    raise HoldfastError(
        f"{platform.node()} would not reproduce the driver's evaluation, because these differ: {', '.join(other)}"
    )
