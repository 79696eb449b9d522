"""Inspection of one image by one model: input, prediction and attention before and after some edits.

Every number is computed by the functions behind ``holdfast.evaluate`` and ``holdfast.analyze`` and equals the one in
their records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from holdfast.analysis.attention_stability import HeadCosines, head_cosines, image_scores, layer_cosines
from holdfast.analysis.overfocus import Overfocus, overfocus
from holdfast.analysis.probe import as_bytes
from holdfast.attention import AttentionHandle, watch
from holdfast.cells import CLEAN
from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import CleanImages
from holdfast.evaluation.plan import Cell
from holdfast.lab.edits import Edits, apply_edits, is_corrupted, parse_edits, preprocess_uncorrupted
from holdfast.lab.opened_model import OpenedModel
from holdfast.models.segmenter import Segmenter
from holdfast.models.sliding_window import Windowed
from holdfast.models.tora import gate_maps
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field, field_name


@dataclass(frozen=True, eq=False)
class LabImage:
    """An image to inspect; random draws depend on its name, and ``target`` is None if unknown."""

    image: Image.Image
    name: str
    target: Any = None


@dataclass(frozen=True, eq=False)
class ImagePrediction:
    """A model's prediction for one image.

    Attributes:
        pixels: the model's input before normalisation, (1, 3, H, W) in [0, 1].
        answers: the model's outputs by view; plain models have the single view ``""``.
        attention: one handle per block; empty if attention cannot be read.
        channel_gates: computes FAN's channel gates, (1, C) per block.
        fields: the fields that a record stores, by view and name; empty without a target.
    """

    pixels: Tensor
    answers: Mapping[str, Any]
    attention: tuple[AttentionHandle, ...]
    channel_gates: Callable[[], list[Tensor]]
    fields: Mapping[str, Field]

    @property
    def bytes(self) -> np.ndarray:
        """The model's input, uint8 (H, W, 3)."""
        return as_bytes(self.pixels)[0]

    @cached_property
    def overfocus(self) -> dict[int, Overfocus]:
        """Cache of measured layers, filled by `focus_of`."""
        return {}


@dataclass(frozen=True, eq=False)
class Inspection:
    """One image before and after some edits, with one model's predictions."""

    opened: OpenedModel
    picture: LabImage
    steps: tuple[Edits, ...]
    before: ImagePrediction
    after: ImagePrediction

    @property
    def lens(self) -> OpenedModel:
        """Earlier name of ``opened``, which downloaded ``lines.py`` files still use."""
        return self.opened

    @cached_property
    def aligned(self) -> ImagePrediction:
        """The prediction that ``after`` is compared with pixel by pixel: the unedited image, preprocessed alike.

        It is ``before`` unless the benchmark's preprocessing differs from the model's own.
        """
        if self.opened.steps.same_for_clean or not is_corrupted(self.steps):
            return self.before
        return _predict(self.opened, preprocess_uncorrupted(self.opened, self.picture.image), self.picture.target)

    @cached_property
    def cosines(self) -> list[HeadCosines]:
        """Stability of attention per layer and head, (1, h) each; empty without attention."""
        if not self.comparable:
            return []
        return layer_cosines(self.aligned.attention, self.after.attention)

    @cached_property
    def comparable(self) -> bool:
        """Whether attention before and after can be compared."""
        return bool(self.after.attention)

    @cached_property
    def stability(self) -> float | None:
        """Mean stability over all heads and layers, as in ``holdfast analyze``."""
        return float(image_scores([layer.flattened for layer in self.cosines])[0]) if self.cosines else None

    def layer_stability(self, layer: int) -> Tensor:
        """Stability of every head of one layer, (h,), without computing the other layers."""
        if "cosines" in self.__dict__:
            return self.cosines[layer].flattened[0]
        return head_cosines(self.aligned.attention[layer], self.after.attention[layer]).flattened[0]

    @cached_property
    def gates(self) -> tuple[Tensor, Tensor] | None:
        """Gate weight of TORA's robustness adapter before and after, (blocks, rows, columns) each."""
        if self.opened.tora is None:
            return None
        return gate_shares(self.opened, self.aligned), gate_shares(self.opened, self.after)


