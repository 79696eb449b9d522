"""``holdfast.evaluate``: any model, any data, any suites, and records that never have to be computed twice."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from holdfast import atomic
from holdfast.attacks import Occlusion
from holdfast.data import Source, check_known_classes, turned_images
from holdfast.decoding import turned_warning
from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import fitted_corruptors
from holdfast.evaluation.cells import Plan
from holdfast.evaluation.evaluation_data import EvaluationData, open_evaluation_data
from holdfast.evaluation.examples import check_examples, keep_examples
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.keeping import make_header, prepare_folder, record_folder
from holdfast.evaluation.loader import fitting_shard
from holdfast.evaluation.machine import check_workers, choose_device, choose_precision, choose_workers
from holdfast.evaluation.options import Compute, Protocol
from holdfast.evaluation.processes import Processes, together
from holdfast.evaluation.progress import Live
from holdfast.evaluation.protocol import Steps, largest_size, model_input
from holdfast.evaluation.runner import Key, Work, finished_units, run_units
from holdfast.evaluation.suites import check_suites, make_plan, parse_suites
from holdfast.models.corruptor import Corruptor
from holdfast.models.onnx_model import FromProbabilities, check_told, has_gradient
from holdfast.models.segmenter import windowed
from holdfast.models.specs import LoadedModel, load_model
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
    protocol: Protocol | None = None,
    compute: Compute | None = None,
) -> Records:
    """Measure a model on every cell of some suites and return what it said of every image.

    Run again, it continues: units that are on disk are read, not measured. Another model, data set, seed, way of
    preprocessing or version has another folder, so nothing is ever mixed.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``,
            ``onnx:FILE``, ``hf:DIR``.
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
    protocol, compute = protocol or Protocol(), compute or Compute()
    names = parse_suites(suites)
    check_workers(workers)
    opened = open_evaluation_data(data, limit=limit, exif=protocol.exif, mean=protocol.mean, std=protocol.std)
    check_suites(names, opened)
    check_examples(opened.task, compute.keep_examples)
    loaded = load_model(model)
    loaded = replace(loaded, model=as_asked(loaded.model, protocol))
    asked = adapted(loaded.model, opened)
    steps = asked_steps(loaded.model, opened, protocol)
    plan = make_plan(names, opened, steps=steps, extra=protocol.extra, limit=limit)
    _check_gradients(loaded.model, plan)
    where = choose_device(device, loaded.model, fixed=not isinstance(model, nn.Module))
    with together() as processes, _evaluation_mode(asked):
        judge = Judge(asked, steps=steps, device=where, amp=choose_precision(compute.amp, where))
        _check_model(loaded, judge, opened, plan, classes_differ=protocol.classes_differ)
        settings = {"seed": seed, "limit": limit, **_settings(protocol, compute, steps, opened, where)}
        header = make_header(loaded, opened, plan, judge, steps=steps, settings=settings)
        with (
            record_folder(out, loaded, header, processes) as folder,
            atomic.leaving_nothing(folder, unless=lambda: any(folder.glob("*.[0-9]*.safetensors"))),
        ):
            work = Work(
                plan,
                folder,
                header["fingerprint"],
                seed=seed,
                shard_size=settings["shard_size"],
                batch_size=compute.batch_size,
                attack_batch_size=compute.attack_batch_size,
                workers=choose_workers(workers, where, processes),
            )
            records = _measure(_Errand(work, header, judge, steps), processes, fresh=fresh, show=show)
            if compute.keep_examples and processes.first:
                keep_examples(work, records, judge=judge, steps=steps, count=compute.keep_examples)
        if opened.source is not None and (warning := turned_warning(turned_images(opened.source), exif=protocol.exif)):
            logger.warning(warning)
    return records if records.folder and records.folder.exists() else replace(records, folder=None)


def as_asked(model: nn.Module, protocol: Protocol) -> nn.Module:
    """The model with the windows and answers that a protocol asks for; refuses a file that leaves something open."""
    check_told(model, vars(protocol))
    if protocol.window is not None:
        model = windowed(model, protocol.window, protocol.stride)
    return FromProbabilities(model) if protocol.probabilities else model


def _check_gradients(model: nn.Module, plan: Plan) -> None:
    """Refuse attacks that climb a gradient where there is none, before anything is measured."""
    for cell in plan.cells if not has_gradient(model) else ():
        if cell.attack is not None and getattr(cell.attack, "needs_gradient", not isinstance(cell.attack, Occlusion)):
            raise HoldfastError(
                f"suite {cell.name!r} needs a gradient, which an ONNX file does not have; "
                "measure it on the model that the file was made from"
            )


