"""The units of an evaluation as tasks of a Ray cluster: a worker begins the same errand and calls ``run_units``."""

import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.evaluation.record_set import FINGERPRINTED
from holdfast.evaluation.runner import Key, ProgressCallback, Work, finished_unit, run_units, tell
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, fit_corruption_models, prepare_evaluation
from holdfast.models.output_probe import same_answers
from holdfast.records.cells import CellSpec
from holdfast.records.header import HEADER
from holdfast.records.shard_files import DamagedUnit, write_content
from holdfast.runtime.ray import Cluster, tasks_on

TASKS_PER_SLOT = 4  # so that a slow task at the end keeps nobody waiting for long


@dataclass(frozen=True)
class RemoteRequest:
    """What a worker is asked for.

    Attributes:
        request: what to measure.
        header: what the record set says of itself at home; it must say the same there.
        folder: of the records; None to bring the units home.
        files: what was fitted at home before the units, by name, where the folder is not shared.
    """

    request: EvaluationRequest
    header: Mapping[str, Any]
    folder: Path | None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class RemoteRecords:
    """What a worker says of its units: a watcher that keeps what it is told."""

    told: list[tuple[str, np.ndarray | None]] = field(default_factory=list)  # cell, what its images add up to
    files: dict[str, bytes] = field(default_factory=dict)

    def looked_at(self, count: int) -> None:
        """Nobody watches here."""

    def measured(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """A unit is on disk."""
        self.told.append((cell.name, sums))


def run_on_ray(errand: PreparedEvaluation, keys: Sequence[Key], *, watcher: ProgressCallback) -> None:
    """Measure the units on the cluster of the request."""
    cluster, work = errand.request.compute.cluster, errand.work
    assert cluster is not None
    specs = {cell.name: cell.spec for cell in work.plan.cells}
    order = _order(errand, cluster)
    with tasks_on(cluster) as tasks:
        for part in parts(keys, slots=tasks.slots):
            tasks.submit(part, measure_units, order, part)
        for part, found in tasks.finished():
            for name, content in found.files.items():
                write_content(work.folder / name, content)
            for name, sums in found.told:
                watcher.measured(specs[name], sums)
            watcher.looked_at(sum(len(work.plan.rows(shard, work.shard_size)) for shard, _ in part))


def parts(keys: Sequence[Key], *, slots: int) -> Iterator[list[Key]]:
    """A task per shard, whose images are then decoded once; of few shards, some cells each."""
    shards = {shard: [key for key in keys if key[0] == shard] for shard in dict.fromkeys(shard for shard, _ in keys)}
    pieces = -(-TASKS_PER_SLOT * slots // len(shards))
    for mine in shards.values():
        size = -(-len(mine) // min(pieces, len(mine)))
        yield from (mine[start : start + size] for start in range(0, len(mine), size))


def measure_units(order: RemoteRequest, keys: Sequence[Key]) -> RemoteRecords:
    """In a worker: measure what is not there yet."""
    errand = _begun_here(order)
    work, views, found = errand.work, errand.judge.views, RemoteRecords()
    todo = []
    for key in keys:
        try:
            tell(found, work, key, finished_unit(work, key, views))
        except (DamagedUnit, OSError):
            todo.append(key)
    corruptors = fit_corruption_models(errand, todo)
    run_units(work, todo, judge=errand.judge, steps=errand.steps, watcher=found, corruptors=corruptors)
    if order.folder is None:
        for path in map(work.path, keys):
            found.files[path.name] = path.read_bytes()
            path.unlink()
    return found


def _order(errand: PreparedEvaluation, cluster: Cluster) -> RemoteRequest:
    request = errand.request
    if not isinstance(request.model, str | Path) or not isinstance(request.data, str):
        raise HoldfastError("an evaluation on a cluster needs its model and its data by name, got an object")
    if errand.processes.count > 1:
        raise HoldfastError("--on ray must be one process, which hands out the units; torchrun has started several")
    workers = request.workers if request.workers is not None else max(0, int(cluster.cpus) - 1)
    there = replace(request, workers=workers, compute=replace(request.compute, cluster=None, keep_examples=0))
    files = {path.name: path.read_bytes() for path in errand.work.folder.glob("corruptor.*.safetensors")}
    folder = None if cluster.gather else errand.work.folder.absolute()
    return RemoteRequest(there, errand.header, folder, files if cluster.gather else {})


_open: list[tuple[Any, ExitStack, PreparedEvaluation]] = []  # the errand that this worker has begun, with its model


def _begun_here(order: RemoteRequest) -> PreparedEvaluation:
    """The errand, begun once per worker and request."""
    key = (order.header["fingerprint"], order.folder, repr(order.request))
    if _open and _open[0][0] == key:
        return _open[0][2]
    while _open:
        _open.pop()[1].close()
    stack = ExitStack()
    out = order.request.out if order.folder else stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
    errand = stack.enter_context(prepare_evaluation(replace(order.request, out=out)))
    _check_same(order, errand)
    errand = replace(errand, work=_prepare_work(order, errand.work))
    _open.append((key, stack, errand))
    return errand


def _prepare_work(order: RemoteRequest, work: Work) -> Work:
    if order.folder is not None:
        if not (order.folder / HEADER).is_file():
            raise HoldfastError(
                f"{str(order.folder)!r} is not there on {platform.node()}: --out must be a folder that all nodes "
                "see, or --gather brings the results home"
            )
        return replace(work, folder=order.folder, fingerprint=order.header["fingerprint"])
    work.folder.mkdir(parents=True, exist_ok=True)
    for name, content in order.files.items():
        (work.folder / name).write_bytes(content)
    return replace(work, fingerprint=order.header["fingerprint"])


def _check_same(order: RemoteRequest, errand: PreparedEvaluation) -> None:
    """Another version of a library, other images or other answers would be another measurement."""
    other = [name for name in FINGERPRINTED if errand.header.get(name) != order.header.get(name)]
    if not same_answers(order.header["probe"], errand.header["probe"], tolerance=errand.judge.tolerance):
        other.append("answers to the probe images")
    if not other:
        return
    raise HoldfastError(
        f"{platform.node()} would measure something else than was asked for: {', '.join(other)} differ from home"
    )
