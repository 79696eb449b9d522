"""Images at their own size: how dense tasks see them. They are corrupted as they are stored, labels untouched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import ModelInput, Pixels


@dataclass(frozen=True)
class NativeSize:
    """All steps between a picture and a segmenter.

    Attributes:
        preset: whose corruption parameters: ``any``, imagecorruptions' rules for arbitrary sizes.
        mean: subtracted from [0,1] pixels.
        std: divides them then.
        box: height and width that images are fitted into after corruption, their aspect kept (ACDC: 1024×2048); None
            leaves them as they are.
        window: height and width of sliding windows; None looks at whole images.
        stride: pixels from one window to the next.
        own_steps: what a segmenter of another project does with an image itself.
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
        """The steps for a source and a model."""
        box = getattr(source, "box", None)
        windows: dict[str, Any] = {"window": wanted.window, "stride": wanted.stride}
        return cls(preset, wanted.mean, wanted.std, box, **windows, own_steps=dict(wanted.own_steps))

    @property
    def size(self) -> tuple[int, int] | None:
        """Every image keeps its own."""
        return None

    def record(self) -> dict[str, Any]:
        """The steps as plain data."""
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
        """Always."""
        return True

    def named(self, way: str) -> list[str]:
        """None: all cells take the one way that the header names."""
        return []

    def clean(self, picture: Image.Image) -> Pixels:
        """As it is, fitted into the box."""
        return self.after(self.before(picture), corrupted=False)

    def before(self, picture: Image.Image) -> Pixels:
        """The picture as it is corrupted."""
        return np.array(picture.convert("RGB"))

    def before_sequence(self, picture: Image.Image, kind: str) -> Pixels:
        """Refused: sequences move the image, and labels do not follow."""
        raise HoldfastError("perturbation sequences move the image away from its labels: choose other suites")

    def after(self, image: Pixels, *, corrupted: bool) -> Pixels:
        """Fitted into the box, OpenCV's bilinear without antialiasing as released."""
        if self.box is None:
            return image
        ratio = min(max(self.box) / max(image.shape[:2]), min(self.box) / min(image.shape[:2]))
        height, width = (max(1, int(side * ratio + 0.5)) for side in image.shape[:2])
        same = (height, width) == image.shape[:2]
        return image if same else cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
