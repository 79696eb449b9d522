"""``Predictor``: a model opened for inference, in the same way for every command.

It settles in this order: the outputs (sliding window, probabilities), the preprocessing, the device, and then the
checks: whether mean and std suit the pixels' range, and whether the outputs are logits.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.class_maps import ClassMap
from holdfast.deploy.onnx_model import FromProbabilities, check_input_settings
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.mapped_classes import MappedClasses
from holdfast.evaluation.model_input import ModelInput, check_side, model_input, normalisation
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.models.factory import LoadedModel, load_model
from holdfast.models.segmenter import with_sliding_window
from holdfast.models.sliding_window import Windowed
from holdfast.runtime.device import choose_device, choose_precision

ROUNDING = 1e-3  # tolerance for the sum of probabilities, which half precision rounds
DENSE_OPTIONS = ("outputs", "resize", "nms", "nms_iou", "score_threshold", "class_ids")


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model in evaluation mode on its device, with its preprocessing.

    As a context manager it restores the training mode of a given module on exit.

    Attributes:
        loaded: the loaded model with its name, classes and folder.
        steps: preprocessing from a picture to the model's input.
        normalized_model: the model with normalisation, adapted to the data's classes.
        modes: the modules and whether each was in training mode.
    """

    loaded: LoadedModel
    steps: Preprocessing
    normalized_model: NormalizedModel
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
        steps: Callable[[nn.Module], Preprocessing] | None = None,
    ) -> "Predictor":
        """Load a model, prepare it for some data and check its input and output.

        Args:
            model: a module, a spec, or a loaded model.
            data: evaluation data, whose task and images it will predict.
            protocol: preprocessing settings.
            device: as in `holdfast.evaluate`.
            amp: whether to use half precision.
            steps: makes the preprocessing of a model; by default the task's own.
        """
        loaded = model if isinstance(model, LoadedModel) else load_model(model)
        configured, protocol = configure_model(loaded.model, protocol, data.pictures)
        data.task.evaluation.check_protocol(protocol)
        loaded = replace(loaded, model=apply_protocol(configured, protocol))
        adapted = data.task.evaluation.adapt_model(loaded.model, data.pictures)
        chosen = steps(loaded.model) if steps is not None else requested_steps(loaded.model, data, protocol)
        where = choose_device(device, loaded.model, fixed=not loaded.given)
        modes = tuple((module, module.training) for module in adapted.modules())
        try:
            normalized_model = NormalizedModel(adapted, steps=chosen, device=where, amp=choose_precision(amp, where))
            check_answers(normalized_model, protocol)
        except BaseException:
            _restore(modes)
            raise
        return cls(loaded, chosen, normalized_model, modes)

    @property
    def judge(self) -> NormalizedModel:
        """The normalized model, by its old name."""
        warnings.warn("Predictor.judge is now normalized_model", DeprecationWarning, stacklevel=2)
        return self.normalized_model

    def __enter__(self) -> "Predictor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _restore(self.modes)

    def with_class_map(self, class_map: ClassMap | None) -> "Predictor":
        """The predictor whose answers are the classes of a map."""
        if class_map is None or not class_map.changes_outputs:
            return self
        found = self.normalized_model
        mapped = MappedClasses(found.pixels.model, class_map)
        return replace(
            self, normalized_model=NormalizedModel(mapped, steps=self.steps, device=found.device, amp=found.amp)
        )

    def predict(self, picture: Any) -> Any:
        """Output of the first view for one uncorrupted picture."""
        pixels = torch.from_numpy(self.steps.clean(picture).copy()).permute(2, 0, 1)[None]
        return next(iter(self.normalized_model.predict_bytes(pixels).values()))[0]


