"""From images to what records keep of a model's answers."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.attacks.pixels import PixelModel
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Cell
from holdfast.evaluation.protocol import Preprocessing
from holdfast.metrics.accuracy import ranked, restricted_classes
from holdfast.models.wrappers import without_wrappers
from holdfast.records.units import FIELDS, TOP_FIVE, field_name

Logits = Mapping[str, np.ndarray]  # per view, (n, classes)


class Judge:
    """A model of byte images, in evaluation mode, on its device, with all the predictions it gives."""

    def __init__(self, model: nn.Module, *, steps: Preprocessing, device: torch.device, amp: str) -> None:
        self.pixels = PixelModel(model, mean=steps.mean, std=steps.std).to(device).eval()
        self.device, self.size = device, steps.size
        self._amp = None if amp == "no" else getattr(torch, amp)
        self.views, self.classes = self._probe()

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Logits:
        """The logits of every view for byte images (n, 3, H, W)."""
        with self._autocast():
            pixels = self.on_device(images)  # ours alone, so it is normalised in place
            return _arrays(self._seen(pixels.sub_(self.pixels.mean).div_(self.pixels.std)))

    def on_device(self, images: Tensor) -> Tensor:
        """Byte images as [0,1] pixels on the model's device."""
        return images.to(self.device, non_blocking=True).float().div_(255)

    def answers(self, images: Tensor) -> Mapping[str, Tensor]:
        """The logits of every view for [0,1] images; plain models have the single view ``""``."""
        return self._seen(self.pixels.normalise(images))

    def _seen(self, normalised: Tensor) -> Mapping[str, Tensor]:
        inner: Any = without_wrappers(self.pixels.model)
        return inner.views(normalised) if has_views(inner) else {"": inner(normalised)}

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self._amp) if self._amp is not None else nullcontext()

    @torch.inference_mode()
    def _probe(self) -> tuple[tuple[str, ...], int]:
        grey = torch.full((1, 3, *self.size), 0.5, device=self.device)
        try:
            answers = self.answers(grey)
        except HoldfastError:
            raise
        except Exception as error:  # whatever a foreign model raises when its input does not suit it
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise HoldfastError(
                f"the model cannot look at images of {self.size[0]}×{self.size[1]} ({reason}); set size"
            ) from error
        for view, logits in answers.items():
            if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1:
                came = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
                where = f" in view {view!r}" if view else ""
                raise HoldfastError(f"the model must return logits of shape (images, classes), got {came}{where}")
        widths = {view: logits.shape[1] for view, logits in answers.items()}
        if len(set(widths.values())) != 1:
            raise HoldfastError(f"all views of a model must have the same number of classes, got {widths}")
        return tuple(answers), next(iter(widths.values()))


def has_views(model: nn.Module) -> bool:
    """Whether a model gives several predictions, by a method ``views(images) -> {name: logits}``."""
    return callable(getattr(model, "views", None))


def check_classes(judge: Judge, cells: tuple[Cell, ...], *, classes: int, data: str) -> None:
    """Refuse a model whose classes are not those of the data."""
    restricted = any(cell.restricted_to for cell in cells)
    if judge.classes == classes or (restricted and judge.classes == 1000):
        return
    wanted = f"{classes} classes of {data!r}" + (" or the 1000 of ImageNet" if restricted else "")
    raise HoldfastError(f"the model must have the {wanted}, got {judge.classes}")


def scored(logits: Logits, targets: np.ndarray, cell: Cell, *, repeats: int | None = None) -> dict[str, np.ndarray]:
    """What a unit keeps of some images of a cell.

    Args:
        logits: per view, (n, classes), or (n × repeats, classes) with an image's repeats in a row.
        targets: the images' classes (n,); −1 for none.
        cell: says which classes count, and whether the best five are kept for each frame.
        repeats: how often every image is seen, if it is seen repeatedly: arrays are then (n, repeats), else (n,).
    """
    arrays: dict[str, np.ndarray] = {}
    for view, values in logits.items():
        check_numbers(values, cell)
        if cell.restricted_to and values.shape[1] == 1000:
            values = values[:, restricted_classes(cell.restricted_to)]  # noqa: PLW2901
        fields = _fields(values, np.repeat(targets, repeats or 1))
        if cell.several and values.shape[1] >= 5:
            fields[TOP_FIVE] = ranked(values, count=5).astype(np.int32)
        for name, array in fields.items():
            shape = (len(targets), repeats) if repeats is not None else (len(targets),)
            arrays[field_name(view, name)] = array.reshape(*shape, *array.shape[1:])
    return arrays


def check_numbers(logits: np.ndarray, cell: Cell) -> None:
    """Refuse NaN and infinity, naming the cell; minus infinity is a class that is ruled out."""
    bad = int((~np.isfinite(logits.max(axis=1))).sum())
    if bad:
        raise HoldfastError(
            f"the model must return numbers, got NaN or infinity for {bad} of {len(logits)} images in {cell.name}; "
            "nothing was recorded for them"
        )


def _fields(logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    known = targets >= 0
    place = np.where(known, targets, 0)[:, None]
    own = np.take_along_axis(shifted, place, axis=1)  # n 1
    earlier = np.arange(logits.shape[1]) < place
    rank = ((shifted > own) | ((shifted == own) & earlier)).sum(axis=1)  # of equals the lower class comes first
    values = {
        "predictions": logits.argmax(axis=1),
        "confidences": np.exp(-log_sum),
        "nll": np.where(known, log_sum - own[:, 0], np.nan),
        "top5": (rank < 5) & known,
    }
    return {name: values[name].astype(kind) for name, kind in FIELDS.items()}


def _arrays(answers: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {view: logits.float().cpu().numpy() for view, logits in answers.items()}
