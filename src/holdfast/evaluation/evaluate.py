"""``holdfast.evaluate``: measure a model on suites of corruptions and attacks, and keep resumable records."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from holdfast.data import Source, turned_images
from holdfast.evaluation.anytime import AnytimeRun, Search, make_search, search_in
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.evaluation.failure_examples import keep_examples
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.predict_chunks import ChunkPredictor
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.record_set import prepare_folder
from holdfast.evaluation.round_runner import done_pairs
from holdfast.evaluation.runner import finished_units, run_units
from holdfast.evaluation.runner_ray import run_on_ray
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, fit_corruption_models, prepare_evaluation
from holdfast.evaluation.suites import kinds_of
from holdfast.evaluation.unit_writer import UnitWriter
from holdfast.evaluation.until import Until
from holdfast.evaluation.work import Key, Work
from holdfast.io.images import turned_warning
from holdfast.io.validation import counted
from holdfast.records.records import Records, read_records
from holdfast.records.round_files import Measured
from holdfast.records.shard_files import unit_name

logger = logging.getLogger(__name__)


def evaluate(
    model: nn.Module | str | Path,
    data: Source | Dataset[Any] | DataLoader[Any] | Sequence[Any] | str,
    suites: str | Callable[..., Any] | Sequence[Any] = "clean",
    *,
    out: Path | str | None = None,
    limit: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    device: str = "auto",
    fresh: bool = False,
    show: bool | None = None,
    until: Until | float | str | Mapping[str, float] | None = None,
    protocol: EvalProtocol | None = None,
    compute: ComputeConfig | None = None,
) -> Records:
    """Measure a model on every cell of some suites and return the per-image records.

    Call it again to resume: units on disk are read, not measured again. A different model, data set, seed,
    preprocessing or version gets its own folder, so results are never mixed.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``,
            ``onnx:FILE``, ``hf:DIR``, ``torchvision:NAME[@CHECKPOINT]``.
        data: a spec such as ``digits``, ``folder:DIR``, ``imagenet-c:DIR``, a source, or what
            `holdfast.data.from_torch` takes: a Dataset, a DataLoader, tensors (x, y).
        suites: names of suites as in ``holdfast list suites``, in a comma list; an attack with settings such as
            ``pgd:eps=1/255|4/255,steps=20``; an attack object, or a function ``attack(model, images, labels)``; or a
            sequence of all these.
        out: the folder for ``records/``; by default the run's own for ``run:DIR``, else nothing is kept.
        limit: number of images to measure, a subset stratified by class and chosen by a digest of the ids; all for
            None or 0.
        seed: seed of corruptions and attacks.
        workers: processes that read and corrupt images; None chooses by the machine's cores, 0 for none.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``; a module stays where it is with ``auto``.
        fresh: start over instead of continuing.
        show: show progress; None shows it on a terminal.
        until: stop when the 95 % interval of the headline score has this half-width in points, or those of some scores,
            as in ``mce=1,fog=2``; ``holdfast.Until`` also takes a budget. Call again with a smaller number, or without,
            to continue.
        protocol: preprocessing of the images: size, normalisation, preset …
        compute: batch sizes, precision, stored examples, cluster.
    """
    protocol, compute = protocol or EvalProtocol(), compute or ComputeConfig()
    request = EvaluationRequest(model, data, suites, out, limit, seed, workers, device, protocol, compute)
    return evaluate_request(request, fresh=fresh, show=show, until=until)


def evaluate_request(
    request: EvaluationRequest,
    *,
    fresh: bool = False,
    show: bool | None = None,
    until: Until | float | str | Mapping[str, float] | None = None,
) -> Records:
    """`evaluate` with its arguments as one object."""
    wanted = Until.of(until) if until is not None else None
    with prepare_evaluation(request) as prepared:
        search = make_search(prepared, wanted) if wanted is not None else None
        records = _measure(prepared, search, fresh=fresh, show=show)
        keep = request.compute.keep_examples
        if keep and prepared.processes.first:
            keep_examples(
                prepared.work, records, normalized_model=prepared.normalized_model, steps=prepared.steps, count=keep
            )
        source = prepared.data.source
        if source is not None and (warning := turned_warning(turned_images(source), exif=request.protocol.exif)):
            logger.warning(warning)
    return records if records.folder and records.folder.exists() else replace(records, folder=None)


@contextmanager
def open_rounds(
    request: EvaluationRequest,
    scores: Mapping[str, Sequence[str]],
    until: Until,
    *,
    among: Collection[str],
    show: bool | None,
) -> Iterator[AnytimeRun]:
    """An evaluation whose rounds the caller asks for: of ``scores`` by their cells, which are ``among`` others."""
    with prepare_evaluation(request) as prepared:
        search = search_in(prepared, scores, until, among=among)
        measured = _measured_before(prepared, fresh=False)
        with _rounds(prepared, search, measured, show=show) as run:
            yield run


def _measure(prepared: PreparedEvaluation, search: Search | None, *, fresh: bool, show: bool | None) -> Records:
    work, plan, processes = prepared.work, prepared.work.plan, prepared.processes
    measured = _measured_before(prepared, fresh=fresh)
    if search is None:
        _measure_all(prepared, range(len(plan.cells)), measured, show=show)
    else:
        _measure_rounds(prepared, search, measured, show=show)
    records = read_records(work.folder, cells=[cell.name for cell in plan.cells])
    if processes.first:
        _warn(records, plan)
    return records


def _measured_before(prepared: PreparedEvaluation, *, fresh: bool) -> Measured:
    """Prepare the folder of the records, and read what earlier rounds measured."""
    work, plan, processes = prepared.work, prepared.work.plan, prepared.processes
    views = prepared.normalized_model.views
    processes.meet()  # every process has looked for earlier records before the first one makes the folder
    if processes.first:
        prepare_folder(work.folder, prepared.header, plan, tolerance=prepared.normalized_model.tolerance, fresh=fresh)
    processes.meet()
    measured = Measured(work.folder, work.fingerprint, views)
    measured.read_new(repair=processes.first)
    processes.meet()
    measured.keep_only({cell.name: cell.record_definition for cell in plan.cells}, repair=processes.first)
    processes.meet()
    return measured


def _measure_all(prepared: PreparedEvaluation, cells: Container[int], measured: Measured, *, show: bool | None) -> None:
    """Measure all units of some cells, but for what is measured already."""
    work, plan, processes = prepared.work, prepared.work.plan, prepared.processes
    keys = [key for key in work.units() if key[1] in cells]
    mine = [keys[number] for number in processes.share(len(keys))]
    with _progress(prepared, mine, keys, show=show) as progress:
        done = finished_units(work, prepared.normalized_model.views, repair=processes.first, progress=progress)
        processes.meet()  # damaged files are set aside before any process writes
        progress.start_at(sum(len(plan.rows(shard, work.shard_size)) for shard, cell in mine if (shard, cell) in done))
        todo = [key for key in mine if key not in done]
        corruptors = fit_corruption_models(prepared, todo)
        if todo and prepared.request.compute.cluster is not None:
            writer = UnitWriter(work, ChunkPredictor(work, prepared.normalized_model), progress, measured)
            run_on_ray(prepared, [key for key in todo if not writer.finish_known(key)], progress=progress)
        elif todo:
            run_units(
                work,
                todo,
                normalized_model=prepared.normalized_model,
                steps=prepared.steps,
                progress=progress,
                corruptors=corruptors,
                known=measured,
            )
    processes.meet()
    if processes.first and measured.parts and _all_in_units(work, measured):
        measured.remove()
    processes.meet()


def _all_in_units(work: Work, measured: Measured) -> bool:
    """Whether every cell of the round files is complete in units."""
    shards = range(work.plan.shards(work.shard_size))
    return all((work.folder / unit_name(cell, shard)).exists() for cell in measured.parts for shard in shards)


def _measure_rounds(prepared: PreparedEvaluation, search: Search, measured: Measured, *, show: bool | None) -> None:
    """Measure in rounds until the goals are reached."""
    with _rounds(prepared, search, measured, show=show) as run:
        run.run()


@contextmanager
def _rounds(
    prepared: PreparedEvaluation, search: Search, measured: Measured, *, show: bool | None
) -> Iterator[AnytimeRun]:
    """An anytime evaluation; when nothing is left to measure, everything becomes units."""
    work, processes = prepared.work, prepared.processes
    with _progress(prepared, [], [], show=show, rounds=True) as progress:
        for note in search.notes() if processes.first else ():
            progress.warn(note)
        units = finished_units(work, prepared.normalized_model.views, repair=processes.first, progress=progress)
        run = AnytimeRun(prepared, search, measured, done_pairs(work, measured, units), progress)
        progress.start_at(run.passes)
        yield run
    if run.complete:
        _measure_all(prepared, run.cells, measured, show=False)


def _progress(
    prepared: PreparedEvaluation, mine: Sequence[Key], keys: Sequence[Key], *, show: bool | None, rounds: bool = False
) -> ProgressDisplay:
    work, plan, processes = prepared.work, prepared.work.plan, prepared.processes
    suites = {cell.name: str(cell.definition.get("suite", cell.name)) for cell in plan.cells}
    return ProgressDisplay(
        total=sum(len(plan.rows(shard, work.shard_size)) for shard, _ in mine),
        imagenet=prepared.header["classes"] == 1000 and prepared.steps.preset == "imagenet",
        show=show if processes.first else False,
        running=None if rounds else plan.task.scoring.running,
        kinds=kinds_of(plan.task),
        header=_describe_evaluation(prepared),
        unit="passes" if rounds else "images",
        suites=suites,
        pending=Counter(suites[plan.cells[cell].name] for _, cell in keys) if processes.count == 1 else {},
    )


def _warn(records: Records, plan: Plan) -> None:
    if records.excluded:
        shown = ", ".join(records.excluded[:3]) + (" …" if len(records.excluded) > 3 else "")
        logger.warning(
            "%d of %d images could not be read and are excluded from every cell: %s",
            len(records.excluded),
            len(plan.ids),
            shown,
        )
    if plan.missing:
        shown = ", ".join(plan.missing[:5]) + (" …" if len(plan.missing) > 5 else "")
        logger.warning("the result is partial: %d cells are missing in the stored set: %s", len(plan.missing), shown)


def _describe_evaluation(prepared: PreparedEvaluation) -> str:
    """The model, data and size of the evaluation, as the first line of piped output."""
    plan, header = prepared.work.plan, prepared.header
    counts = f"{counted(len(plan.ids), 'image')} × {counted(len(plan.cells), 'cell')}"
    return f"evaluating {header['model']} on {header['data']}: {counts}, on {prepared.normalized_model.device}"
