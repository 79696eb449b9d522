"""An evaluation as it is asked for, and everything that it takes to begin: the same here and on another machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from holdfast.evaluation.machine import check_workers, choose_device, choose_precision, choose_workers
from holdfast.evaluation.options import Compute, Protocol
from holdfast.evaluation.processes import Processes, together
from holdfast.evaluation.protocol import Steps, largest_size, model_input
from holdfast.evaluation.runner import Key, Work
from holdfast.evaluation.suites import check_suites, make_plan, parse_suites
from holdfast.models.corruptor import Corruptor
from holdfast.models.onnx_model import FromProbabilities, check_told, has_gradient
from holdfast.models.probe import depends_on_batch
from holdfast.models.segmenter import windowed
from holdfast.models.specs import LoadedModel, load_model


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
    opened = open_evaluation_data(request.data, limit=limit, exif=protocol.exif, mean=protocol.mean, std=protocol.std)
    check_suites(names, opened)
    check_examples(opened.task, compute.keep_examples)
    loaded = load_model(request.model)
    loaded = replace(loaded, model=as_asked(loaded.model, protocol))
    asked = adapted(loaded.model, opened)
    steps = asked_steps(loaded.model, opened, protocol)
    where = choose_device(request.device, loaded.model, fixed=not isinstance(request.model, nn.Module))
    with together() as processes, _evaluation_mode(asked):
        judge = Judge(asked, steps=steps, device=where, amp=choose_precision(compute.amp, where))
        opened = labelled(opened, loaded.classes, judge.probe, match_names=not protocol.classes_differ)
        plan = make_plan(names, opened, steps=steps, extra=protocol.extra, limit=limit)
        _check_gradients(loaded.model, plan)
        _check_model(loaded, judge, opened, plan, classes_differ=protocol.classes_differ)
        settings = {"seed": request.seed, "limit": limit, **_settings(protocol, compute, steps, opened, where)}
        settings |= {"batch_size": compute.batch_size} if depends_on_batch(asked) else {}
        header = make_header(loaded, opened, plan, judge, steps=steps, settings=settings, out=request.out)
        with (
            record_folder(request.out, loaded, header, processes) as folder,
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
                workers=choose_workers(request.workers, where, processes),
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
                f"suite {cell.name!r} needs a gradient, which an ONNX file does not have, nor an int8 model; "
                "measure it on the model that it was made from"
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
    check_counted(data.pictures, judge.probe)
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
