"""`corrupt` for one image, `corrupt_batch` for many images with ids, and `prepare` for what generators do first."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from holdfast.corruptions import blur, c_bar_noise, c_bar_occlusions, c_bar_warps, digital, noise, weather
from holdfast.corruptions.filters import STRIP_VALUES, Image, Images, stack_arrays
from holdfast.corruptions.rng import Draws, StreamDraws, keyed
from holdfast.corruptions.severities import MIN_SIDE, PUBLISHED, Preset, check_severity, kind_of, parameters, preset_of
from holdfast.errors import HoldfastError
from holdfast.io.images import ImageSizeError, check_resized

LARGEST_SIDE = 2**15 - 2  # OpenCV's remap takes places of 16 bits and no side of 32767
FUNCTIONS: dict[str, Callable[..., Images]] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise,
        noise.shot_noise,
        noise.impulse_noise,
        noise.speckle_noise,
        blur.defocus_blur,
        blur.glass_blur,
        blur.motion_blur,
        blur.zoom_blur,
        blur.gaussian_blur,
        weather.snow,
        weather.frost,
        weather.fog,
        weather.brightness,
        weather.spatter,
        digital.contrast,
        digital.elastic_transform,
        digital.pixelate,
        digital.jpeg_compression,
        digital.saturate,
        c_bar_noise.blue_noise_sample,
        c_bar_noise.plasma_noise,
        c_bar_occlusions.checkerboard_cutout,
        c_bar_noise.cocentric_sine_waves,
        c_bar_noise.single_frequency_greyscale,
        c_bar_noise.brownish_noise,
        c_bar_noise.perlin_noise,
        c_bar_occlusions.sparkles,
        c_bar_occlusions.inverse_sparkles,
        c_bar_warps.caustic_refraction,
        c_bar_warps.circular_motion_blur,
        c_bar_occlusions.lines,
        c_bar_warps.pinch_and_twirl,
        c_bar_warps.ripple,
        c_bar_warps.transverse_chromatic_abberation,
    )
}

Rng = Draws | np.random.Generator | int | None


def corrupt(
    image: NDArray[np.uint8],
    kind: str,
    *,
    severity: int = 1,
    preset: str = "any",
    rng: Rng = None,
    textures: str | None = None,
) -> Image:
    """Corrupt one uint8 image (H×W×3, RGB; grey is expanded) and return a new one.

    For the kinds and severities see `holdfast.corruptions.severities`. ``rng`` is a seed, a NumPy generator or a source
    of draws such as `keyed(seed, image_id, kind, severity)`; None uses fresh entropy. A seed alone gives every image
    the same draws: use `corrupt_batch` or `keyed` for many images. ``textures`` is the folder of the frost photographs.
    """
    entry = _bind_parameters(kind, severity, preset, textures)
    return entry(check_image(image, preset)[None], [source_of_draws(rng, kind, check_severity(severity))])[0]


def corrupt_batch(
    images: Sequence[NDArray[np.uint8]] | NDArray[np.uint8],
    kind: str,
    *,
    ids: Sequence[str | int],
    severity: int = 1,
    preset: str = "any",
    seed: int = 0,
    textures: str | None = None,
) -> list[Image]:
    """Corrupt many images, each with draws keyed by (seed, image id, kind, severity).

    The result for an image does not depend on its batch, or on the order, workers or processes.
    """
    if len(images) != len(ids):
        raise HoldfastError(f"ids: expected one per image, {len(images)} in all, got {len(ids)}")
    entry, severity = _bind_parameters(kind, severity, preset, textures), check_severity(severity)
    ready = [check_image(image, preset) for image in images]
    named = [str(name) for name in ids] if kind_of(kind).random else [""]
    sources: list[Draws] = [keyed(seed, name, kind, severity) for name in named]
    sources *= len(ready) // len(sources) if sources else 0  # kinds without randomness share one source
    results: list[Image] = []
    for part in _stacks(ready):
        results.extend(entry(stack_arrays(ready[part]), sources[part]))
    return results


def _stacks(images: list[Image]) -> Iterator[slice]:
    """Runs of images of one size, as many as fit into the cache together; large images one by one."""
    start = 0
    while start < len(images):
        stop, limit = start + 1, start + max(1, STRIP_VALUES // images[start].size)
        while stop < min(limit, len(images)) and images[stop].shape == images[start].shape:
            stop += 1
        yield slice(start, stop)
        start = stop


def check_image(image: NDArray[Any], preset: str = "any") -> Image:
    """The image as contiguous H×W×3 uint8; raises an error if it cannot be corrupted."""
    if not isinstance(image, np.ndarray):
        raise HoldfastError(f"image: expected a NumPy array of uint8, H×W×3, got {type(image).__name__}")
    if image.dtype != np.uint8:
        raise HoldfastError(f"image: expected uint8 with values 0 to 255, got {image.dtype}")
    grey = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 1)
    if not grey and (image.ndim != 3 or image.shape[2] != 3):
        raise HoldfastError(f"image: expected H×W×3 (RGB) or H×W (grey), got shape {image.shape}")
    _check_size(image.shape[0], image.shape[1], preset_of(preset))
    if grey:
        return cv2.merge([np.ascontiguousarray(image.reshape(image.shape[:2]))] * 3)
    return np.ascontiguousarray(image)


def _check_size(height: int, width: int, preset: Preset) -> None:
    if preset.side is not None and (height, width) != (preset.side, preset.side):
        raise HoldfastError(
            f"image: preset {preset.name!r} is defined for {preset.side}×{preset.side}, got {height}×{width}; "
            "use preset 'any' for other sizes"
        )
    if min(height, width) < MIN_SIDE:
        raise ImageSizeError(f"image: expected at least {MIN_SIDE} pixels on each side, got {height}×{width}")
    if max(height, width) > LARGEST_SIDE or height * width >= 2**29:  # indices must fit 31 bits
        raise ImageSizeError(
            f"image: expected at most {LARGEST_SIDE} pixels on each side and 2^29 in all, got {height}×{width}"
        )


def _bind_parameters(
    kind: str, severity: int, preset: str, textures: str | None
) -> Callable[[Images, list[Draws]], Images]:
    kind_of(kind)
    values = parameters(kind, severity, preset=preset)
    if kind == "frost":
        values["textures"] = textures
    function = FUNCTIONS[kind]
    if kind in PUBLISHED:
        return lambda images, draws: function(images, draws, **values)
    return lambda images, draws: _same_form(function(images, draws, **values), images, kind=kind)


def _same_form(result: Any, images: Images, *, kind: str) -> Images:
    """The result of a registered corruption; raises an error unless it has the images' shape and type."""
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or result.shape != images.shape:
        got = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
        raise HoldfastError(f"{kind} must return uint8 images of the input's shape {images.shape}, got {got}")
    return result


