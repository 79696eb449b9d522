"""``holdfast.evaluate``: any model, any data, any suites, and records that never have to be computed twice."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from holdfast.data import Source, turned_images
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.evaluation.failure_examples import keep_examples
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.record_set import prepare_folder
from holdfast.evaluation.runner import finished_units, run_units
from holdfast.evaluation.runner_ray import run_on_ray
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, fit_corruption_models, prepare_evaluation
from holdfast.evaluation.suites import kinds_of
from holdfast.io.images import turned_warning
from holdfast.records.records import Records, read_records

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
    protocol: EvalProtocol | None = None,
    compute: ComputeConfig | None = None,
) -> Records:
    """Measure a model on every cell of some suites and return what it said of every image.

    Run again, it continues: units that are on disk are read, not measured. Another model, data set, seed, way of
    preprocessing or version has another folder, so nothing is ever mixed.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``,
            ``onnx:FILE``, ``hf:DIR``, ``torchvision:NAME[@CHECKPOINT]``.
        data: a spec such as ``digits``, ``folder:DIR``, ``imagenet-c:DIR``, a source, or what
            :func:`holdfast.data.from_torch` takes: a Dataset, a DataLoader, tensors (x, y).
        suites: names of suites as in ``holdfast list suites``, in a comma list; an attack with settings such as
            ``pgd:eps=1/255|4/255,steps=20``; an attack object, or a function ``attack(model, images, labels)``; or a
            sequence of all these.
        out: the folder that gets ``records/``; the run's own for ``run:DIR``, else nothing is kept.
        limit: measure so many images only, every class in its share, chosen by their ids.
        seed: of corruptions and attacks.
        workers: processes that read and corrupt images; None for as many as the machine can use, 0 for none.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``; a module stays where it is with ``auto``.
        fresh: start over instead of continuing.
        show: show progress; None shows it on a terminal.
        protocol: what happens to images before the model answers: their size, its normalisation, the preset …
        compute: batch sizes and precision.
    """
    protocol, compute = protocol or EvalProtocol(), compute or ComputeConfig()
    request = EvaluationRequest(model, data, suites, out, limit, seed, workers, device, protocol, compute)
    with prepare_evaluation(request) as errand:
        records = _measure(errand, fresh=fresh, show=show)
        keep = request.compute.keep_examples
        if keep and errand.processes.first:
            keep_examples(errand.work, records, judge=errand.judge, steps=errand.steps, count=keep)
        source = errand.data.source
        if source is not None and (warning := turned_warning(turned_images(source), exif=request.protocol.exif)):
            logger.warning(warning)
    return records if records.folder and records.folder.exists() else replace(records, folder=None)


def _measure(errand: PreparedEvaluation, *, fresh: bool, show: bool | None) -> Records:
    work, plan, processes = errand.work, errand.work.plan, errand.processes
    keys = work.units()
    mine = [keys[number] for number in processes.share(len(keys))]
    processes.meet()  # everybody has looked for records of before
    if processes.first:
        prepare_folder(work.folder, errand.header, plan, tolerance=errand.judge.tolerance, fresh=fresh)
    processes.meet()
    total = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in mine)
    imagenet = errand.header["classes"] == 1000 and errand.steps.preset == "imagenet"
    suites = {cell.name: str(cell.definition.get("suite", cell.name)) for cell in plan.cells}
    pending = Counter(suites[plan.cells[cell].name] for _, cell in keys) if processes.count == 1 else {}
    with ProgressDisplay(
        total=total,
        imagenet=imagenet,
        show=show if processes.first else False,
        running=getattr(plan.task, "running", None),
        kinds=kinds_of(plan.task),
        header=_describe_evaluation(errand),
        suites=suites,
        pending=pending,
    ) as live:
        done = finished_units(work, errand.judge.views, repair=processes.first, watcher=live)
        processes.meet()  # damaged files are set aside before anybody writes
        live.found(sum(len(plan.rows(shard, work.shard_size)) for shard, cell in mine if (shard, cell) in done))
        todo = [key for key in mine if key not in done]
        corruptors = fit_corruption_models(errand, todo)
        if todo and errand.request.compute.cluster is not None:
            run_on_ray(errand, todo, watcher=live)
        elif todo:
            run_units(work, todo, judge=errand.judge, steps=errand.steps, watcher=live, corruptors=corruptors)
    processes.meet()
    records = read_records(work.folder, cells=[cell.name for cell in plan.cells])
    if records.excluded and processes.first:
        shown = ", ".join(records.excluded[:3]) + (" …" if len(records.excluded) > 3 else "")
        logger.warning(
            "%d of %d images could not be read and count in no cell: %s", len(records.excluded), len(plan.ids), shown
        )
    if plan.missing and processes.first:
        shown = ", ".join(plan.missing[:5]) + (" …" if len(plan.missing) > 5 else "")
        logger.warning("the result is partial: %d cells are missing in the stored set: %s", len(plan.missing), shown)
    return records


def _describe_evaluation(errand: PreparedEvaluation) -> str:
    """What is measured, for output that nobody watches."""
    plan, header = errand.work.plan, errand.header
    counts = f"{len(plan.ids)} images × {len(plan.cells)} cells"
    return f"evaluating {header['model']} on {header['data']}: {counts}, on {errand.judge.device}"
