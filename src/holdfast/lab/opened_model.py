"""A model and its data, opened as by ``holdfast.evaluate``, for inspecting single images."""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.analysis.probe import find_corruptor
from holdfast.attacks.patch_selection import fitting_patch
from holdfast.attacks.pixel_model import backbone
from holdfast.attention import can_watch
from holdfast.corruptions.severities import ALL, PUBLISHED, own_kinds
from holdfast.data import check_known_classes
from holdfast.data.class_maps import Outputs
from holdfast.data.domains import domains_of
from holdfast.data.imagenet_classes import display_names
from holdfast.data.torch_datasets import check_counted
from holdfast.deploy.onnx_model import has_gradient
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData, open_evaluation_data, with_model_labels
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.predictor import Predictor, configure_model
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.evaluation.suites import kinds_of
from holdfast.inference.predict import ImageFiles, model_task
from holdfast.lab.unlabelled import Unlabelled, flat_images
from holdfast.models.corruption_model import Corruptor
from holdfast.models.factory import LoadedModel, load_model
from holdfast.models.tora import ToraViT
from holdfast.records.class_map import class_map_words
from holdfast.tasks import Task

FIRST_SIDE = 16  # rows and columns of the patch grid for images without a common size


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """An opened model with data and preprocessing.

    Attributes:
        name: the model's name on the command line.
        data: the opened data.
        judge: the model with normalisation, as in an evaluation.
        steps: preprocessing from an image to the model's input.
        model: the loaded module.
        seed: random seed of the records.
        folder: the run's folder, if the model is a run.
        corruptor: AFAT's corruption model, if any.
        corruptor_file: its file, unless it is the run's own.
        limit: number of images, if limited.
        protocol: further settings of the evaluation.
    """

    name: str
    data: EvaluationData
    judge: NormalizedModel
    steps: Preprocessing
    model: nn.Module = field(repr=False)
    seed: int = 0
    folder: Path | None = None
    corruptor: Corruptor | None = field(default=None, repr=False)
    corruptor_file: str | None = None
    limit: int | None = None
    protocol: EvalProtocol = field(default_factory=EvalProtocol)

    @property
    def source(self) -> Any:
        """The source of the images."""
        return self.data.source

    @property
    def task(self) -> Task:
        """The task of model and data."""
        return self.data.task

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names of the data."""
        return display_names(tuple(map(str, self.source.classes)))

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the data's domains; empty for other data."""
        return domains_of(self.source)

    @property
    def answers(self) -> str:
        """How the model's outputs became answers, in words; empty if they are the data's classes."""
        found = self.data.class_map
        return class_map_words({"class_map": found.record(), "classes": len(found.classes)}) if found else ""

    @property
    def without_labels(self) -> str:
        """Why the images have no labels; empty if they have."""
        return self.source.reason if isinstance(self.source, Unlabelled) else ""

    @cached_property
    def inner(self) -> nn.Module:
        """The network whose attention is read: inside the normalisation, and inside TORA's adapters."""
        model = backbone(self.judge.pixels)
        return model.backbone if isinstance(model, ToraViT) else model

    @cached_property
    def tora(self) -> ToraViT | None:
        """The model, if it has TORA's gated adapters."""
        model = backbone(self.judge.pixels)
        if isinstance(model, ToraViT) and model.settings.method in ("tora", "adapter-fusion"):
            return model
        return None

    @cached_property
    def has_attention(self) -> bool:
        """Whether the model has attention that can be read."""
        return can_watch(self.inner)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patch grid for occlusions, as in the records."""
        if self.steps.size is None:
            return FIRST_SIDE, FIRST_SIDE
        patch = fitting_patch(self.steps.size)
        return self.steps.size[0] // patch, self.steps.size[1] // patch

    @property
    def kinds(self) -> tuple[str, ...]:
        """The corruptions of the task, then extra ones, those of C-bar and registered ones."""
        bar = PUBLISHED[len(ALL) :] if self.task.scoring.one_class else ()
        return (*kinds_of(self.task, extra=True), *bar, *own_kinds())

    @cached_property
    def differentiable(self) -> bool:
        """Whether the task supports attacks and the model has a gradient."""
        return bool(self.task.evaluation.goal.losses) and has_gradient(self.judge.pixels)


def open_model(
    model: Any,
    data: Any,
    *,
    seed: int = 0,
    limit: int | None = None,
    device: str = "auto",
    corruptor: Path | str | None = None,
    protocol: EvalProtocol | None = None,
) -> OpenedModel:
    """Open a model and data as `holdfast.evaluate` does; raises an error if they do not fit.

    Args:
        model: a module, a run's folder or a spec.
        data: a spec such as ``digits:test``, a source, or the data of another opened model.
        seed: random seed of the records.
        limit: number of images, stratified by class.
        device: ``auto``, ``cpu``, ``cuda`` …
        corruptor: a corruption model's file for ``learned``; an AFAT run has its own.
        protocol: as `holdfast.evaluate` takes it, such as the size and mean that an ONNX file does not define.
    """
    protocol = protocol or EvalProtocol()
    if isinstance(data, EvaluationData):
        opened = data
    elif files := flat_images(data):
        opened = EvaluationData(data, data, _flat(files[: limit or None], load_model(model), protocol))
    else:
        opened = open_evaluation_data(data, limit=limit, exif=protocol.exif)
    if opened.source is None or not len(opened.source):
        what = "none" if opened.source is not None else f"the stored set {opened.spec!r}"
        raise HoldfastError(f"data must hold at least one image that can be corrupted, got {what}")
    predictor = Predictor.open(model, opened, protocol, device=device)
    loaded, judge, steps = predictor.loaded, predictor.normalized_model, predictor.steps
    try:
        opened, judge = _labelled(opened, predictor, protocol)
    except HoldfastError as error:
        classes = _classes_of(loaded, judge.probe)
        if not classes or not opened.task.scoring.one_class or protocol.class_map or protocol.classes:
            raise
        inner = opened.source.source if isinstance(opened.source, Unlabelled) else opened.source
        unlabelled: Any = Unlabelled(inner, opened.task.name, classes, str(error))  # a source, but for its targets
        opened = replace(opened, source=unlabelled, labels="")
    chooser = find_corruptor(Path(corruptor) if corruptor is not None else None, loaded.folder)
    if chooser is not None:
        chooser = chooser.to(judge.device).eval()
    given = str(corruptor) if corruptor is not None else None
    return OpenedModel(
        loaded.name, opened, judge, steps, loaded.model, seed, loaded.folder, chooser, given, limit, protocol
    )


def _labelled(
    opened: EvaluationData, predictor: Predictor, protocol: EvalProtocol
) -> tuple[EvaluationData, NormalizedModel]:
    """The data with the labels of the model's classes, and the model with its class map; checks that both fit."""
    loaded, judge = predictor.loaded, predictor.normalized_model
    if isinstance(opened.source, Unlabelled):
        if opened.task.scoring.one_class:
            raise HoldfastError(opened.source.reason)
        return opened, judge
    found = with_model_labels(
        opened,
        loaded.classes,
        judge.probe,
        match_names=not protocol.classes_differ,
        class_map=protocol.class_map,
        classes=protocol.classes,
    )
    judge = predictor.with_class_map(found.class_map).normalized_model
    assert found.source is not None
    if not protocol.classes_differ:
        check_known_classes(loaded.classes, found.source, data=found.spec)
    check_counted(found.source, judge.probe)
    found.task.evaluation.check_model(judge.probe, classes=len(found.source.classes), restricted=False, data=found.spec)
    return found, judge


def _flat(files: tuple[Path, ...], loaded: LoadedModel, protocol: EvalProtocol) -> Any:
    """The files of a flat folder for a model, whose task they get."""
    task = model_task(replace(loaded, model=configure_model(loaded.model, protocol, None)[0])).name
    source = ImageFiles(task, files, protocol.exif)
    return Unlabelled(source, task, tuple(loaded.classes or ()), "the folder has no folders of classes")


def _classes_of(loaded: LoadedModel, probe: Any) -> tuple[str, ...]:
    """Names of the classes of a classifier, else their wnids or numbers; empty for other models."""
    answer = next(iter(probe.values()))
    if getattr(answer, "ndim", 0) != 2:
        return ()
    count = answer.shape[1]
    outputs = Outputs(count, tuple(loaded.classes) if loaded.classes and len(loaded.classes) == count else None)
    return tuple(map(outputs.name, range(count)))


def changed_settings(protocol: EvalProtocol) -> dict[str, Any]:
    """The settings of a protocol that differ from the defaults."""
    return {
        each.name: getattr(protocol, each.name)
        for each in fields(protocol)
        if getattr(protocol, each.name) != each.default
    }