def asked_steps(model: nn.Module, data: EvaluationData, protocol: Protocol) -> Steps:
    """From the data's pictures to what the model gets."""
    wanted = model_input(
        model, size=protocol.size, mean=protocol.mean, std=protocol.std, interpolation=protocol.interpolation
    )
    preset = _preset(protocol.preset, data)
    return data.task.steps(data.pictures, wanted, preset=preset, stored_jpeg=protocol.stored_jpeg)


def _check_model(loaded: LoadedModel, judge: Judge, data: EvaluationData, plan: Plan, *, classes_differ: bool) -> None:
    if not classes_differ:
        check_known_classes(loaded.classes, data.pictures, data=data.spec)
    restricted = any(cell.restricted_to for cell in plan.cells)
    plan.task.check_model(judge.probe, classes=plan.classes, restricted=restricted, data=data.spec)


def _settings(
    protocol: Protocol, compute: Compute, steps: Steps, data: EvaluationData, where: torch.device
) -> dict[str, Any]:
    """What else the header says of how it was measured."""
    return {
        "amp": choose_precision(compute.amp, where),
        "shard_size": compute.shard_size or fitting_shard(steps.size or largest_size(data.pictures)),
        "attack_batch_size": compute.attack_batch_size,
        **({"exif": protocol.exif} if protocol.exif != "ignore" else {}),
    }


@dataclass(frozen=True)
class _Errand:
    work: Work
    header: dict[str, Any]
    judge: Judge
    steps: Steps


def _measure(errand: _Errand, processes: Processes, *, fresh: bool, show: bool | None) -> Records:
    work, plan = errand.work, errand.work.plan
    keys = work.units()
    mine = [keys[number] for number in processes.share(len(keys))]
    if processes.first:
        prepare_folder(work.folder, errand.header, plan, fresh=fresh)
    processes.meet()
    total = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in mine)
    imagenet = plan.classes == 1000 and errand.steps.preset == "imagenet"
    suites = {cell.name: str(cell.definition.get("suite", cell.name)) for cell in plan.cells}
    pending = Counter(suites[plan.cells[cell].name] for _, cell in keys) if processes.count == 1 else {}
    with Live(
        total=total,
        imagenet=imagenet,
        show=show if processes.first else False,
        header=_told(errand),
        suites=suites,
        pending=pending,
    ) as live:
        done = finished_units(work, errand.judge.views, repair=processes.first, watcher=live)
        processes.meet()  # damaged files are set aside before anybody writes
        live.found(sum(len(plan.rows(shard, work.shard_size)) for shard, cell in mine if (shard, cell) in done))
        todo = [key for key in mine if key not in done]
        corruptors = _fitted(errand, todo, processes)
        if todo:
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


def _told(errand: _Errand) -> str:
    """What is measured, for output that nobody watches."""
    plan, header = errand.work.plan, errand.header
    counts = f"{len(plan.ids)} images × {len(plan.cells)} cells"
    return f"evaluating {header['model']} on {header['data']}: {counts}, on {errand.judge.device}"


def _fitted(errand: _Errand, todo: Sequence[Key], processes: Processes) -> dict[str, Corruptor]:
    """What learned attacks learn before the units; every process asks, since they wait for each other."""
    work = errand.work
    wanted = {work.plan.cells[cell].name for _, cell in (todo if processes.count == 1 else work.units())}
    return fitted_corruptors(
        work.plan,
        [cell for cell in work.plan.cells if cell.name in wanted],
        errand.judge,
        steps=errand.steps,
        seed=work.seed,
        batch_size=work.attack_batch_size,
        folder=work.folder,
        processes=processes,
    )


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def _preset(asked: str | None, data: EvaluationData) -> str | None:
    if data.stored is None:
        return asked
    if asked not in (None, data.stored.preset):
        raise HoldfastError(f"preset of {data.spec!r} is {data.stored.preset!r} by its making, got {asked!r}")
    return data.stored.preset


def adapted(model: nn.Module, data: EvaluationData) -> nn.Module:
    """The model as the data must ask it: itself, unless the task has a say."""
    adapt = getattr(data.task, "adapted", None)
    return model if adapt is None else adapt(model, data.pictures)
