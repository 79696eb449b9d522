"""Export of models to ONNX or PyTorch's ``.pt2``, checked on real images before the file is written.

Loading a ``.pt2`` file can execute code that it contains: Holdfast writes such files and never reads them.
"""

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from holdfast.data import Source
from holdfast.deploy.onnx_files import METADATA, OnnxDescription
from holdfast.deploy.onnx_model import has_gradient
from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData, open_evaluation_data
from holdfast.evaluation.predictor import Predictor, apply_protocol, requested_input
from holdfast.evaluation.preprocessing import largest_size
from holdfast.io import atomic
from holdfast.models.factory import LoadedModel, architecture_of, load_model
from holdfast.models.outputs import Logits, logits_of
from holdfast.models.segmenter import Segmenter
from holdfast.runtime.device import unwrap_model

FORMATS = {"onnx": ".onnx", "pt2": ".pt2"}
TOLERANCE = 1e-4  # relative to logits of order 1; our models differ by 2e-6
CHECKED = 8  # number of images
BATCHES = (1, 2, 5)  # a batch size that was baked into the graph fails for at least two of them
WHOLE = (512, 512)  # window of a segmenter without sliding windows, unless given


def export(
    model: nn.Module | str | Path,
    out: Path | str,
    data: Source | str,
    *,
    to: str = "onnx",
    size: int | tuple[int, int] | None = None,
    protocol: EvalProtocol | None = None,
) -> float:
    """Write a model as a file for another runtime, with a dynamic batch size; return the largest difference.

    The file's outputs on real images are compared with the model's own, in batches of 1, 2 and 5: if a logit
    differs by more than 1e-4, nothing is written.

    Args:
        model: as in `holdfast.evaluate`.
        out: the file to write.
        data: images for the check, as in `holdfast.evaluate`.
        to: ``onnx``, which `holdfast.evaluate` reads as ``onnx:FILE``, or ``pt2``.
        size: height and width of the input; by default the model's own, for segmenters that of their windows, or of
            the images if these are smaller.
        protocol: mean, std, crop_pct and other settings to store in the file, as in `holdfast.evaluate`.
    """
    if to not in FORMATS:
        raise HoldfastError(f"to must be one of {', '.join(FORMATS)}, got {to!r}{nearest(to, FORMATS)}")
    found = prepare_export(model, data, size=size, protocol=protocol)
    with _quiet(), torch.no_grad():
        answer, content = _WRITERS[to](found.model, found.images[:2], found.description)
        difference = _check_answers(answer, found.images, found.answers)
    path = Path(out).expanduser()
    with atomic.replace_file(path) as temporary:
        temporary.write_bytes(content)
    return difference


@dataclass(frozen=True, eq=False)
class Exportable:
    """A model ready for export, with the images and outputs for the check.

    Attributes:
        model: the plain network, on the CPU.
        description: metadata to store in the file.
        ids: ids of the images of the check.
        images: these images, preprocessed and normalised, (n, 3, H, W).
        answers: the model's outputs for them.
    """

    model: nn.Module
    description: OnnxDescription
    ids: tuple[str, ...]
    images: Tensor
    answers: Tensor


def prepare_export(
    model: nn.Module | str | Path,
    data: Source | str,
    *,
    size: int | tuple[int, int] | None = None,
    protocol: EvalProtocol | None = None,
) -> Exportable:
    """Prepare a model for export: the plain network, and its outputs on images preprocessed as in an evaluation."""
    protocol = protocol or EvalProtocol()
    protocol = replace(protocol, size=size if size is not None else protocol.size)
    loaded, opened = load_model(model), open_evaluation_data(data, limit=CHECKED, exif=protocol.exif)
    if not has_gradient(loaded.model):
        raise HoldfastError(
            f"model must be a PyTorch model to be exported, got {loaded.name!r}, which is an exported file"
        )
    if reason := getattr(loaded.model, "not_exportable", None):
        raise HoldfastError(f"{loaded.name} cannot be exported: {reason}")
    description = _describe_export(loaded, opened, protocol)
    with Predictor.open(loaded, opened, protocol) as predictor:
        plain, images = _plain(loaded.model), _images(opened, predictor, description)
        with _quiet(), torch.no_grad():
            answers = plain(images)
            if not isinstance(answers, Tensor):
                plain, answers = Logits(plain), logits_of(answers)
    ids = tuple(opened.pictures.id(index) for index in range(len(images)))
    return Exportable(plain, description, ids, images, answers)


def _plain(model: nn.Module) -> nn.Module:
    """Copy the unwrapped network to the CPU in eval mode, without sliding windows."""
    inner = copy.deepcopy(unwrap_model(model)).cpu().eval()
    if isinstance(inner, Segmenter):
        inner.window = None
    return inner


