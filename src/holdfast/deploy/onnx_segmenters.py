"""ONNX segmenters of other projects: logits of any output stride, or label maps, at the size of the image."""

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, one_hot

from holdfast.deploy.image_fitting import OF_OPENCV, Placement, check_choice
from holdfast.deploy.onnx_session import OnnxSession, described_outputs
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.deploy.detection_layouts import Outputs
    from holdfast.evaluation.config import EvalProtocol

OUTPUTS = {"logits": "a value for every class and place", "labels": "a class number for every place"}
RESIZES = ("none", "stretch")
INTERPOLATIONS = ("bilinear", "bicubic", *OF_OPENCV)
SURE = 100.0  # the logit of a label map's class: such a map says nothing of how sure it is
_CHANNELS = {True: "logits", False: "labels"}


class OnnxSegmenter(nn.Module):
    """A file's graph as a segmenter: normalised images (n, 3, H, W) in, logits (n, classes, H, W) out."""

    differentiable = False
    task = "segmentation"
    consumes = ("outputs", "size", "resize", "interpolation")

    def __init__(self, session: OnnxSession, outputs: "Outputs" = ()) -> None:
        super().__init__()
        self.session, self._outputs = session, outputs
        self.digest = session.digest  # by which records tell models apart
        self.outputs: str | None = None
        self.size: tuple[int, int] | None = None
        self.interpolation = "bilinear"
        self.classes: int | None = None  # of label maps, which do not tell
        self.unknown_settings = ("mean", "std")
        self.pretrained_cfg: dict[str, Any] = {
            "architecture": "onnx",
            "task": self.task,
            "input_size": (3, *(session.size or (224, 224))),
            "mean": (0.0, 0.0, 0.0),
            "std": (1.0, 1.0, 1.0),
            "interpolation": "bilinear",
        }

    @property
    def coarse(self) -> bool:
        """Whether it computes with fewer than 32 bits, so that rounding shows in its answers."""
        return self.session.coarse

    @property
    def own_steps(self) -> dict[str, Any]:
        """What the segmenter itself does with an image, for records."""
        told = {"outputs": self.outputs} if self.outputs == "labels" else {}
        if self.size is None:
            return told
        height, width = self.size
        back = "logits resampled back" if self.outputs == "logits" else "labels to the nearest pixel back"
        return {"model_size": f"{height}×{width} stretch, {self.interpolation}; {back}", **told}

    def configured(self, protocol: "EvalProtocol", pictures: Any) -> "OnnxSegmenter":
        """The segmenter as a protocol asks it about some pictures."""
        made = OnnxSegmenter(self.session, self._outputs)
        made.outputs = protocol.outputs or self.outputs or _recognised(self._outputs)
        asked = (protocol.size, protocol.size) if isinstance(protocol.size, int) else protocol.size
        if asked is not None and self.session.size not in (None, asked):
            own = self.session.size
            raise HoldfastError(f"size must be the {own[0]}×{own[1]} that the file fixes, got {protocol.size}")
        made.size = asked or self.size or self.session.size
        made.interpolation = protocol.interpolation or self.interpolation
        check_choice("outputs", made.outputs, tuple(OUTPUTS))
        check_choice("resize", protocol.resize or "none", RESIZES)
        check_choice("interpolation", made.interpolation, INTERPOLATIONS)
        if protocol.resize == "none" and self.session.size is not None:
            raise HoldfastError(f"resize must be stretch for a file that fixes the size {made.size}, got none")
        made.classes = len(getattr(pictures, "classes", ()) or ()) or self.classes
        return made

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Logits at the images' own size."""
        return torch.stack([self._logits(image.detach().cpu()) for image in images]).to(images.device)

    def _logits(self, image: Tensor) -> Tensor:
        own = (image.shape[1], image.shape[2])
        seen = image if self.size in (None, own) else resized(image, self.size or own, self.interpolation)
        placed = Placement(own, (seen.shape[1], seen.shape[2]))
        answer = _first_map(self.session.run(seen.numpy(), placed), self.session)
        if self.outputs == "labels":
            return self._of_labels(answer, own)
        if answer.ndim != 3 or not np.issubdtype(answer.dtype, np.floating):
            raise HoldfastError(self._refusal("logits (classes, height, width)", answer))
        logits = torch.from_numpy(answer.astype(np.float32, copy=False))
        if logits.shape[1:] == own:
            return logits
        return interpolate(logits[None], size=own, mode="bilinear", align_corners=False)[0]

    def _of_labels(self, answer: np.ndarray, own: tuple[int, int]) -> Tensor:
        answer = answer[0] if answer.ndim == 3 and len(answer) == 1 else answer
        if answer.ndim != 2 or (answer != np.round(answer)).any():  # true of NaN as well
            raise HoldfastError(self._refusal("whole numbers (height, width)", answer))
        classes = self.classes or int(answer.max(initial=0)) + 1
        if answer.min(initial=0) < 0 or answer.max(initial=0) >= classes:
            wrong = answer.max() if answer.max() >= classes else answer.min()
            raise HoldfastError(
                f"the labels of {self.session.name} must be classes 0 to {classes - 1}, got {wrong:g}; nothing was "
                "recorded for it"
            )
        labels = torch.from_numpy(answer.astype(np.int64))
        if tuple(labels.shape) != own:
            labels = interpolate(labels[None, None].float(), size=own, mode="nearest-exact")[0, 0].long()
        return SURE * one_hot(labels, classes).permute(2, 0, 1).float()

    def _refusal(self, wanted: str, answer: np.ndarray) -> str:
        came = described_outputs([("", answer)]).strip()
        return f"the outputs of {self.session.name} cannot be read as {self.outputs}: they must be {wanted}, got {came}"


def segmenter_outputs(outputs: "Outputs") -> str | None:
    """``logits`` or ``labels`` where some outputs can only be those of a segmenter; None otherwise."""
    if not outputs:
        return None
    first = _first_named(outputs)
    floating = np.issubdtype(first.dtype, np.floating)
    spatial = first.ndim == 4 or (first.ndim == 3 and not floating)
    if not spatial or any(each.ndim != first.ndim for _, each in outputs):
        return None
    return _CHANNELS[bool(floating)]


def resized(image: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    """A floating-point image (3, H, W) of another height and width; Pillow's ways smooth, OpenCV's do not."""
    if interpolation in OF_OPENCV:
        values = image.permute(1, 2, 0).contiguous().numpy()
        made = cv2.resize(values, (size[1], size[0]), interpolation=OF_OPENCV[interpolation])
        return torch.from_numpy(made).permute(2, 0, 1).contiguous()
    return interpolate(image[None], size=size, mode=interpolation, antialias=True, align_corners=False)[0]


def _recognised(outputs: "Outputs") -> str:
    return segmenter_outputs(outputs) or "logits"


def _first_named(outputs: "Outputs") -> np.ndarray:
    """The output called logits or out, else the first: torchvision's files have an auxiliary one beside."""
    named = dict(outputs)
    return next((named[name] for name in ("logits", "out") if name in named), outputs[0][1])


def _first_map(outputs: "Outputs", session: OnnxSession) -> np.ndarray:
    """The map of the only image; of a file with a fixed batch, of the first of its copies."""
    answer = _first_named(outputs)
    if answer.ndim not in (3, 4) or len(answer) != (session.batch or 1):
        raise HoldfastError(
            f"{session.name} must answer every image with one map, got {described_outputs(list(outputs))} for "
            f"{session.batch or 1}"
        )
    return answer[0]
