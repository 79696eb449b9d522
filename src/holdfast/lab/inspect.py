"""The pure look: a model, an image and what is done to it → what the model sees, says and attends to, before and after.

Every number is computed by the functions behind ``holdfast.evaluate`` and ``holdfast.analyze``, so that it equals the
number in their records.
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
from holdfast.errors import HoldfastError
from holdfast.evaluation.cell_images import CleanImages
from holdfast.evaluation.plan import Cell
from holdfast.lab.edits import Edits, apply_edits, is_corrupted, parse_edits, uncorrupted
from holdfast.lab.opened_model import OpenedModel
from holdfast.models.tora import gate_maps
from holdfast.records.cells import CLEAN
from holdfast.records.records import CellRecord
from holdfast.records.shard_files import Field, field_name


@dataclass(frozen=True, eq=False)
class LabImage:
    """One image to look at: its name keys its draws, ``target`` is None where nobody knows it."""

    image: Image.Image
    name: str
    target: Any = None


@dataclass(frozen=True, eq=False)
class ImagePrediction:
    """What a model makes of an image.

    Attributes:
        pixels: what it sees, (1, 3, H, W) in [0,1].
        answers: what it returns, by view; plain models have the single view ``""``.
        attention: a handle per block; none where attention cannot be read.
        channel_gates: computes FAN's channel gates, (1, C) per block.
        kept: what a record keeps of the answer, by view and field; nothing without a target.
    """

    pixels: Tensor
    answers: Mapping[str, Any]
    attention: tuple[AttentionHandle, ...]
    channel_gates: Callable[[], list[Tensor]]
    kept: Mapping[str, Field]

    @property
    def bytes(self) -> np.ndarray:
        """What the model sees, uint8 (H, W, 3)."""
        return as_bytes(self.pixels)[0]

    @cached_property
    def overfocus(self) -> dict[int, Overfocus]:
        """Measured layers, filled by `focus_of`."""
        return {}


@dataclass(frozen=True, eq=False)
class Inspection:
    """One image before and after some damage, through one model."""

    lens: OpenedModel
    picture: LabImage
    steps: tuple[Edits, ...]
    before: ImagePrediction
    after: ImagePrediction

    @cached_property
    def aligned(self) -> ImagePrediction:
        """What ``after`` is compared with place by place: the same image, prepared alike.

        That is ``before``, unless the benchmark prepares images that it corrupts otherwise than the model its own.
        """
        if self.lens.steps.same_for_clean or not is_corrupted(self.steps):
            return self.before
        return _seen(self.lens, uncorrupted(self.lens, self.picture.image), self.picture.target)

    @cached_property
    def cosines(self) -> list[HeadCosines]:
        """Stability of attention per layer and head, (1, h) each; none where there is no attention to compare."""
        if not self.comparable:
            return []
        return layer_cosines(self.aligned.attention, self.after.attention)

    @cached_property
    def comparable(self) -> bool:
        """Whether there is attention, on the same grid twice."""
        return bool(self.after.attention)

    @cached_property
    def stability(self) -> float | None:
        """One score: the mean over all heads of all layers, as ``holdfast analyze`` reports it."""
        return float(image_scores([layer.flattened for layer in self.cosines])[0]) if self.cosines else None

    def layer_stability(self, layer: int) -> Tensor:
        """The cosine of every head of one layer, (h,), without reading the others."""
        if "cosines" in self.__dict__:
            return self.cosines[layer].flattened[0]
        return head_cosines(self.aligned.attention[layer], self.after.attention[layer]).flattened[0]

    @cached_property
    def gates(self) -> tuple[Tensor, Tensor] | None:
        """The robustness adapter's share of TORA's gate before and after, (blocks, rows, columns) each."""
        if self.lens.tora is None:
            return None
        return gate_shares(self.lens, self.aligned), gate_shares(self.lens, self.after)


def inspect_image(
    lens: OpenedModel,
    image: int | LabImage,
    damage: str | Sequence[Edits] = "",
    *,
    before: ImagePrediction | None = None,
) -> Inspection:
    """Look at one image before and after some damage.

    Args:
        lens: see `open_lens`.
        image: its number in the data, or a picture of your own.
        damage: such as ``fog/3,pgd/8``, see `holdfast.lab.edits`.
        before: what an earlier look at the same image has seen, so that it is not looked at again.
    """
    steps = parse_edits(damage) if isinstance(damage, str) else tuple(damage)
    picture = picture_of(lens, image) if isinstance(image, int) else image
    first = before or glance(lens, picture, ())
    return Inspection(lens, picture, steps, first, glance(lens, picture, steps) if steps else first)


def picture_of(lens: OpenedModel, number: int) -> LabImage:
    """An image of the data."""
    if not 0 <= number < len(lens.source):
        raise HoldfastError(f"image must lie in 0…{len(lens.source) - 1}, got {number}")
    return LabImage(lens.source.image(number), lens.source.id(number), lens.task.target(lens.source, number))


def glance(lens: OpenedModel, picture: LabImage, steps: Sequence[Edits]) -> ImagePrediction:
    """One forward pass over one image after some damage."""
    return _seen(
        lens, apply_edits(lens, picture.image, steps, name=picture.name, target=picture.target), picture.target
    )


def _seen(lens: OpenedModel, pixels: Tensor, target: Any) -> ImagePrediction:
    if not lens.has_attention:
        answers = lens.judge.predict(pixels)
        return ImagePrediction(pixels, answers, (), list, recorded_fields(lens, answers, target))
    with watch(lens.inner) as seen:
        answers = lens.judge.predict(pixels)
    one_pass = tuple(seen.attention) if not _in_windows(lens) else ()
    return ImagePrediction(pixels, answers, one_pass, seen.channel_gates, recorded_fields(lens, answers, target))


def _in_windows(lens: OpenedModel) -> bool:
    """Whether an image goes through the model in several pieces, of which only the last would be seen."""
    return getattr(lens.steps, "window", None) is not None


def recorded_fields(lens: OpenedModel, answers: Mapping[str, Any], target: Any) -> Mapping[str, Field]:
    """What a record keeps of an answer."""
    if target is None:
        return {}
    return lens.task.keep(answers, [target], cell=Cell(CLEAN, CleanImages(), lens.source))


def right(look: Inspection, seen: ImagePrediction, view: str = "") -> float | None:
    """How well it went, from 0 to 1, as the task scores its records; None where nobody knows the truth."""
    if not seen.kept:
        return None
    task, target = look.lens.task, look.picture.target
    fields = {name: values for name in task.fields if (values := seen.kept.get(field_name(view, name))) is not None}
    truth = np.array([target if isinstance(target, int) else 0])
    told = {"cell": CLEAN.name, **CLEAN.plain()}
    record = CellRecord(np.array([look.picture.name]), truth, fields, header=told, task=task.name)
    return float(task.right(record)[0])


def probabilities(logits: Tensor) -> np.ndarray:
    """Softmax in double precision, as records compute confidences."""
    values = logits.float().cpu().numpy().astype(np.float64)
    shifted = np.exp(values - values.max())
    return shifted / shifted.sum()


def focus_of(seen: ImagePrediction, layer: int) -> Overfocus:
    """Effective tokens and top share of one layer, measured once."""
    if layer not in seen.overfocus:
        seen.overfocus[layer] = overfocus(seen.attention[layer])
    return seen.overfocus[layer]


def gate_shares(lens: OpenedModel, seen: ImagePrediction) -> Tensor:
    """The share of the robustness adapter at every place of every block, (blocks, rows, columns)."""
    assert lens.tora is not None
    maps = gate_maps(lens.tora, lens.judge.pixels.normalise(seen.pixels))
    return (maps["rob"] / (maps["acc"] + maps["rob"]))[0]
