"""Predicted label maps as files: for servers that keep their labels back (ACDC and Cityscapes test), and to look at."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import nn

from holdfast.data.label_maps import TASK as SEGMENTATION
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import open_evaluation_data
from holdfast.inference.predictor import Predictor
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
    """Write one PNG per image, ``OUT/<id>.png``, and return how many.

    The numbers are those of the data's label files: label ids 7 … 33 for Cityscapes and ACDC, class numbers elsewhere.

    Args:
        model: as in ``holdfast.evaluate``.
        data: a spec such as ``acdc:DIR,test``, or a source; labels are not needed.
        out: the folder.
        window: height and width of sliding windows; the model's own unless given.
        stride: pixels from one window to the next.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        protocol: size, mean, std and what else ``holdfast.evaluate`` takes.
    """
    asked = protocol or EvalProtocol()
    asked = replace(asked, window=window or asked.window, stride=stride or asked.stride)
    opened = open_evaluation_data(data, exif=asked.exif)
    if opened.source is None or opened.task.name != SEGMENTATION:
        raise HoldfastError(f"predictions are label maps and need data with such, got {data!r}")
    source: Any = opened.source
    numbers = np.array(getattr(source, "numbers", None) or range(len(source.classes)), np.uint8)
    with Predictor.open(model, opened, asked, device=device) as predictor:
        opened.task.check_model(
            predictor.judge.probe, classes=len(source.classes), restricted=False, data=str(opened.spec)
        )
        for index in range(len(source)):
            picture = source.image(index)
            seen = predicted_map(predictor.predict(picture), (picture.height, picture.width), cell=source.id(index))
            _write(Path(out).expanduser() / f"{source.id(index)}.png", numbers[seen])
    return len(source)


def _write(path: Path, numbers: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            Image.fromarray(numbers).save(temporary, format="PNG")
    except OSError as error:
        raise HoldfastError(
            f"predictions must go to a folder we can write to, got {str(path)!r} ({error.strerror})"
        ) from error
