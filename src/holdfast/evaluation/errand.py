"""An evaluation as it is asked for, and everything that it takes to begin: the same here and on another machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast import atomic
from holdfast.attacks import Occlusion
from holdfast.data import check_known_classes
from holdfast.data.tensors import check_counted
from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import fitted_corruptors
from holdfast.evaluation.cells import Plan
from holdfast.evaluation.evaluation_data import EvaluationData, labelled, open_evaluation_data
from holdfast.evaluation.examples import check_examples
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.keeping import make_header, record_folder
from holdfast.evaluation.loader import fitting_shard
from holdfast.evaluation.machine import check_workers, choose_precision, choose_workers
from holdfast.evaluation.options import Compute, Protocol
from holdfast.evaluation.predictor import Predictor, told_normalisation
from holdfast.evaluation.processes import Processes, together
from holdfast.evaluation.protocol import Steps, largest_size
from holdfast.evaluation.runner import Key, Work
from holdfast.evaluation.suites import check_suites, make_plan, parse_suites
from holdfast.models.corruptor import Corruptor
from holdfast.models.onnx_model import has_gradient


@dataclass(frozen=True)
class Request:
    """What ``holdfast.evaluate`` was asked for, by the names of its arguments."""

    model: nn.Module | str | Path
    data: Any
    suites: Any = "clean"
    out: Path | str | None = None
    limit: int | None = None
    seed: int = 0
    workers: int | None = None
    device: str = "auto"
    protocol: Protocol = field(default_factory=Protocol)
    compute: Compute = field(default_factory=Compute)


@dataclass(frozen=True)
class Errand:
    """A request with its model loaded and its plan made; nothing is written yet."""

    request: Request
    data: EvaluationData
    work: Work
    header: dict[str, Any]
    judge: Judge
    steps: Steps
    processes: Processes


@contextmanager
def begun(request: Request) -> Iterator[Errand]:
    """Open the data, load the model and make the plan; what is wrong with a request is said here.

    A record folder that this block made and in which nothing was measured goes when it fails.
    """
    protocol, compute, limit = request.protocol, request.compute, request.limit
    names = parse_suites(request.suites)
    check_workers(request.workers)
    opened = open_evaluation_data(request.data, limit=limit, exif=protocol.exif, **told_normalisation(protocol))
    check_suites(names, opened)
    check_examples(opened.task, compute.keep_examples)
    asked = (request.model, opened, protocol)
    with together() as processes, Predictor.open(*asked, device=request.device, amp=compute.amp) as predictor:
        judge, steps = predictor.judge, predictor.steps
        match = not protocol.classes_differ
        opened = labelled(opened, predictor.loaded.classes, judge.probe, match_names=match)
        plan = make_plan(names, opened, steps=steps, extra=protocol.extra, limit=limit)
        _check_gradients(predictor.loaded.model, plan)
        _check_model(predictor, opened, plan, classes_differ=protocol.classes_differ)
        settings = {"seed": request.seed, "limit": limit, **_settings(protocol, compute, steps, opened, judge.device)}
        settings |= {"batch_size": compute.batch_size} if judge.by_batch else {}
        header = make_header(predictor.loaded, opened, plan, judge, steps=steps, settings=settings, out=request.out)
        with (
            record_folder(request.out, predictor.loaded, header, processes) as folder,
            atomic.leaving_nothing(folder, unless=lambda: any(folder.glob("*.[0-9]*.safetensors"))),
        ):
            work = Work(
                plan,
                folder,
                header["fingerprint"],
                seed=request.seed,
                shard_size=settings["shard_size"],
                batch_size=compute.batch_size,
                attack_batch_size=compute.attack_batch_size,
                workers=choose_workers(request.workers, judge.device, processes),
            )
            yield Errand(request, opened, work, header, judge, steps, processes)


def fitted(errand: Errand, todo: Sequence[Key]) -> dict[str, Corruptor]:
    """What learned attacks learn before the units; every process asks, since they wait for each other."""
    work, processes = errand.work, errand.processes
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


def _check_gradients(model: nn.Module, plan: Plan) -> None:
    """Refuse attacks that climb a gradient where there is none, before anything is measured."""
    for cell in plan.cells if not has_gradient(model) else ():
        if cell.attack is not None and getattr(cell.attack, "needs_gradient", not isinstance(cell.attack, Occlusion)):
            raise HoldfastError(
                f"suite {cell.name!r} needs a gradient, which an ONNX file does not have, nor an int8 model; "
                "measure it on the model that it was made from"
            )


def _check_model(predictor: Predictor, data: EvaluationData, plan: Plan, *, classes_differ: bool) -> None:
    if not classes_differ:
        check_known_classes(predictor.loaded.classes, data.pictures, data=data.spec)
    check_counted(data.pictures, predictor.judge.probe)
    restricted = any(cell.restricted_to for cell in plan.cells)
    plan.task.check_model(predictor.judge.probe, classes=plan.classes, restricted=restricted, data=data.spec)


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
