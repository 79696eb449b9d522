"""Preprocessing options (size, mean, std, windows …), shared by every command that runs a model."""

from argparse import Namespace
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.evaluation.config import EvalProtocol

ANSWERS = {"yes": True, "no": False}


def add_preprocessing(parser: ArgumentParser) -> None:
    """Add the options of :class:`holdfast.EvalProtocol` that describe a model's input and output."""
    parser.add_argument(
        "--size", help="input size in pixels, or HEIGHTxWIDTH such as 1024x2048 (default: the model's own)"
    )
    parser.add_argument("--mean", type=float, nargs=3, help="per-channel mean (default: the model's own)")
    parser.add_argument("--std", type=float, nargs=3, help="per-channel standard deviation (default: the model's own)")
    parser.add_argument(
        "--pixel-range", type=int, default=1, help="255 if mean and std refer to pixels from 0 to 255 instead of 0 to 1"
    )
    parser.add_argument(
        "--probabilities",
        nargs="?",
        const="yes",
        help="yes if the model returns probabilities, no if logits",
    )
    parser.add_argument("--window", type=int, help="side of the sliding windows for large images (segmentation)")
    parser.add_argument("--stride", type=int, help="stride of the sliding windows (default: 3/4 of the window)")
    parser.add_argument(
        "--interpolation",
        help="interpolation of the resize: bilinear, bicubic, nearest, lanczos … (default: the model's own)",
    )
    parser.add_argument("--crop-pct", type=float, help="ratio of crop size to resized size (default: the model's own)")
    parser.add_argument(
        "--preparation",
        default="model",
        help="model: clean images get the model's own transform; benchmark: all images get the corruption benchmark's",
    )


def protocol_of(arguments: Namespace, **other: Any) -> "EvalProtocol":
    """Build the protocol from the options whose names match its fields; ``other`` overrides them."""
    from holdfast.evaluation.config import EvalProtocol

    given = {**vars(arguments), **other}
    given |= {"size": size_of(given.get("size")), "probabilities": _answer(given.get("probabilities"))}
    return EvalProtocol(**{each.name: given[each.name] for each in fields(EvalProtocol) if each.name in given})


def size_of(given: str | int | None) -> int | tuple[int, int] | None:
    """Parse ``448`` or ``1024x2048`` (height first)."""
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
