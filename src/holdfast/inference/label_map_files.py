"""Predicted label maps as PNG files, for benchmark servers (ACDC and Cityscapes test) and for inspection."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import open_evaluation_data
from holdfast.evaluation.predictor import Predictor
from holdfast.io import atomic
from holdfast.models.sliding_window import predicted_map


def export_predictions(
    model: nn.Module | str | Path,
    data: Any,
    out: Path | str,
    *,
    window: int | tuple[int, int] | None = None,
    stride: int | None = None,
    device: str = "auto",
    protocol: EvalProtocol | None = None,
) -> int:
    """Write one PNG per image, ``OUT/<id>.png``, and return their number.

    Pixel values are those of the data's label files: label ids 7 … 33 for Cityscapes and ACDC, class indices elsewhere.

    Args:
        model: as in ``holdfast.evaluate``.
        data: a spec such as ``acdc:DIR,test``, or a source; labels are not needed.
        out: output folder.
        window: height and width of the sliding window; by default the model's own.
        stride: stride of the sliding window in pixels.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        protocol: preprocessing, as in ``holdfast.evaluate``.
    """
    protocol = protocol or EvalProtocol()
    protocol = replace(protocol, window=window or protocol.window, stride=stride or protocol.stride)
    opened = open_evaluation_data(data, exif=protocol.exif)
    if opened.source is None or not opened.task.evaluation.label_maps:
        raise HoldfastError(f"label maps need segmentation data, such as cityscapes:DIR, got {data!r}")
    source: Any = opened.source
    numbers = np.array(getattr(source, "numbers", None) or range(len(source.classes)), np.uint8)
    with Predictor.open(model, opened, protocol, device=device) as predictor:
        opened.task.evaluation.check_model(
            predictor.normalized_model.probe, classes=len(source.classes), restricted=False, data=str(opened.spec)
        )
        for index in range(len(source)):
            picture = source.image(index)
            labels = predicted_map(predictor.predict(picture), (picture.height, picture.width), cell=source.id(index))
            _write(Path(out).expanduser() / f"{source.id(index)}.png", numbers[labels])
    return len(source)


def _write(path: Path, numbers: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            Image.fromarray(numbers).save(temporary, format="PNG")
    except OSError as error:
        raise HoldfastError(
            f"out must be a folder we can write to, but {str(path)!r} cannot be written ({error.strerror})"
        ) from error
