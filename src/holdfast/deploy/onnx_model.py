"""ONNX models as modules, run by onnxruntime: logits without gradients."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from holdfast.deploy.onnx_files import (
    OnnxDescription,
    class_names,
    describe_onnx,
    file_digest,
    operators,
    read_onnx,
)
from holdfast.deploy.onnx_recognition import dense_model
from holdfast.errors import HoldfastError, first_line
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.models.outputs import logits_of
from holdfast.models.sliding_window import Windowed

logger = logging.getLogger(__name__)

KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxModel(nn.Module):
    """Module that runs an ONNX file: normalised images (B, 3, H, W) → logits.

    For a file with a fixed batch size, images are split into such batches and the last one is padded.
    """

    differentiable = False

    def __init__(
        self, session: Any, description: OnnxDescription, *, digest: str, operators: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._session, self.digest, self._operators = session, digest, operators
        self.pads = False
        image_input = session.get_inputs()[0]
        self.input_name, self.kind = image_input.name, image_input.type
        self.batch, self.height, self.width = (_fixed_size(image_input.shape[axis]) for axis in (0, 2, 3))
        size = description.size or ((self.height, self.width) if self.height and self.width else None)
        known = {"size": size, "mean": description.mean, "std": description.std}
        self.unknown_settings = tuple(name for name, value in known.items() if value is None)
        self.pretrained_cfg: dict[str, Any] = _configuration(description, size)

    @property
    def coarse(self) -> bool:
        """Whether it computes with fewer than 32 bits, so that outputs show rounding errors."""
        return "float16" in self.kind or any("Quantize" in name or "Integer" in name for name in self._operators)

    @property
    def scales_by_batch(self) -> bool:
        """Whether the quantisation of activations depends on the batch."""
        return "DynamicQuantizeLinear" in self._operators

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Run the file and return its outputs on the device of the images."""
        size = images.shape[-2:]
        images = self._pad_to_fixed_size(images)
        parts = images.split(self.batch or max(1, len(images)))
        logits = torch.cat([self._run(part) for part in parts]).to(images.device)
        if logits.ndim == 4 and images.shape[-2:] != size:
            logits = logits[..., : size[0], : size[1]]
        return logits

    def _pad_to_fixed_size(self, images: Tensor) -> Tensor:
        """Pad windows of images that are smaller than the fixed input size of a segmenter's file."""
        height, width = images.shape[-2:]
        missing = ((self.height or height) - height, (self.width or width) - width)
        if scoring_of(self.pretrained_cfg["task"]).one_class or min(missing) < 0 or not any(missing):
            return images
        if not self.pads:
            self.pads = True
            logger.warning(
                "images of %d×%d are padded to the file's %d×%d, which changes predictions; export it with --size %d "
                "or with --data of such images",
                *(height, width, height + missing[0], width + missing[1], min(height, width)),
            )
        return pad(images, (0, missing[1], 0, missing[0]))

    def _run(self, images: Tensor) -> Tensor:
        count = len(images)
        values = images.detach().cpu().numpy().astype(KINDS[self.kind])
        if self.batch and count < self.batch:
            values = np.concatenate([values, np.repeat(values[-1:], self.batch - count, axis=0)])
        (answer,) = self._session.run([self._session.get_outputs()[0].name], {self.input_name: values})
        return torch.from_numpy(np.asarray(answer, np.float32)[:count])


def load_onnx(path: Path) -> tuple[nn.Module, OnnxDescription]:
    """Load an ONNX file as a module, with its metadata."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise HoldfastError(
            "ONNX models need onnx and onnxruntime, which are not installed; run: pip install onnx onnxruntime"
        ) from error
    proto = read_onnx(path)
    description = describe_onnx(proto, path=path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for every kind of failure
        raise HoldfastError(f"onnxruntime cannot open {path} ({first_line(error)})") from error
    digest = file_digest(path, proto)
    if description == OnnxDescription():  # not one of ours: it may be a detector or a segmenter
        dense = dense_model(session, name=path.name, digest=digest)
        if dense is not None:
            return dense, replace(description, classes=class_names(proto))
    _check_ends(session, path)
    model = OnnxModel(session, description, digest=digest, operators=operators(proto))
    if not scoring_of(description.task).one_class and description.size is not None:
        return Windowed(model, description.size, description.stride), description
    return (FromProbabilities(model) if description.output == "probabilities" else model), description


def check_input_settings(model: nn.Module, given: Mapping[str, Any]) -> None:
    """Refuse an ONNX file without size, mean or std unless ``given`` provides them."""
    for module in model.modules():
        missing = [name for name in getattr(module, "unknown_settings", ()) if given.get(name) is None]
        if missing:
            options = " and ".join(f"--{name}" for name in missing)
            raise HoldfastError(
                f"the ONNX file does not define its {' and '.join(missing)}: add {options} "
                "(for plain pixels, mean 0 0 0 and std 1 1 1)"
            )


def has_gradient(model: nn.Module) -> bool:
    """Whether gradient-based attacks work: not on models of other runtimes, nor through int8 layers."""
    return all(
        getattr(module, "differentiable", True) and ".quantized." not in type(module).__module__
        for module in model.modules()
    )


class FromProbabilities(nn.Module):
    """Wrapper that turns the probabilities of a model into logits, their logarithms."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.pretrained_cfg = getattr(model, "pretrained_cfg", None)

    def forward(self, images: Tensor) -> Tensor:
        """Logits whose softmax is the model's output."""
        return (
            logits_of(self.model(images)).clamp_min(1e-30).log()
        )  # the smallest normal float32 is 1e-38; log(0) would be −inf


def _check_ends(session: Any, path: Path) -> None:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    shape = inputs[0].shape if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or _fixed_size(shape[1]) not in (None, 3) or inputs[0].type not in KINDS:
        found = ", ".join(f"{one.type} {one.shape}" for one in inputs) or "none"
        raise HoldfastError(f"{path} must take images (batch, 3, height, width) of floating-point numbers, got {found}")
    if len(outputs) != 1 and "logits" not in [one.name for one in outputs[:1]]:
        names = ", ".join(one.name for one in outputs)
        raise HoldfastError(f"{path} must have one output, or 'logits' as the first, got {names}")


def _configuration(description: OnnxDescription, size: tuple[int, int] | None) -> dict[str, Any]:
    """The model's ``pretrained_cfg`` with timm's keys."""
    return {
        "architecture": description.architecture,
        "task": description.task,
        "input_size": (3, *(size or (224, 224))),
        "mean": description.mean or (0.0, 0.0, 0.0),
        "std": description.std or (1.0, 1.0, 1.0),
        "interpolation": description.interpolation,
        **(
            {"crop_pct": description.crop_pct, "crop_mode": description.crop_mode}
            if description.crop_pct is not None
            else {}
        ),
    }


def _fixed_size(side: Any) -> int | None:
    return side if isinstance(side, int) and side > 0 else None
