"""``holdfast.evaluate``: measure a model on suites of corruptions and attacks, and keep resumable records."""

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
    """Measure a model on every cell of some suites and return the per-image records.

    Call it again to resume: units on disk are read, not measured again. A different model, data set, seed,
    preprocessing or version gets its own folder, so results are never mixed.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``,
            ``onnx:FILE``, ``hf:DIR``, ``torchvision:NAME[@CHECKPOINT]``.
        data: a spec such as ``digits``, ``folder:DIR``, ``imagenet-c:DIR``, a source, or what
            :func:`holdfast.data.from_torch` takes: a Dataset, a DataLoader, tensors (x, y).
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
        protocol: preprocessing of the images: size, normalisation, preset …
        compute: batch sizes, precision, stored examples, cluster.
    """
    protocol, compute = protocol or EvalProtocol(), compute or ComputeConfig()
    request = EvaluationRequest(model, data, suites, out, limit, seed, workers, device, protocol, compute)
    with prepare_evaluation(request) as prepared:
        records = _measure(prepared, fresh=fresh, show=show)
        keep = request.compute.keep_examples
        if keep and prepared.processes.first:
            keep_examples(
                prepared.work, records, normalized_model=prepared.normalized_model, steps=prepared.steps, count=keep
            )
        source = prepared.data.source
        if source is not None and (warning := turned_warning(turned_images(source), exif=request.protocol.exif)):
            logger.warning(warning)
    return records if records.folder and records.folder.exists() else replace(records, folder=None)


def _measure(prepared: PreparedEvaluation, *, fresh: bool, show: bool | None) -> Records:
    work, plan, processes = prepared.work, prepared.work.plan, prepared.processes
    keys = work.units()
    mine = [keys[number] for number in processes.share(len(keys))]
    processes.meet()  # every process has looked for earlier records before the first one makes the folder
    if processes.first:
        prepare_folder(work.folder, prepared.header, plan, tolerance=prepared.normalized_model.tolerance, fresh=fresh)
    processes.meet()
    total = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in mine)
    imagenet = prepared.header["classes"] == 1000 and prepared.steps.preset == "imagenet"
    suites = {cell.name: str(cell.definition.get("suite", cell.name)) for cell in plan.cells}
    pending = Counter(suites[plan.cells[cell].name] for _, cell in keys) if processes.count == 1 else {}
    with ProgressDisplay(
        total=total,
        imagenet=imagenet,
        show=show if processes.first else False,
        running=getattr(plan.task, "running", None),
        kinds=kinds_of(plan.task),
        header=_describe_evaluation(prepared),
        suites=suites,
        pending=pending,
    ) as progress:
        done = finished_units(work, prepared.normalized_model.views, repair=processes.first, progress=progress)
        processes.meet()  # damaged files are set aside before any process writes
        progress.start_at(sum(len(plan.rows(shard, work.shard_size)) for shard, cell in mine if (shard, cell) in done))
        todo = [key for key in mine if key not in done]
        corruptors = fit_corruption_models(prepared, todo)
        if todo and prepared.request.compute.cluster is not None:
            run_on_ray(prepared, todo, progress=progress)
        elif todo:
            run_units(
                work,
                todo,
                normalized_model=prepared.normalized_model,
                steps=prepared.steps,
                progress=progress,
                corruptors=corruptors,
            )
    processes.meet()
    records = read_records(work.folder, cells=[cell.name for cell in plan.cells])
    if records.excluded and processes.first:
        shown = ", ".join(records.excluded[:3]) + (" …" if len(records.excluded) > 3 else "")
        logger.warning(
            "%d of %d images could not be read and are excluded from every cell: %s",
            len(records.excluded),
            len(plan.ids),
            shown,
        )
    if plan.missing and processes.first:
        shown = ", ".join(plan.missing[:5]) + (" …" if len(plan.missing) > 5 else "")
        logger.warning("the result is partial: %d cells are missing in the stored set: %s", len(plan.missing), shown)
    return records


def _describe_evaluation(prepared: PreparedEvaluation) -> str:
    """The model, data and size of the evaluation, as the first line of piped output."""
    plan, header = prepared.work.plan, prepared.header
    counts = f"{len(plan.ids)} images × {len(plan.cells)} cells"
    return f"evaluating {header['model']} on {header['data']}: {counts}, on {prepared.normalized_model.device}"
