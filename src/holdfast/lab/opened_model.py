"""A model and its data, opened as ``evaluate`` opens them, ready to look at one image."""

from dataclasses import dataclass, field, fields
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
from holdfast.data.torch_datasets import check_counted
from holdfast.deploy.onnx_model import has_gradient
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData, labelled, open_evaluation_data
from holdfast.evaluation.preprocessing import PreprocessingSteps
from holdfast.evaluation.suites import kinds_of
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.inference.predictor import Predictor
from holdfast.models.corruption_model import Corruptor
from holdfast.models.tora import ToraViT
from holdfast.tasks import Task

FIRST_SIDE = 16  # rows and columns of patches to hide where images have no common size


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """What one image is looked at through.

    Attributes:
        name: of the model, as on the command line.
        data: what was opened.
        judge: the model as an evaluation asks it.
        steps: from a picture to what the model sees.
        model: as it was loaded.
        seed: of the records' draws.
        folder: the run's, if it is one.
        corruptor: AFAT's corruption model, if there is one.
        corruptor_file: where it was given, unless it is the run's own.
        limit: how many images were asked for, if not all.
        protocol: what else was asked for.
    """

    name: str
    data: EvaluationData
    judge: NormalizedModel
    steps: PreprocessingSteps
    model: nn.Module = field(repr=False)
    seed: int = 0
    folder: Path | None = None
    corruptor: Corruptor | None = field(default=None, repr=False)
    corruptor_file: str | None = None
    limit: int | None = None
    protocol: EvalProtocol = field(default_factory=EvalProtocol)

    @property
    def source(self) -> Any:
        """The images."""
        return self.data.source

    @property
    def task(self) -> Task:
        """What an answer is."""
        return self.data.task

    @property
    def classes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(map(str, self.source.classes))

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
        """Whether there is attention that can be read."""
        return can_watch(self.inner)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches that are hidden, as in the records' occlusions."""
        if self.steps.size is None:
            return FIRST_SIDE, FIRST_SIDE
        patch = fitting_patch(self.steps.size)
        return self.steps.size[0] // patch, self.steps.size[1] // patch

    @property
    def kinds(self) -> tuple[str, ...]:
        """The corruptions that its task allows, extra ones, those of C-bar and your own behind."""
        bar = PUBLISHED[len(ALL) :] if self.task.name == "classification" else ()
        return (*kinds_of(self.task, extra=True), *bar, *own_kinds())

    @cached_property
    def differentiable(self) -> bool:
        """Whether its task can be attacked, and the model has a gradient."""
        return bool(self.task.goal.losses) and has_gradient(self.judge.pixels)


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
    """Open a model and data, as `holdfast.evaluate` does; refuses what does not fit in one sentence.

    Args:
        model: a module, a run's folder or a spec.
        data: a spec such as ``digits:test``, a source, or what another lens has opened.
        seed: of the records' draws.
        limit: so many images only, every class in its share.
        device: ``auto``, ``cpu``, ``cuda`` …
        corruptor: a corruption model's file for ``learned``; an AFAT run has its own.
        protocol: as `holdfast.evaluate` takes it, such as the size and mean that an ONNX file does not tell.
    """
    asked = protocol or EvalProtocol()
    opened = data if isinstance(data, EvaluationData) else open_evaluation_data(data, limit=limit, exif=asked.exif)
    if opened.source is None or not len(opened.source):
        what = "none" if opened.source is not None else f"the stored set {opened.spec!r}"
        raise HoldfastError(f"data must be at least one picture that can be corrupted, got {what}")
    predictor = Predictor.open(model, opened, asked, device=device)
    loaded, judge, steps = predictor.loaded, predictor.judge, predictor.steps
    opened = labelled(opened, loaded.classes, judge.probe, match_names=not asked.classes_differ)
    assert opened.source is not None
    if not asked.classes_differ:
        check_known_classes(loaded.classes, opened.source, data=opened.spec)
    check_counted(opened.source, judge.probe)
    opened.task.check_model(judge.probe, classes=len(opened.source.classes), restricted=False, data=opened.spec)
    chooser = find_corruptor(Path(corruptor) if corruptor is not None else None, loaded.folder)
    if chooser is not None:
        chooser = chooser.to(judge.device).eval()
    given = str(corruptor) if corruptor is not None else None
    return OpenedModel(
        loaded.name, opened, judge, steps, loaded.model, seed, loaded.folder, chooser, given, limit, asked
    )


def asked_values(protocol: EvalProtocol) -> dict[str, Any]:
    """What of a protocol is not as usual."""
    return {
        each.name: getattr(protocol, each.name)
        for each in fields(protocol)
        if getattr(protocol, each.name) != each.default
    }