def configure_model(model: nn.Module, protocol: EvalProtocol, pictures: Any) -> tuple[nn.Module, EvalProtocol]:
    """A model that prepares images itself, as a protocol asks for it, and what of the protocol is left for others.

    Such models have ``configured(protocol, pictures)`` and say in ``consumes`` which fields of a protocol they use.
    """
    consumed = getattr(model, "consumes", ())
    for name in DENSE_OPTIONS:
        if getattr(protocol, name) is not None and name not in consumed:
            raise HoldfastError(f"{name} is a setting of other detectors or segmenters: omit it for this model")
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
    """Wrap the model with the protocol's sliding window and log-probabilities; check a file's open settings."""
    check_input_settings(model, vars(protocol))
    if protocol.window is not None:
        model = with_sliding_window(model, protocol.window, protocol.stride)
    elif protocol.stride is not None:
        own = getattr(model, "window", None)
        if own is None:
            raise HoldfastError("stride needs a sliding window, which this model does not have: give --window")
        model = with_sliding_window(model.model if isinstance(model, Windowed) else model, own, protocol.stride)
    wrapped = isinstance(model, FromProbabilities)
    if protocol.probabilities is None or protocol.probabilities == wrapped:
        return model
    return FromProbabilities(model) if protocol.probabilities else model.model  # type: ignore[return-value]


def given_normalisation(protocol: EvalProtocol) -> dict[str, Any]:
    """Mean and std of [0,1] pixels, if the protocol gives both, to undo the normalisation of normalised data."""
    if protocol.mean is None or protocol.std is None:
        return {"mean": None, "std": None}
    mean, std = normalisation(protocol.mean, protocol.std, pixel_range=protocol.pixel_range)
    return {"mean": mean, "std": std}


def requested_input(model: nn.Module, protocol: EvalProtocol, **other: Any) -> ModelInput:
    """Input configuration of a model under a protocol; ``other`` overrides values of the protocol."""
    names = ("size", "mean", "std", "interpolation", "crop_pct", "pixel_range", "preparation")
    return model_input(model, **{**{name: getattr(protocol, name) for name in names}, **other})


def requested_steps(model: nn.Module, data: EvaluationData, protocol: EvalProtocol) -> Preprocessing:
    """Preprocessing of the data's images for a model under a protocol."""
    wanted, preset = requested_input(model, protocol), _preset(protocol.preset, data)
    return data.task.evaluation.steps(data.pictures, wanted, preset=preset, stored_jpeg=protocol.stored_jpeg)


def check_answers(normalized_model: NormalizedModel, protocol: EvalProtocol) -> None:
    """Raise an error if the outputs look like probabilities and the protocol does not say so, or the reverse."""
    if protocol.probabilities:
        sums = [answer.float().exp().sum(1) for answer in normalized_model.probe.values() if isinstance(answer, Tensor)]
        if not all(bool(((each - 1).abs() < 10 * ROUNDING).all()) for each in sums):
            raise HoldfastError(
                "--probabilities yes needs a model whose outputs are probabilities, but these do not sum to 1; "
                "give --probabilities no (EvalProtocol(probabilities=False)) for logits"
            )
    elif protocol.probabilities is None and _all_probabilities(normalized_model):
        raise HoldfastError(
            "the model's outputs look like probabilities (none is negative, they sum to 1): give --probabilities "
            "yes if they are, --probabilities no if they are logits; in Python EvalProtocol(probabilities=…)"
        )


def _all_probabilities(normalized_model: NormalizedModel) -> bool:
    """Whether the outputs for a grey image, noise and a colour ramp are all probabilities."""
    if not all(map(_are_probabilities, normalized_model.probe.values())):
        return False
    noise = torch.rand(3, *normalized_model.size, generator=torch.Generator().manual_seed(0))
    ramp = (
        torch.linspace(0, 1, normalized_model.size[1]).expand(3, *normalized_model.size)
        * torch.tensor([1.0, 0.5, 0.1])[:, None, None]
    )
    return all(
        _are_probabilities(answer)
        for image in (noise, ramp)
        for answer in normalized_model.predict(image[None].to(normalized_model.device)).values()
    )


def _are_probabilities(answer: Any) -> bool:
    if not isinstance(answer, Tensor) or answer.ndim < 2 or answer.shape[1] < 2:
        return False
    values = answer.float()
    return bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() < ROUNDING).all())


def _preset(requested: str | None, data: EvaluationData) -> str | None:
    if data.stored is None:
        return requested
    if requested not in (None, data.stored.preset):
        raise HoldfastError(f"{data.spec!r} has preset {data.stored.preset!r}, got {requested!r}: omit --preset")
    return data.stored.preset


def _restore(modes: tuple[tuple[nn.Module, bool], ...]) -> None:
    for module, training in modes:
        module.training = training
