"""How a model wants its images, as options: the same for every command that asks a model."""

from argparse import Namespace
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol

ANSWERS = {"yes": True, "no": False}


def add_preprocessing(parser: ArgumentParser, *, preparation: bool = True) -> None:
    """The options of :class:`holdfast.EvalProtocol` that say how a model wants its images, and what it answers with."""
    parser.add_argument(
        "--size", help="side of the model's images, or HEIGHTxWIDTH such as 1024x2048 (default: the model's own)"
    )
    parser.add_argument("--mean", type=float, nargs=3, help="subtracted from pixels (default: the model's own)")
    parser.add_argument("--std", type=float, nargs=3, help="divides them then")
    parser.add_argument(
        "--pixel-range", type=int, default=1, help="255 if mean and std are of pixels from 0 to 255, not from 0 to 1"
    )
    parser.add_argument(
        "--probabilities",
        nargs="?",
        const="yes",
        help="yes or no: whether the model answers with them",
    )
    parser.add_argument("--window", type=int, help="look at large images by windows of this side (segmentation)")
    parser.add_argument("--stride", type=int, help="pixels from one window to the next (default: 3/4 of the window)")
    parser.add_argument(
        "--interpolation", help="of the resize: bilinear, bicubic, nearest, lanczos … (default: the model's own)"
    )
    parser.add_argument(
        "--crop-pct", type=float, help="share of the resized image that the crop keeps (default: the model's own)"
    )
    if preparation:
        parser.add_argument(
            "--preparation",
            default="model",
            help="model: clean images as the model prepares them; benchmark: all as the corruption benchmark does",
        )
    _add_dense(parser)


def _add_dense(parser: ArgumentParser) -> None:
    """What detectors and segmenters of other projects return, where their files do not tell."""
    parser.add_argument(
        "--outputs",
        help="of an ONNX detector: torchvision, paddle, yolov8, yolov5, yolov10, detr, rt-detr; of an ONNX segmenter: "
        "logits, labels (default: recognised)",
    )
    parser.add_argument(
        "--resize", help="to such a model's size: stretch, letterbox or none (default: as its project does it)"
    )
    parser.add_argument("--nms", help="after an ONNX detector: per-class, agnostic or none (default: likewise)")
    parser.add_argument("--nms-iou", type=float, help="overlap from which on a box is suppressed (default: likewise)")
    parser.add_argument(
        "--score-threshold", type=float, help="keep detections from this score on (default: likewise, at most 0.001)"
    )
    parser.add_argument(
        "--class-ids", help="ranks or category-ids: how an ONNX detector numbers its classes (default: by their number)"
    )


def protocol_of(arguments: Namespace, **other: Any) -> "EvalProtocol":
    """The protocol that the options ask for, with those of a command's own that are called like its fields."""
    from holdfast.evaluation.config import EvalProtocol

    given = {**vars(arguments), **other}
    given |= {"size": size_of(given.get("size")), "probabilities": _answer(given.get("probabilities"))}
    return EvalProtocol(**{each.name: given[each.name] for each in fields(EvalProtocol) if each.name in given})


def size_of(given: str | int | None) -> int | tuple[int, int] | None:
    """``448``, or ``1024x2048`` (height first)."""
    if given is None:
        return None
    sides = str(given).split("x")
    if len(sides) > 2 or not all(side.isdigit() for side in sides):
        raise HoldfastError(f"--size must be a number of pixels, or HEIGHTxWIDTH such as 1024x2048, got {given!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _answer(given: str | None) -> bool | None:
    if given is not None and given not in ANSWERS:
        raise HoldfastError(f"--probabilities must be yes or no, got {given!r}")
    return None if given is None else ANSWERS[given]