def _describe_export(loaded: LoadedModel, data: EvaluationData, protocol: EvalProtocol) -> OnnxDescription:
    task, size = data.task, protocol.size
    if not (task.scoring.one_class or task.evaluation.label_maps):
        raise HoldfastError(f"holdfast export supports classifiers and segmenters, got data for {task.name}")
    wanted = requested_input(apply_protocol(loaded.model, replace(protocol, probabilities=None)), protocol)
    own: Any = unwrap_model(loaded.model)
    side = wanted.size
    if task.evaluation.label_maps:
        side = (size, size) if isinstance(size, int) else size or _window(data, wanted.window or WHOLE)
    if side is None:
        raise HoldfastError("size must be given for a model without its own input size, got none")
    classes = loaded.classes or tuple(map(str, data.pictures.classes))
    return OnnxDescription(
        task.name,
        side,
        wanted.mean,
        wanted.std,
        wanted.interpolation,
        output="probabilities" if protocol.probabilities else "logits",
        classes=classes if len(classes) == getattr(own, "num_classes", len(classes)) else None,
        architecture=architecture_of(loaded.model),
        stride=min(wanted.stride, *side) if wanted.stride else None,
        crop_pct=wanted.crop_pct if task.scoring.one_class else None,
        crop_mode=wanted.crop_mode,
    )


def _window(data: EvaluationData, window: tuple[int, int]) -> tuple[int, int]:
    """Return the window, at most as large as the images, which a file of fixed size would have to pad."""
    largest = largest_size(data.pictures)
    return min(window[0], largest[0]), min(window[1], largest[1])


def _images(data: EvaluationData, predictor: Predictor, description: OnnxDescription) -> Tensor:
    """Preprocess and normalise real images, (n, 3, H, W)."""
    pictures = [data.pictures.image(index) for index in range(min(CHECKED, len(data.pictures)))]
    if data.task.scoring.one_class:
        pixels = [predictor.steps.clean(picture) for picture in pictures]
    else:
        assert description.size is not None
        height, width = description.size
        scaled = [picture.convert("RGB").resize((width, height), Image.Resampling.BILINEAR) for picture in pictures]
        pixels = [np.array(picture) for picture in scaled]
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
    return predictor.normalized_model.pixels.normalise(predictor.normalized_model.on_device(images)).cpu()


def _check_answers(answer: Callable[[Tensor], Tensor], images: Tensor, wanted: Tensor) -> float:
    largest = 0.0
    for count in BATCHES:
        if count > len(images):
            continue
        got = answer(images[:count])
        if got.shape != wanted[:count].shape:
            raise HoldfastError(
                f"the exported model must keep the model's shape for {count} images, got {tuple(got.shape)} instead of "
                f"{tuple(wanted[:count].shape)}; nothing was written"
            )
        largest = max(largest, float((got - wanted[:count]).abs().max()))
    if not largest <= TOLERANCE * max(1.0, float(wanted.abs().max())):
        raise HoldfastError(
            f"the exported model's outputs must match the model's to {TOLERANCE:g}, got a difference of {largest:.2g}; "
            "nothing was written"
        )
    return largest


def _onnx(model: nn.Module, images: Tensor, description: OnnxDescription) -> tuple[Callable[[Tensor], Tensor], bytes]:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 (required by torch's exporter, whose own error is obscure)
    except ModuleNotFoundError as error:
        raise HoldfastError(
            "holdfast export --to onnx needs three packages; run: pip install onnx onnxscript onnxruntime"
        ) from error
    shapes = ({0: torch.export.Dim("batch")},)
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["logits"]}
    try:
        program = torch.onnx.export(model, (images,), dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
    except Exception as error:  # tracing a user's model can raise anything
        raise HoldfastError(f"the model cannot be exported to ONNX ({first_line(error)})") from error
    assert program is not None
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA, description.text()
    del proto.graph.value_info[:]  # intermediate shapes, which break onnxruntime's quantisation
    try:
        content = proto.SerializeToString()
    except ValueError as error:  # protobuf's limit of 2 GB
        raise HoldfastError(
            "a model of 2 GB or more does not fit into one ONNX file; export it with --to pt2"
        ) from error
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda batch: torch.from_numpy(session.run(None, {"images": batch.numpy()})[0]), content


def _pt2(model: nn.Module, images: Tensor, description: OnnxDescription) -> tuple[Callable[[Tensor], Tensor], bytes]:
    try:
        program = torch.export.export(model, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # tracing a user's model can raise anything
        raise HoldfastError(f"the model cannot be exported ({first_line(error)})") from error
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={f"{METADATA}.json": description.text()})
    return program.module(), file.getvalue()


_WRITERS: dict[str, Callable[[nn.Module, Tensor, OnnxDescription], tuple[Callable[[Tensor], Tensor], bytes]]] = {
    "onnx": _onnx,
    "pt2": _pt2,
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters, which print and log every step."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
