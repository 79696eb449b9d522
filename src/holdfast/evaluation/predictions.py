"""Predicted label maps as files: for servers that keep their labels back (ACDC and Cityscapes test), and to look at."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from holdfast import atomic
from holdfast.data import open_data
from holdfast.data.label_maps import TASK as SEGMENTATION
from holdfast.errors import HoldfastError
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.machine import choose_device
from holdfast.evaluation.native import NativeSize
from holdfast.evaluation.protocol import model_input
from holdfast.models.segmenter import windowed
from holdfast.models.specs import load_model
from holdfast.models.windows import predicted_map
from holdfast.tasks import task_of


def export_predictions(
    model: nn.Module | str | Path,
    data: Any,
    out: Path | str,
    *,
    window: int | Sequence[int] | None = None,
    stride: int | None = None,
    device: str = "auto",
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
    """
    source = open_data(data, split="test") if isinstance(data, str) else data
    if task_of(source).name != SEGMENTATION:
        raise HoldfastError(f"predictions are label maps and need data with such, got {data!r}")
    loaded = load_model(model)
    net = loaded.model if window is None else windowed(loaded.model, window, stride)
    steps = NativeSize.of(source, model_input(net), preset="any")
    judge = Judge(net.eval(), steps=steps, device=choose_device(device, net, fixed=True), amp="no")
    task_of(source).check_model(judge.probe, classes=len(source.classes), restricted=False, data=str(data))
    numbers = np.array(getattr(source, "numbers", None) or range(len(source.classes)), np.uint8)
    for index in range(len(source)):
        _write(Path(out).expanduser() / f"{source.id(index)}.png", numbers[_predicted(judge, steps, source, index)])
    return len(source)


def _predicted(judge: Judge, steps: NativeSize, source: Any, index: int) -> np.ndarray:
    picture = source.image(index)
    pixels = steps.after(steps.before(picture), corrupted=False)
    answers = judge.look(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])
    logits = next(iter(answers.values()))[0]
    return predicted_map(logits, (picture.height, picture.width), cell=source.id(index))


def _write(path: Path, numbers: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            Image.fromarray(numbers).save(temporary, format="PNG")
    except OSError as error:
        raise HoldfastError(
            f"predictions must go to a folder we can write to, got {str(path)!r} ({error.strerror})"
        ) from error