def inspect_image(
    lens: OpenedModel,
    image: int | LabImage,
    damage: str | Sequence[Edits] = "",
    *,
    before: ImagePrediction | None = None,
) -> Inspection:
    """Predict one image before and after some edits.

    Args:
        lens: the opened model, see `open_model`.
        image: its index in the data, or an image of your own.
        damage: edits such as ``fog/3,pgd/8``, see `holdfast.lab.edits`.
        before: the prediction for the unedited image from an earlier inspection, to avoid a forward pass.
    """
    steps = parse_edits(damage) if isinstance(damage, str) else tuple(damage)
    picture = picture_of(lens, image) if isinstance(image, int) else image
    first = before or predict_image(lens, picture, ())
    return Inspection(lens, picture, steps, first, predict_image(lens, picture, steps) if steps else first)


def picture_of(opened: OpenedModel, number: int) -> LabImage:
    """Load an image of the data with its target."""
    if not 0 <= number < len(opened.source):
        raise HoldfastError(f"image must lie in 0…{len(opened.source) - 1}, got {number}")
    target = None if opened.without_labels else opened.task.evaluation.target(opened.source, number)
    return LabImage(opened.source.image(number), opened.source.id(number), target)


def predict_image(opened: OpenedModel, picture: LabImage, steps: Sequence[Edits]) -> ImagePrediction:
    """Predict one image after some edits, in one forward pass."""
    return _predict(
        opened, apply_edits(opened, picture.image, steps, name=picture.name, target=picture.target), picture.target
    )


def _predict(opened: OpenedModel, pixels: Tensor, target: Any) -> ImagePrediction:
    if not opened.has_attention:
        answers = opened.judge.predict(pixels)
        return ImagePrediction(pixels, answers, (), list, recorded_fields(opened, answers, target))
    with watch(opened.inner) as seen:
        answers = opened.judge.predict(pixels)
    one_pass = tuple(seen.attention) if not _in_windows(opened) else ()
    return ImagePrediction(pixels, answers, one_pass, seen.channel_gates, recorded_fields(opened, answers, target))


def _in_windows(opened: OpenedModel) -> bool:
    """Whether the model uses sliding windows, of which the hooks would see only the last."""
    parts = opened.judge.pixels.modules()
    return any(isinstance(part, (Windowed, Segmenter)) and part.window is not None for part in parts)


def recorded_fields(opened: OpenedModel, answers: Mapping[str, Any], target: Any) -> Mapping[str, Field]:
    """Fields that a record stores of the outputs; empty without a target."""
    if target is None:
        return {}
    return opened.task.evaluation.keep(answers, [target], cell=Cell(CLEAN, CleanImages(), opened.source))


def right(look: Inspection, seen: ImagePrediction, view: str = "") -> float | None:
    """Score of a prediction from 0 to 1, as the task scores its records; None without a target."""
    if not seen.fields:
        return None
    task, target = look.opened.task, look.picture.target
    fields = {
        name: values for name in task.scoring.fields if (values := seen.fields.get(field_name(view, name))) is not None
    }
    truth = np.array([target if isinstance(target, int) else 0])
    header = {"cell": CLEAN.name, **CLEAN.plain()}
    record = CellRecord(np.array([look.picture.name]), truth, fields, header=header, task=task.name)
    return float(task.scoring.right(record)[0])


def probabilities(logits: Tensor) -> np.ndarray:
    """Softmax in double precision, as records compute confidences."""
    values = logits.float().cpu().numpy().astype(np.float64)
    shifted = np.exp(values - values.max())
    return shifted / shifted.sum()


def focus_of(seen: ImagePrediction, layer: int) -> Overfocus:
    """Effective tokens and top share of one layer, cached."""
    if layer not in seen.overfocus:
        seen.overfocus[layer] = overfocus(seen.attention[layer])
    return seen.overfocus[layer]


def gate_shares(opened: OpenedModel, seen: ImagePrediction) -> Tensor:
    """Gate weight of the robustness adapter at every token of every block, (blocks, rows, columns)."""
    assert opened.tora is not None
    maps = gate_maps(opened.tora, opened.judge.pixels.normalise(seen.pixels))
    return (maps["rob"] / (maps["acc"] + maps["rob"]))[0]
