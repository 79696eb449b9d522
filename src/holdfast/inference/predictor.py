"""A model opened for inference, in one way for every command.

What is open is closed in this order: what was asked of the answers (windows, probabilities), how images are prepared,
the device, and then the checks: whether its mean can be that of these pixels, and whether its answers are logits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.deploy.onnx_model import FromProbabilities, check_told
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.preprocessing import (
    ModelInput,
    PreprocessingSteps,
    check_side,
    model_input,
    normalisation,
)
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.models.factory import LoadedModel, load_model
from holdfast.models.segmenter import with_sliding_window
from holdfast.models.sliding_window import Windowed
from holdfast.runtime.device import choose_device, choose_precision

ROUNDING = 1e-3  # by which probabilities may miss a sum of 1
DENSE_OPTIONS = ("outputs", "resize", "nms", "nms_iou", "score_threshold", "class_ids")
CLASSIFICATION, SEGMENTATION, DETECTION = "classification", "segmentation", "detection"


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model in evaluation mode on its device, with the way its images take.

    As a context it leaves a module that was handed over in the mode in which it came.

    Attributes:
        loaded: the model as it was asked for, with its name, classes and folder.
        steps: from a picture to what the model sees.
        judge: the model as the data ask it: byte images in, answers out.
        modes: the modules and whether each was in training.
    """

    loaded: LoadedModel
    steps: PreprocessingSteps
    judge: NormalizedModel
    modes: tuple[tuple[nn.Module, bool], ...] = field(default=(), repr=False)

    @classmethod
    def open(
        cls,
        model: nn.Module | str | Path | LoadedModel,
        data: EvaluationData,
        protocol: EvalProtocol,
        *,
        device: str = "auto",
        amp: bool = False,
        steps: Callable[[nn.Module], PreprocessingSteps] | None = None,
    ) -> "Predictor":
        """Load a model, prepare it for some data and check what can be checked.

        Args:
            model: a module, a spec, or what is loaded already.
            data: whose task and pictures it will be asked about.
            protocol: what was asked for.
            device: as in :func:`holdfast.evaluate`.
            amp: half precision.
            steps: chooses the way of the images; the task's own unless given.
        """
        loaded = model if isinstance(model, LoadedModel) else load_model(model)
        configured, protocol = configure_model(loaded.model, protocol, data.pictures)
        check_protocol(data.task.name, protocol)
        loaded = replace(loaded, model=apply_protocol(configured, protocol))
        adapt = getattr(data.task, "adapted", None)
        asked = loaded.model if adapt is None else adapt(loaded.model, data.pictures)
        chosen = steps(loaded.model) if steps is not None else requested_steps(loaded.model, data, protocol)
        where = choose_device(device, loaded.model, fixed=not loaded.given)
        modes = tuple((module, module.training) for module in asked.modules())
        try:
            judge = NormalizedModel(asked, steps=chosen, device=where, amp=choose_precision(amp, where))
            check_answers(judge, protocol)
        except BaseException:
            _restore(modes)
            raise
        return cls(loaded, chosen, judge, modes)

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _restore(self.modes)

    def predict(self, picture: Any) -> Any:
        """The answer of the first view to one picture that nothing was done to."""
        pixels = torch.from_numpy(self.steps.clean(picture).copy()).permute(2, 0, 1)[None]
        return next(iter(self.judge.look(pixels).values()))[0]


def configure_model(model: nn.Module, protocol: EvalProtocol, pictures: Any) -> tuple[nn.Module, EvalProtocol]:
    """A model that prepares images itself, as a protocol asks for it, and what of the protocol is left for others.

    Such models have ``configured(protocol, pictures)`` and say in ``consumes`` which fields of a protocol they use.
    """
    consumed = getattr(model, "consumes", ())
    for name in DENSE_OPTIONS:
        if getattr(protocol, name) is not None and name not in consumed:
            raise HoldfastError(f"{name} is of other detectors or segmenters than this model, which has no use for it")
    make: Any = getattr(model, "configured", None)
    if make is None:
        return model, protocol
    if protocol.size is not None:
        check_side(protocol.size)
    made = make(_unit_pixels(protocol) if "mean" in consumed else protocol, pictures)
    usual: dict[str, Any] = {each.name: each.default for each in fields(EvalProtocol) if each.name in made.consumes}
    return made, replace(protocol, **usual)


def _unit_pixels(protocol: EvalProtocol) -> EvalProtocol:
    """A protocol whose mean and std are of pixels from 0 to 1; what was not given stays so, unless the range was."""
    asked = {"mean": protocol.mean, "std": protocol.std}
    usual = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    given = {name: usual[name] if value is None else value for name, value in asked.items()}
    mean, std = normalisation(given["mean"], given["std"], pixel_range=protocol.pixel_range)
    ranged = protocol.pixel_range != 1
    known = {name: value is not None or ranged for name, value in asked.items()}
    return replace(protocol, mean=mean if known["mean"] else None, std=std if known["std"] else None)