def source_of_draws(rng: Rng, kind: str, severity: int) -> Draws:
    """The argument ``rng`` as a source of draws."""
    if rng is None:
        return StreamDraws(np.random.default_rng())
    if isinstance(rng, np.random.Generator):
        return StreamDraws(rng)
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        return keyed(int(rng), "", kind, severity)
    if isinstance(rng, Draws):
        return rng
    raise HoldfastError(f"rng: expected a seed, a NumPy generator or a source of draws, got {type(rng).__name__}")


def prepare(picture: Pillow.Image, preset: str = "any") -> Image:
    """The image as RGB bytes, resized and cropped to the preset's size.

    ImageNet-C: short side to 256, centre crop 224. Inception: centre 87.5 % to 299. Tiny: the whole image to 64, as in
    ImageNet-64-C. Bilinear. ``cifar`` and ``any`` keep the size, and so does every preset if it is already right.
    """
    if picture.mode in ("I", "F") or picture.mode.startswith("I;"):  # decoders convert these, see holdfast.io.images
        raise HoldfastError(f"image: expected 8 bits per channel, got mode {picture.mode!r}")
    side, rgb = preset_of(preset).side, picture if picture.mode == "RGB" else picture.convert("RGB")
    if side is None or preset == "cifar" or rgb.size == (side, side):
        return np.array(rgb)
    if preset == "imagenet":
        scale = 256 / min(rgb.size)
        width, height = (max(256, int(length * scale)) for length in rgb.size)
        check_resized(rgb.size, (width, height))
        rgb = _centre(rgb.resize((width, height), Pillow.Resampling.BILINEAR), side, side)
    elif preset == "inception":
        rgb = _centre(rgb, *(round(0.875 * length) for length in rgb.size))
    return np.array(rgb.resize((side, side), Pillow.Resampling.BILINEAR))


def _centre(picture: Pillow.Image, width: int, height: int) -> Pillow.Image:
    left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
    return picture.crop((left, top, left + width, top + height))
