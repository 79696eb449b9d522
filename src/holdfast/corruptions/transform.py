"""`RandomCorruption`: a training transform that applies a corruption of random kind and severity."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image as Pillow

from holdfast.corruptions.apply import corrupt
from holdfast.corruptions.rng import StreamDraws
from holdfast.corruptions.severities import ALL, STANDARD, check_severity, kind_of, preset_of
from holdfast.errors import HoldfastError


class RandomCorruption:
    """Corrupt an image with probability p, with a kind and severity drawn at each call.

    Takes and returns a PIL image or a uint8 array, so it belongs before ``ToTensor`` in a torchvision or timm
    ``Compose``. Training on the test corruptions makes their scores meaningless: exclude the kinds that you evaluate
    on, or use the extra kinds.

    Without a generator it draws its seed from Python's ``random``, as timm's augmentations do, which torch's data
    loader seeds in each worker: a pipeline that seeds ``random`` per sample is reproducible. With a generator, or with
    ``seed=`` at a call, nothing else is read.
    """

    def __init__(
        self,
        kinds: str | Sequence[str] = STANDARD,
        severities: Sequence[int] = (1, 2, 3, 4, 5),
        *,
        p: float = 1.0,
        preset: str = "any",
        generator: np.random.Generator | None = None,
        textures: str | None = None,
    ) -> None:
        self.kinds = tuple(kind_of(name).name for name in ([kinds] if isinstance(kinds, str) else kinds))
        self.severities = tuple(check_severity(severity) for severity in severities)
        if not self.kinds or not self.severities:
            raise HoldfastError("kinds, severities: expected at least one of each, got none")
        if not 0 <= p <= 1:
            raise HoldfastError(f"p: expected a probability from 0 to 1, got {p!r}")
        self.p, self.preset, self.textures = p, preset_of(preset).name, textures
        self.generator = generator

    def __call__(self, image: Any, *, seed: int | None = None) -> Any:
        """The image, corrupted with probability p; PIL images of other modes are converted to RGB."""
        draws = self._generator(seed)
        if draws.random() >= self.p:
            return image
        kind = self.kinds[draws.integers(len(self.kinds))]
        severity = self.severities[draws.integers(len(self.severities))]
        pixels = np.asarray(image.convert("RGB")) if isinstance(image, Pillow.Image) else image
        result = corrupt(
            pixels,
            kind,
            severity=severity,
            preset=self.preset,
            rng=StreamDraws(draws),
            textures=self.textures,
        )
        return Pillow.fromarray(result) if isinstance(image, Pillow.Image) else result

    def __repr__(self) -> str:
        kinds = "all" if self.kinds == ALL else "standard" if self.kinds == STANDARD else ", ".join(self.kinds)
        return f"RandomCorruption({kinds}; severities {self.severities}, p={self.p:g}, preset={self.preset!r})"

    def _generator(self, seed: int | None) -> np.random.Generator:
        if seed is not None:
            return np.random.Generator(np.random.Philox(seed))
        if self.generator is not None:
            return self.generator
        return np.random.Generator(np.random.Philox(random.getrandbits(64)))
