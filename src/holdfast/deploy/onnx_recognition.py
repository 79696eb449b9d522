"""Whether an ONNX file that says nothing of itself is a detector, a segmenter or a classifier."""

from typing import Any

import numpy as np
from torch import nn

from holdfast.deploy.detection_layouts import LAYOUTS, fitting_layouts
from holdfast.deploy.image_fitting import Placement
from holdfast.deploy.onnx_detectors import OnnxDetector
from holdfast.deploy.onnx_segmenters import OnnxSegmenter, segmenter_outputs
from holdfast.deploy.onnx_session import OnnxSession, described_outputs
from holdfast.errors import HoldfastError

FIRST_SIZE = (640, 640)  # of the grey image for files that leave their size open; most strides divide it


def dense_model(session: Any, *, name: str, digest: str) -> nn.Module | None:
    """A detector or a segmenter, recognised by what the file answers to a grey image; None for a classifier."""
    if _is_classifier(session):
        return None
    opened = OnnxSession(session, name=name, digest=digest)
    outputs = _grey_outputs(opened)
    if outputs and segmenter_outputs(outputs) is not None:
        return OnnxSegmenter(opened, outputs)
    if outputs and len(outputs) == 1 and outputs[0][1].ndim <= 2:
        return None
    layouts = fitting_layouts(outputs)
    if outputs and not layouts:
        raise HoldfastError(
            f"{name} must answer with one tensor of logits, a label map, or detections as {', '.join(LAYOUTS)} write "
            f"them, got {described_outputs(outputs)}"
        )
    return OnnxDetector(opened, layouts=layouts, outputs=outputs)


def _is_classifier(session: Any) -> bool:
    """By what the file declares: one image, and one row of logits for each."""
    outputs = session.get_outputs()
    alone = len(outputs) == 1 or outputs[0].name == "logits"
    return len(session.get_inputs()) == 1 and alone and len(outputs[0].shape or ()) == 2


def _grey_outputs(session: OnnxSession) -> list[tuple[str, np.ndarray]]:
    """What the file answers to a grey image; nothing where it does not take one of that size."""
    size = session.size or FIRST_SIZE
    try:
        return session.run(np.full((3, *size), 0.5, np.float32), Placement(size, size))
    except HoldfastError:
        return []
