"""Request and preparation of an evaluation: data, model, plan and header, the same locally and on a Ray worker."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.attacks import Occlusion
from holdfast.data import check_known_classes
from holdfast.data.torch_datasets import check_counted
from holdfast.deploy.onnx_model import has_gradient
from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import fitted_corruptors
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.evaluation.data import EvaluationData, open_evaluation_data, with_model_labels
from holdfast.evaluation.failure_examples import check_examples
from holdfast.evaluation.loader import fitting_shard
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.predictor import Predictor, given_normalisation
from holdfast.evaluation.preprocessing import Preprocessing, largest_size
from holdfast.evaluation.record_set import UNITS, make_header, record_folder
from holdfast.evaluation.suites import check_suites, expand_standard, make_plan, parse_suites
from holdfast.evaluation.work import Key, Work
from holdfast.io import atomic
from holdfast.models.corruption_model import Corruptor
from holdfast.records.round_files import has_rounds
from holdfast.runtime.device import Processes, check_workers, choose_precision, choose_workers, process_group


@dataclass(frozen=True)
class EvaluationRequest:
    """The arguments of ``holdfast.evaluate``; ``check`` may refuse the records' header before anything is measured."""

    model: nn.Module | str | Path
    data: Any
    suites: Any = "clean"
    out: Path | str | None = None
    limit: int | None = None
    seed: int = 0
    workers: int | None = None
    device: str = "auto"
    protocol: EvalProtocol = field(default_factory=EvalProtocol)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    check: Callable[[Mapping[str, Any]], None] | None = None


@dataclass(frozen=True)
class PreparedEvaluation:
    """A request with its model loaded and its plan made; nothing is written to disk yet."""

    request: EvaluationRequest
    data: EvaluationData
    work: Work
    header: dict[str, Any]
    normalized_model: NormalizedModel
    steps: Preprocessing
    processes: Processes


@contextmanager
def prepare_evaluation(request: EvaluationRequest) -> Iterator[PreparedEvaluation]:
    """Open the data, load the model and make the plan; invalid requests raise their error here.

    If the block fails, a record folder that it made is removed unless something was measured.
    """
    protocol, compute, limit = request.protocol, request.compute, request.limit or None
    names = parse_suites(request.suites)
    check_workers(request.workers)
    opened = open_evaluation_data(request.data, limit=limit, exif=protocol.exif, **given_normalisation(protocol))
    check_suites(names, opened)
    check_examples(opened.task, compute.keep_examples)
    asked = (request.model, opened, protocol)
    with process_group() as processes, Predictor.open(*asked, device=request.device, amp=compute.amp) as own:
        opened = with_model_labels(
            opened,
            own.loaded.classes,
            own.normalized_model.probe,
            match_names=not protocol.classes_differ,
            class_map=protocol.class_map,
            classes=protocol.classes,
        )
        predictor = own.with_class_map(opened.class_map)
        normalized_model, steps = predictor.normalized_model, predictor.steps
        names = expand_standard(names, opened.task, gradients=has_gradient(predictor.loaded.model))
        plan = make_plan(names, opened, steps=steps, extra=protocol.extra, limit=limit)
        _check_gradients(predictor.loaded.model, plan)
        _check_model(predictor, opened, plan, classes_differ=protocol.classes_differ)
        settings = {
            "seed": request.seed,
            "limit": limit,
            **_settings(protocol, compute, steps, opened, normalized_model.device),
        }
        settings |= {"batch_size": compute.batch_size} if normalized_model.by_batch else {}
        settings |= {"options": options} if (options := protocol.given()) else {}
        header = make_header(
            predictor.loaded, opened, plan, normalized_model, steps=steps, settings=settings, out=request.out
        )
        if request.check is not None:
            request.check(header)
        with (
            record_folder(request.out, predictor.loaded, header, processes) as folder,
            atomic.remove_on_failure(folder, unless=lambda: any(folder.glob(UNITS)) or has_rounds(folder)),
        ):
            work = Work(
                plan,
                folder,
                header["fingerprint"],
                seed=request.seed,
                shard_size=settings["shard_size"],
                batch_size=compute.batch_size,
                attack_batch_size=compute.attack_batch_size,
                workers=choose_workers(request.workers, normalized_model.device, processes),
            )
            yield PreparedEvaluation(request, opened, work, header, normalized_model, steps, processes)


def fit_corruption_models(prepared: PreparedEvaluation, todo: Sequence[Key]) -> dict[str, Corruptor]:
    """Fit the corruption models of learned occlusions; every process must call it, because processes synchronise."""
    work, processes = prepared.work, prepared.processes
    wanted = {work.plan.cells[cell].name for _, cell in (todo if processes.count == 1 else work.units())}
    return fitted_corruptors(
        work.plan,
        [cell for cell in work.plan.cells if cell.name in wanted],
        prepared.normalized_model,
        steps=prepared.steps,
        seed=work.seed,
        batch_size=work.attack_batch_size,
        folder=work.folder,
        processes=processes,
    )


def _check_gradients(model: nn.Module, plan: Plan) -> None:
    """Raise an error for gradient attacks on a model without gradients, before anything is measured."""
    for cell in plan.cells if not has_gradient(model) else ():
        if cell.attack is not None and getattr(cell.attack, "needs_gradient", not isinstance(cell.attack, Occlusion)):
            raise HoldfastError(
                f"suite {cell.name!r} needs gradients, which ONNX files and int8 models do not have; "
                "run it on the model that was exported"
            )


def _check_model(predictor: Predictor, data: EvaluationData, plan: Plan, *, classes_differ: bool) -> None:
    if not classes_differ:
        check_known_classes(predictor.loaded.classes, data.pictures, data=data.spec)
    check_counted(data.pictures, predictor.normalized_model.probe)
    restricted = data.stored is not None and data.stored.restricted_to is not None
    plan.task.evaluation.check_model(
        predictor.normalized_model.probe, classes=plan.classes, restricted=restricted, data=data.spec
    )


def _settings(
    protocol: EvalProtocol, compute: ComputeConfig, steps: Preprocessing, data: EvaluationData, where: torch.device
) -> dict[str, Any]:
    """Compute settings that the header records."""
    return {
        "amp": choose_precision(compute.amp, where),
        "shard_size": compute.shard_size or fitting_shard(steps.size or largest_size(data.pictures)),
        "attack_batch_size": compute.attack_batch_size,
        **({"exif": protocol.exif} if protocol.exif != "ignore" else {}),
    }
