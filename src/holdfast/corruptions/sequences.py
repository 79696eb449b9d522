"""Perturbation sequences of ImageNet-P, Tiny-ImageNet-P and CIFAR-P, for measuring the stability of predictions.

Hendrycks & Dietterich 2019. Ten kinds are the test set; snow is among them and spatter is not, although the authors'
CIFAR-P script averages spatter in its place. The released ImageNet-P sequences are lossy videos; these frames are not.
Rotation, scaling and shear follow torchvision, whose versions differ; see `holdfast.corruptions.geometry`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.corruptions import blur, noise, weather
from holdfast.corruptions.apply import Rng, check_image, source_of_draws
from holdfast.corruptions.filters import Image
from holdfast.corruptions.geometry import rotate, scale_image, shear, tilt, translate
from holdfast.corruptions.rng import Draws
from holdfast.errors import HoldfastError, nearest
from holdfast.io.images import check_buffer

Frames = NDArray[np.uint8]  # F H W 3

TEST_SEQUENCES = (
    "gaussian_noise",
    "shot_noise",
    "motion_blur",
    "zoom_blur",
    "snow",
    "brightness",
    "translate",
    "rotate",
    "tilt",
    "scale",
)
EXTRA_SEQUENCES = ("speckle_noise", "gaussian_blur", "spatter", "shear")
SEQUENCES = TEST_SEQUENCES + EXTRA_SEQUENCES
NOISE_SEQUENCES = (
    "gaussian_noise",
    "shot_noise",
    "speckle_noise",
)  # compared with frame 0; three levels
GEOMETRIC_SEQUENCES = ("translate", "rotate", "tilt", "scale", "shear")


@dataclass(frozen=True)
class SequencePreset:
    """One benchmark: the side of its frames, the short side of the image before the crop (None: no crop), its rows."""

    name: str
    side: int
    uncropped: int | None
    rows: dict[str, dict[str, Any]] = field(repr=False)


_IMAGENET: dict[str, dict[str, Any]] = {
    "gaussian_noise": {"frames": 31, "levels": (0.03, 0.05, 0.08)},
    "shot_noise": {"frames": 31, "levels": (300, 120, 60)},
    "motion_blur": {"frames": 31, "radius": 10, "sigma": 3, "step": 4, "last": 30},
    "zoom_blur": {"frames": 31, "step": 0.004},
    "snow": {"frames": 31, "loc": 0.05, "scale": 0.3, "zoom": 3, "radius": 14, "sigma": 4},
    "brightness": {"frames": 31, "step": 0.02},
    "translate": {"frames": 41, "first": -20},
    "rotate": {"frames": 31},
    "tilt": {"frames": 31, "step": 1.0},
    "scale": {"frames": 31, "first": 0.40, "step": 0.025},
    "speckle_noise": {"frames": 31, "levels": (0.05, 0.10, 0.15)},
    "gaussian_blur": {"frames": 31, "first": 0.25, "step": 0.035, "truncate": 6.0},
    "spatter": {
        "frames": 31,
        "loc": 0.65,
        "scale": 0.27,
        "sigma": 3.7,
        "threshold": 0.69,
        "flow": (0.05, 0.1, 0.15, 0.7),
    },
    "shear": {"frames": 31},
}

_TINY = _IMAGENET | {
    "gaussian_noise": {"frames": 31, "levels": (0.025, 0.05, 0.075)},
    "shot_noise": {"frames": 31, "levels": (500, 250, 125)},
    "motion_blur": {"frames": 31, "radius": 14, "sigma": 3, "step": 5, "last": 30},
    "snow": {"frames": 31, "loc": 0.05, "scale": 0.28, "zoom": 2, "radius": 10, "sigma": 2.5},
    "translate": {"frames": 31, "first": -15},
    "gaussian_blur": {"frames": 31, "first": 0.35, "step": 0.014, "truncate": 7.0},
    "spatter": {"frames": 31, "loc": 0.6, "scale": 0.25, "sigma": 1.75, "threshold": 0.7, "flow": (0.2, 0.8)},
}

_CIFAR = _IMAGENET | {
    "gaussian_noise": {"frames": 31, "levels": (0.02, 0.04, 0.06)},
    "shot_noise": {"frames": 31, "levels": (700, 400, 200)},
    "motion_blur": {"frames": 21, "radius": 6, "sigma": 1.8, "step": 9, "last": 20},
    "snow": {"frames": 31, "loc": 0.05, "scale": 0.3, "zoom": 2, "radius": 10, "sigma": 2},
    "brightness": {"frames": 31, "step": 0.015},
    "translate": {"frames": 16, "first": -7},
    "tilt": {"frames": 31, "step": 0.75},
    "scale": {"frames": 31, "first": 0.70, "step": 0.02},
    "speckle_noise": {"frames": 31, "levels": (0.05, 0.07, 0.10)},
    "gaussian_blur": {"frames": 31, "first": 0.3, "step": 0.015, "truncate": 7.0},
    "spatter": {"frames": 31, "loc": 0.6, "scale": 0.265, "sigma": 1.75, "threshold": 0.7, "flow": (0.2, 0.8)},
}

SEQUENCE_PRESETS = {
    preset.name: preset
    for preset in (
        SequencePreset("imagenet", 224, 256, _IMAGENET),
        SequencePreset("tiny", 64, None, _TINY),
        SequencePreset("cifar", 32, None, _CIFAR),
    )
}


def perturb(image: Image, kind: str, *, preset: str = "imagenet", level: int = 1, rng: Rng = None) -> Frames:
    """The frames of one sequence, F×H×W×3.

    ImageNet-P takes an image with a short side of 256 and returns frames of 224: geometric kinds transform it and then
    crop, so that real content enters at the borders; all others crop first. Tiny and CIFAR take and return 64 and 32,
    except that Tiny's motion blur takes a larger image and downsamples it afterwards. ``level`` 1 to 3 is for noise;
    harder levels of the other kinds are frames further apart.
    """
    row, chosen = _row(kind, preset, level), SEQUENCE_PRESETS[preset]
    picture = check_image(image)
    _check_size(picture, kind, chosen)
    draws = source_of_draws(rng, f"{kind} sequence", level)
    if chosen.uncropped and kind not in GEOMETRIC_SEQUENCES:
        picture = np.ascontiguousarray(_crop(picture, chosen.side))
    check_buffer(kind, picture.shape, row["frames"] * picture[..., 0].size, what=f"pixels of {row['frames']} frames")
    frames = _MAKERS[kind](picture, draws, level=level, **row)
    if frames.shape[1] != chosen.side and not chosen.uncropped:
        return np.stack([_resize_frame(frame, chosen.side) for frame in frames])
    return np.ascontiguousarray(_crop(frames, chosen.side))


def frame_count(kind: str, *, preset: str = "imagenet") -> int:
    """The number of frames of a sequence."""
    return int(_row(kind, preset, 1)["frames"])


def _row(kind: str, preset: str, level: int) -> dict[str, Any]:
    if preset not in SEQUENCE_PRESETS:
        raise HoldfastError(f"preset: expected one of {', '.join(SEQUENCE_PRESETS)}, got {preset!r}")
    if kind not in SEQUENCES:
        hint = nearest(kind, SEQUENCES) or "; expected one of " + ", ".join(SEQUENCES)
        raise HoldfastError(f"kind: unknown sequence {kind!r}{hint}")
    levels = (1, 2, 3) if kind in NOISE_SEQUENCES else (1,)
    if level not in levels:
        raise HoldfastError(f"level: expected {' or '.join(map(str, levels))} for {kind}, got {level!r}")
    return SEQUENCE_PRESETS[preset].rows[kind]


def _check_size(image: Image, kind: str, preset: SequencePreset) -> None:
    height, width = image.shape[:2]
    if preset.name == "tiny" and kind == "motion_blur":
        wrong, expected = min(height, width) < preset.side, f"at least {preset.side} pixels on each side"
    elif preset.uncropped:
        wrong, expected = min(height, width) != preset.uncropped, f"a short side of {preset.uncropped} pixels"
    else:
        wrong, expected = (height, width) != (preset.side, preset.side), f"{preset.side}×{preset.side}"
    if wrong:
        raise HoldfastError(f"image: {preset.name} sequences of {kind} expect {expected}, got {height}×{width}")


def _crop(values: NDArray[Any], side: int) -> NDArray[Any]:
    height, width = values.shape[-3:-1]
    top, left = round((height - side) / 2), round((width - side) / 2)
    return values[..., top : top + side, left : left + side, :]


def _resize_frame(frame: Image, side: int) -> Image:
    return np.array(Pillow.fromarray(frame).resize((side, side), Pillow.Resampling.BILINEAR))


def _noise(function: Callable[..., Frames], parameter: str) -> Callable[..., Frames]:
    def frames_of(image: Image, draws: Draws, *, frames: int, levels: tuple[float, ...], level: int) -> Frames:
        noisy = [function(image[None], [draws], **{parameter: levels[level - 1]})[0] for _ in range(frames - 1)]
        return np.stack([image, *noisy])

    return frames_of


def _motion_blur(
    image: Image, _draws: Draws, *, frames: int, radius: int, sigma: float, step: float, last: int, level: int
) -> Frames:
    angles = [step * (number - last) for number in range(frames)]
    return np.stack([blur.motion_at(image, angle, radius=radius, sigma=sigma) for angle in angles])


def _zoom_blur(image: Image, _draws: Draws, *, frames: int, step: float, level: int) -> Frames:
    """Means of more and more scalings; unlike ImageNet-C's zoom blur, which crops and aligns corners."""
    layers, result = image.astype(np.uint16), [image]
    for number in range(1, frames):
        layers += scale_image(image, 1 + step * number)
        result.append((layers // np.uint16(number + 1)).astype(np.uint8))
    return np.stack(result)


def _snow(
    image: Image,
    draws: Draws,
    *,
    frames: int,
    loc: float,
    scale: float,
    zoom: float,
    radius: int,
    sigma: float,
    level: int,
) -> Frames:
    layer = weather.snow_layer(image.shape[:2], draws, loc=loc, scale=scale, zoom=zoom, trimmed=True)
    result = []
    for number in range(frames):
        angle = 4.0 * number - 150
        flakes = weather.snowflakes(layer, angle, threshold=0.5, radius=radius, sigma=sigma, eight_bit=True)
        both = cv2.add(flakes, cv2.rotate(flakes, cv2.ROTATE_180), dtype=cv2.CV_32F)
        result.append(weather.add_snow(image, both, mix=0.85))
    return np.stack(result)


def _brightness(image: Image, draws: Draws, *, frames: int, step: float, level: int) -> Frames:
    shifts = [step * (number - frames // 2) for number in range(frames)]
    return np.concatenate([weather.brightness(image[None], [draws], shift=shift) for shift in shifts])


def _gaussian_blur(
    image: Image, draws: Draws, *, frames: int, first: float, step: float, truncate: float, level: int
) -> Frames:
    sigmas = [first + step * number for number in range(frames)]
    return np.concatenate([blur.gaussian_blur(image[None], [draws], sigma=s, truncate=truncate) for s in sigmas])


def _spatter(
    image: Image,
    draws: Draws,
    *,
    frames: int,
    loc: float,
    scale: float,
    sigma: float,
    threshold: float,
    flow: tuple[float, ...],
    level: int,
) -> Frames:
    layer = weather.drops(image.shape[:2], draws, loc=loc, scale=scale, sigma=sigma, threshold=threshold)
    result = []
    for _ in range(frames):
        result.append(weather.add_water(image, layer, gain=0.6))
        layer = convolve_columns(layer, flow)
    return np.stack(result)


def convolve_columns(layer: NDArray[np.float32], flow: tuple[float, ...]) -> NDArray[np.float32]:
    """Convolve each column with the filter at the same length: water runs down by one or two pixels per frame."""
    columns = [np.convolve(column, flow, mode="same") for column in layer.T]
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float32)


def _translate(image: Image, _draws: Draws, *, frames: int, first: int, level: int) -> Frames:
    return np.stack([translate(image, first + number) for number in range(frames)])


def _rotate(image: Image, _draws: Draws, *, frames: int, level: int) -> Frames:
    return np.stack([rotate(image, number - frames // 2) for number in range(frames)])


def _shear(image: Image, _draws: Draws, *, frames: int, level: int) -> Frames:
    return np.stack([shear(image, number - frames // 2) for number in range(frames)])


def _tilt(image: Image, _draws: Draws, *, frames: int, step: float, level: int) -> Frames:
    return np.stack([tilt(image, step * (number - frames // 2)) for number in range(frames)])


def _scale(image: Image, _draws: Draws, *, frames: int, first: float, step: float, level: int) -> Frames:
    return np.stack([scale_image(image, first + step * number) for number in range(frames)])


_MAKERS: dict[str, Callable[..., Frames]] = {
    "gaussian_noise": _noise(noise.gaussian_noise, "sigma"),
    "shot_noise": _noise(noise.shot_noise, "photons"),
    "speckle_noise": _noise(noise.speckle_noise, "sigma"),
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "brightness": _brightness,
    "gaussian_blur": _gaussian_blur,
    "spatter": _spatter,
    "translate": _translate,
    "rotate": _rotate,
    "shear": _shear,
    "tilt": _tilt,
    "scale": _scale,
}
