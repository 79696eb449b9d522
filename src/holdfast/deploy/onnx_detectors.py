"""ONNX detectors of other projects as torchvision's: images at their own size in, boxes in their pixels out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from holdfast.deploy.class_numbers import CLASS_IDS, ClassNumbers, class_numbers
from holdfast.deploy.detection_layouts import LAYOUTS, SUPPRESSIONS, Detections, Layout, Outputs, suppress
from holdfast.deploy.image_fitting import INTERPOLATIONS, RESIZES, Placement, check_choice, place_image
from holdfast.deploy.onnx_session import OnnxSession, described_outputs
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol


@dataclass(frozen=True)
class DetectorProtocol:
    """How images go into a detector, and how detections come out.

    Attributes:
        outputs: the name of a layout, see ``LAYOUTS``.
        size: height and width of what the model sees; None for the image's own.
        resize: how images get that size.
        interpolation: of that resize.
        mean: subtracted from [0,1] pixels.
        std: divides them then.
        nms: how boxes are suppressed after the file.
        nms_iou: overlap from which on they are.
        score_threshold: detections of lower scores are not kept.
        class_ids: ``ranks`` or ``category-ids``; None where the number of classes tells.
    """

    outputs: str
    size: tuple[int, int] | None
    resize: str
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    nms: str
    nms_iou: float
    score_threshold: float
    class_ids: str | None

    @property
    def layout(self) -> Layout:
        """By its name."""
        return LAYOUTS[self.outputs]


class OnnxDetector(nn.Module):
    """A file's graph as a detector of torchvision's protocol: [0,1] images (n, 3, H, W) in, a dictionary each out.

    It must be `configured` before it looks at images.
    """

    differentiable = False
    task = "detection"
    consumes: tuple[str, ...] = ("outputs", "size", "resize", "interpolation", "mean", "std", "pixel_range")
    consumes += ("nms", "nms_iou", "score_threshold", "class_ids")

    def __init__(
        self,
        session: OnnxSession,
        *,
        layouts: Sequence[str] = (),
        outputs: Outputs = (),
        read: DetectorProtocol | None = None,
    ) -> None:
        super().__init__()
        self.session, self.layouts, self.read = session, tuple(layouts), read
        self.digest = session.digest  # by which records tell models apart
        self.numbers = ClassNumbers(read.layout.first if read is not None else 0)
        self._outputs = outputs  # of a grey image

    @property
    def coarse(self) -> bool:
        """Whether it computes with fewer than 32 bits, so that rounding shows in its answers."""
        return self.session.coarse

    @property
    def own_steps(self) -> dict[str, Any]:
        """What the detector itself does with an image and its outputs, for records."""
        read = self.read
        assert read is not None
        size = "as it is" if read.size is None else f"{read.size[0]}×{read.size[1]} {read.resize}, {read.interpolation}"
        kept = {"outputs": read.outputs, "nms": read.nms, "score_threshold": read.score_threshold}
        kept |= {"nms_iou": read.nms_iou} if read.nms != "none" else {}
        kept |= {"class_ids": read.class_ids} if read.class_ids is not None else {}
        return {"model_size": size, "mean": list(read.mean), "std": list(read.std), **kept}

    def configured(self, protocol: "EvalProtocol", pictures: Any) -> "OnnxDetector":
        """The detector as a protocol asks it about some pictures; says in a sentence what is missing."""
        category_ids = getattr(pictures, "category_ids", None)
        name = protocol.outputs or self._recognised(category_ids)
        check_choice("outputs", name, tuple(LAYOUTS))
        read = _read_protocol(name, self.session, protocol)
        made = OnnxDetector(self.session, layouts=self.layouts, outputs=self._outputs, read=read)
        if category_ids is not None:
            layout = read.layout
            parts = layout.parts(self._outputs)
            known = None if parts is None else layout.class_count(parts)
            made.numbers = class_numbers(category_ids, known=known, first=layout.first, asked=read.class_ids)
            made.read = replace(read, class_ids="ranks" if made.numbers.ids is None else "category-ids")
        return made

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Boxes, labels from 1 and scores of every image, perhaps masks."""
        if self.read is None:
            raise HoldfastError(
                f"{self.session.name} must be configured first: give it to holdfast.evaluate by its spec"
            )
        return [self._found(_as_bytes(image), images.device) for image in images]

    def _found(self, image: np.ndarray, device: torch.device) -> dict[str, Tensor]:
        read = self.read
        assert read is not None
        seen, placed = place_image(image, read.size, resize=read.resize, interpolation=read.interpolation)
        outputs = self.session.run(_normalised(seen, read), placed)
        try:
            found = self._decoded(outputs, placed)
            labels, known = self.numbers.labels(found.classes)
        except HoldfastError as error:
            raise HoldfastError(
                f"the outputs of {self.session.name} cannot be read as {read.outputs}: {error}"
            ) from error
        boxes = found.boxes if read.layout.image_pixels else placed.undo(found.boxes)
        boxes = placed.clip(boxes) if read.layout.clip else boxes
        answer = {"boxes": boxes[known], "labels": labels[known], "scores": found.scores[known]}
        if found.masks is not None:
            answer["masks"] = _image_masks(found.masks[known], placed)
        return {name: values.to(device) for name, values in answer.items()}

    def _decoded(self, outputs: Outputs, placed: Placement) -> Detections:
        read = self.read
        assert read is not None
        parts = read.layout.parts(outputs)
        if parts is None:
            raise HoldfastError(f"that is {read.layout.line}; got {described_outputs(list(outputs))}")
        _check_finite(parts)
        found = read.layout.decode(parts, placed.seen, read.score_threshold)
        return suppress(found, how=read.nms, iou=read.nms_iou)

    def _recognised(self, category_ids: Sequence[int] | None) -> str:
        """The layout that the outputs have; of DETR's two, the one whose number of classes is the data's."""
        fitting = list(self.layouts)
        if set(fitting) == {"yolov5", "yolov10"}:  # rows of six: a list of 300, or a grid of one class
            fitting = ["yolov10"] if self._outputs[0][1].shape[1] == 300 else fitting
        if set(fitting) == {"detr", "rt-detr"} and category_ids is not None:
            counts = (len(category_ids), max(category_ids) + 1)
            fitting = [name for name in fitting if _class_count(name, self._outputs) in counts] or fitting
        if len(fitting) == 1:
            return fitting[0]
        choices = fitting or list(LAYOUTS)
        raise HoldfastError(
            f"the outputs of {self.session.name} ({described_outputs(list(self._outputs)) or 'not known'}) can be "
            f"those of {'several' if fitting else 'no known'} layouts: name one with --outputs ({', '.join(choices)})"
        )