def apply_protocol(model: nn.Module, protocol: EvalProtocol) -> nn.Module:
    """The model with the windows and answers that a protocol asks for; refuses a file that leaves something open."""
    check_told(model, vars(protocol))
    if protocol.window is not None:
        model = with_sliding_window(model, protocol.window, protocol.stride)
    elif protocol.stride is not None:
        own = getattr(model, "window", None)
        if own is None:
            raise HoldfastError("stride needs windows, which this model does not have: give --window")
        model = with_sliding_window(model.model if isinstance(model, Windowed) else model, own, protocol.stride)
    told = isinstance(model, FromProbabilities)
    if protocol.probabilities is None or protocol.probabilities == told:
        return model
    return FromProbabilities(model) if protocol.probabilities else model.model  # type: ignore[return-value]


def given_normalisation(protocol: EvalProtocol) -> dict[str, Any]:
    """A protocol's mean and std of [0,1] pixels, where it has both: they take data back that are normalised already."""
    if protocol.mean is None or protocol.std is None:
        return {"mean": None, "std": None}
    mean, std = normalisation(protocol.mean, protocol.std, pixel_range=protocol.pixel_range)
    return {"mean": mean, "std": std}


def requested_input(model: nn.Module, protocol: EvalProtocol, **other: Any) -> ModelInput:
    """What the model wants to see, by a protocol; ``other`` replaces values of it."""
    names = ("size", "mean", "std", "interpolation", "crop_pct", "pixel_range", "preparation")
    return model_input(model, **{**{name: getattr(protocol, name) for name in names}, **other})


def requested_steps(model: nn.Module, data: EvaluationData, protocol: EvalProtocol) -> PreprocessingSteps:
    """From the data's pictures to what the model gets."""
    wanted, preset = requested_input(model, protocol), _preset(protocol.preset, data)
    return data.task.steps(data.pictures, wanted, preset=preset, stored_jpeg=protocol.stored_jpeg)


def check_protocol(task: str, protocol: EvalProtocol) -> None:
    """Refuse what a task has no use for, which would be ignored otherwise."""
    if task in (CLASSIFICATION, DETECTION) and (protocol.window is not None or protocol.stride is not None):
        raise HoldfastError(f"window and stride are of label maps, got them for {task}")
    if task in (SEGMENTATION, DETECTION) and (protocol.crop_pct is not None or protocol.interpolation is not None):
        raise HoldfastError(
            f"crop_pct and interpolation are of classification, got them for {task}, whose images keep their size"
        )
    own = [name for name in ("size", "mean", "std") if getattr(protocol, name) is not None]
    if task == DETECTION and own:
        raise HoldfastError(f"{own[0]} is the business of a detector of torchvision's protocol; leave --{own[0]} away")
    if task == DETECTION and protocol.probabilities:
        raise HoldfastError("probabilities is of classification and label maps, got it for detection")


def check_answers(judge: NormalizedModel, protocol: EvalProtocol) -> None:
    """Refuse answers that are probabilities already, and those that are said to be and are not."""
    if protocol.probabilities:
        sums = [answer.float().exp().sum(1) for answer in judge.probe.values() if isinstance(answer, Tensor)]
        if not all(bool(((each - 1).abs() < 10 * ROUNDING).all()) for each in sums):
            raise HoldfastError(
                "--probabilities yes is for a model whose answers are probabilities, but these do not add up to 1; "
                "give --probabilities no (EvalProtocol(probabilities=False)) for logits"
            )
    elif protocol.probabilities is None and _all_probabilities(judge):
        raise HoldfastError(
            "the model's answers look like probabilities (none is negative, they add up to 1): give --probabilities "
            "yes if they are, --probabilities no if they are logits; in Python EvalProtocol(probabilities=…)"
        )


def _all_probabilities(judge: NormalizedModel) -> bool:
    """Whether the answers to a grey image, a gradient and noise all are; others are asked only after the first."""
    if not all(map(_are_probabilities, judge.probe.values())):
        return False
    noise = torch.rand(3, *judge.size, generator=torch.Generator().manual_seed(0))
    ramp = torch.linspace(0, 1, judge.size[1]).expand(3, *judge.size) * torch.tensor([1.0, 0.5, 0.1])[:, None, None]
    return all(
        _are_probabilities(answer)
        for image in (noise, ramp)
        for answer in judge.answers(image[None].to(judge.device)).values()
    )


def _are_probabilities(answer: Any) -> bool:
    if not isinstance(answer, Tensor) or answer.ndim < 2 or answer.shape[1] < 2:
        return False
    values = answer.float()
    return bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() < ROUNDING).all())


def _preset(asked: str | None, data: EvaluationData) -> str | None:
    if data.stored is None:
        return asked
    if asked not in (None, data.stored.preset):
        raise HoldfastError(f"preset of {data.spec!r} is {data.stored.preset!r} by its making, got {asked!r}")
    return data.stored.preset


def _restore(modes: tuple[tuple[nn.Module, bool], ...]) -> None:
    for module, training in modes:
        module.training = training
