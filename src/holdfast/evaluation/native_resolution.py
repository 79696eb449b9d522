"""Preprocessing at native resolution for dense tasks: images are corrupted as stored, and labels stay untouched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from PIL import Image

from holdfast._deprecated import renamed_method
from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import ModelInput, Pixels


@dataclass(frozen=True)
class NativeSize:
    """Preprocessing of a segmenter's images, at their native resolution.

    Attributes:
        preset: preset of the corruption parameters; ``any`` follows imagecorruptions' rules for arbitrary sizes.
        mean: per-channel mean of [0,1] pixels.
        std: per-channel standard deviation of [0,1] pixels.
        box: height and width that corrupted images are fitted into, keeping the aspect ratio (ACDC: 1024×2048); None
            keeps their size.
        window: height and width of the sliding window; None for whole images.
        stride: stride of the sliding window in pixels.
        own_steps: the preprocessing inside another project's segmenter, as plain data.
    """

    preset: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    box: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    stride: int | None = None
    own_steps: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any, wanted: ModelInput, *, preset: str) -> "NativeSize":
        """Build the preprocessing for a data source and a model."""
        box = getattr(source, "box", None)
        windows: dict[str, Any] = {"window": wanted.window, "stride": wanted.stride}
        return cls(preset, wanted.mean, wanted.std, box, **windows, own_steps=dict(wanted.own_steps))

    @property
    def size(self) -> tuple[int, int] | None:
        """None, because every image keeps its own size."""
        return None

    def record(self) -> dict[str, Any]:
        """The preprocessing as plain data, for the header of the records."""
        fitted = f"fitted into {self.box[0]}×{self.box[1]}, bilinear; logits resampled back" if self.box else "as it is"
        whole = "whole images, one at a time"
        windows = (
            f"windows of {self.window[0]}×{self.window[1]}, stride {self.stride}, mean logits" if self.window else ""
        )
        return {
            "protocol": "the image as it is stored",
            "after_corruption": "nothing",
            "model_size": fitted,
            "inference": windows or whole,
            "mean": list(self.mean),
            "std": list(self.std),
            **self.own_steps,
        }

    @property
    def same_for_clean(self) -> bool:
        """True: clean images go through the same preprocessing as corrupted ones."""
        return True

    def cell_steps(self, way: str) -> list[str]:
        """An empty list, because all cells share the preprocessing in the header."""
        return []

    def clean(self, picture: Image.Image) -> Pixels:
        """The model's input of an uncorrupted picture, fitted into the box."""
        return self.to_model(self.to_protocol(picture), corrupted=False)

    def to_protocol(self, picture: Image.Image) -> Pixels:
        """The picture at native resolution, to which corruptions are applied."""
        return np.array(picture.convert("RGB"))

    def to_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """Raise an error: perturbation sequences move the image away from its label map."""
        raise HoldfastError("perturbation sequences move the image away from its labels: choose other suites")

    def to_model(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """Fit the image into the box, with OpenCV's bilinear resize without antialiasing as in the released code."""
        if self.box is None:
            return image
        ratio = min(max(self.box) / max(image.shape[:2]), min(self.box) / min(image.shape[:2]))
        # half rounds up, as in mmcv.imrescale; Python's round() would round half to even
        height, width = (max(1, int(side * ratio + 0.5)) for side in image.shape[:2])
        same = (height, width) == image.shape[:2]
        return image if same else cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)

    before = renamed_method("before", "to_protocol")
    before_sequence = renamed_method("before_sequence", "to_sequence")
    after = renamed_method("after", "to_model")