def _read_protocol(name: str, session: OnnxSession, asked: "EvalProtocol") -> DetectorProtocol:
    layout = LAYOUTS[name]
    given = (asked.size, asked.size) if isinstance(asked.size, int) else asked.size
    if given is not None and session.size not in (None, given):
        raise HoldfastError(
            f"size must be the {session.size[0]}×{session.size[1]} that the file fixes, got {asked.size}"
        )
    size = given or session.size
    resize = asked.resize or ("stretch" if layout.resize == "none" and size is not None else layout.resize)
    interpolation, nms = asked.interpolation or layout.interpolation, asked.nms or layout.suppression
    for word, value, known in (
        ("resize", resize, tuple(RESIZES)),
        ("interpolation", interpolation, INTERPOLATIONS),
        ("nms", nms, tuple(SUPPRESSIONS)),
        *([("class_ids", asked.class_ids, tuple(CLASS_IDS))] if asked.class_ids is not None else []),
    ):
        check_choice(word, value, known)
    if layout.image_pixels and resize == "letterbox":
        raise HoldfastError(f"resize must be stretch or none for {name}, whose files know no borders, got 'letterbox'")
    _check_said(layout, asked, size=size, resize=resize)
    mean, std = layout.normalisation or ((0.0,) * 3, (1.0,) * 3)
    return DetectorProtocol(
        name,
        None if resize == "none" else size,
        resize,
        interpolation,
        tuple(asked.mean) if asked.mean is not None else mean,
        tuple(asked.std) if asked.std is not None else std,
        nms,
        _share("nms_iou", asked.nms_iou, layout.iou),
        _share("score_threshold", asked.score_threshold, layout.least_score),
        asked.class_ids,
    )


def _check_said(layout: Layout, asked: "EvalProtocol", *, size: tuple[int, int] | None, resize: str) -> None:
    """Refuse to guess what neither the file nor the layout nor the caller says."""
    lacking = ["size"] if size is None and resize != "none" else []
    if layout.normalisation is None:
        lacking += [name for name in ("mean", "std") if getattr(asked, name) is None]
    if lacking:
        options = " and ".join(f"--{name}" for name in lacking)
        raise HoldfastError(
            f"the ONNX file does not define its {' and '.join(lacking)}: add {options} "
            "(for plain pixels, mean 0 0 0 and std 1 1 1)"
        )


def _share(name: str, given: float | None, usual: float) -> float:
    if given is not None and not 0 <= given <= 1:
        raise HoldfastError(f"{name} must lie in 0…1, got {given}")
    return usual if given is None else float(given)


def _class_count(name: str, outputs: Outputs) -> int | None:
    parts = LAYOUTS[name].parts(outputs)
    return None if parts is None else LAYOUTS[name].class_count(parts)


def _as_bytes(image: Tensor) -> np.ndarray:
    """An image (3, H, W) of [0,1] pixels, or of bytes, as bytes (H, W, 3)."""
    bytes_ = image if image.dtype == torch.uint8 else (image.detach() * 255).round_().clamp_(0, 255).to(torch.uint8)
    return np.ascontiguousarray(bytes_.permute(1, 2, 0).cpu().numpy())


def _normalised(image: np.ndarray, read: DetectorProtocol) -> np.ndarray:
    values = image.transpose(2, 0, 1).astype(np.float32, order="C")
    values /= 255
    if any(read.mean):
        values -= np.array(read.mean, np.float32)[:, None, None]
    if read.std != (1.0, 1.0, 1.0):
        values /= np.array(read.std, np.float32)[:, None, None]
    return values


def _check_finite(parts: Mapping[str, np.ndarray]) -> None:
    for name, values in parts.items():
        if not np.isfinite(values).all():
            raise HoldfastError(f"{name} must be numbers, got NaN or infinity; nothing was recorded for it")


def _image_masks(masks: Tensor, placed: Placement) -> Tensor:
    """Masks of what the model saw, at the image's size."""
    if placed.seen == placed.image or not len(masks):
        return masks if placed.seen == placed.image else masks.new_zeros(0, 1, *placed.image)
    (left, top), (across, down) = placed.offset, placed.scale
    height, width = (round(side * scale) for side, scale in zip(placed.image, (down, across), strict=True))
    own = masks[..., top : top + height, left : left + width]
    return interpolate(own, size=placed.image, mode="bilinear", align_corners=False)
