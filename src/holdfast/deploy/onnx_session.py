"""An ONNX file opened for single images: one image in, all outputs out, with whatever else the graph wants to know."""

from collections.abc import Callable
from typing import Any

import numpy as np

from holdfast.deploy.image_fitting import Placement
from holdfast.errors import HoldfastError, first_line

KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}

# inputs beside the image, by their names: PaddleDetection's, and the mask of transformers
_MORE: dict[str, Callable[[Placement], np.ndarray]] = {
    "scale_factor": lambda placed: np.array([placed.scale[::-1]], np.float32),
    "im_shape": lambda placed: np.array([placed.seen], np.float32),
    "pixel_mask": lambda placed: np.ones((1, *placed.seen), np.int64),
}


class OnnxSession:
    """A session of onnxruntime whose first picture-like input is the image.

    Attributes:
        name: of the file.
        digest: of its contents.
        size: height and width of the image, where the file fixes them.
        batch: how many images it takes at once, where the file fixes it.
    """

    def __init__(self, session: Any, *, name: str, digest: str) -> None:
        self._session, self.name, self.digest = session, name, digest
        self._image = image_input(session)
        sides = [fixed_size(side) for side in self._image.shape[-2:]]
        self.size: tuple[int, int] | None = (sides[0], sides[1]) if sides[0] and sides[1] else None
        self.batch = fixed_size(self._image.shape[0]) if len(self._image.shape) == 4 else None
        unknown = [one.name for one in session.get_inputs() if one.name not in (self._image.name, *_MORE)]
        if unknown:
            raise HoldfastError(
                f"{name} wants {', '.join(map(repr, unknown))} beside the image, which Holdfast does not know; it "
                f"knows {', '.join(_MORE)}"
            )

    @property
    def coarse(self) -> bool:
        """Whether it is fed half precision."""
        return "float16" in self._image.type

    def run(self, image: np.ndarray, placed: Placement) -> list[tuple[str, np.ndarray]]:
        """All outputs for one normalised image (3, H, W), by name; of a file with a fixed batch, for copies of it."""
        count = self.batch or 1
        values = image.astype(KINDS[self._image.type])
        fed = {self._image.name: values if len(self._image.shape) == 3 else _repeated(values[None], count)}
        for one in self._session.get_inputs():
            if one.name in _MORE:
                fed[one.name] = _repeated(_MORE[one.name](placed), fixed_size(one.shape[0]) or 1)
        try:
            outputs = self._session.run(None, fed)
        except Exception as error:  # onnxruntime has a class for every kind of failure
            reason = first_line(error)
            raise HoldfastError(
                f"{self.name} cannot look at images of {placed.seen[0]}×{placed.seen[1]} ({reason}); set size"
            ) from error
        return [(one.name, np.asarray(value)) for one, value in zip(self._session.get_outputs(), outputs, strict=True)]


def image_input(session: Any) -> Any:
    """The first input that takes a picture of three channels: (3, H, W) or (batch, 3, H, W), floating-point."""
    for one in session.get_inputs():
        shape = one.shape or []
        if len(shape) in (3, 4) and fixed_size(shape[-3]) in (None, 3) and one.type in KINDS and one.name not in _MORE:
            return one
    came = ", ".join(f"{one.type} {one.shape}" for one in session.get_inputs()) or "none"
    raise HoldfastError(f"a model must take images (batch, 3, height, width) of floating-point numbers, got {came}")


def fixed_size(side: Any) -> int | None:
    """A side that the file fixes."""
    return side if isinstance(side, int) and side > 0 else None


def described_outputs(outputs: list[tuple[str, np.ndarray]]) -> str:
    """Names, shapes and kinds of some outputs, for sentences."""
    return ", ".join(f"{name} {value.dtype} {tuple(value.shape)}" for name, value in outputs)


def _repeated(values: np.ndarray, count: int) -> np.ndarray:
    return np.repeat(values, count, axis=0) if count > 1 else values
