"""Frost textures: the published photographs if available, else a procedural substitute that is named as such.

The photographs come without a licence, so they are never bundled: they are read from a folder that the user names
(``HOLDFAST_FROST`` or `use_textures`) or from an installed imagecorruptions wheel, and identified by their md5.
"""

import hashlib
import importlib.util
import math
import os
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.filters import Image
from holdfast.errors import HoldfastError
from holdfast.io.images import check_buffer

ENVIRONMENT = "HOLDFAST_FROST"

# a sixth photograph is distributed with these, but all published generators draw the index from five
TEXTURES = {
    "frost1.png": "6ead634ace1f366d77e87078b465863c",
    "frost2.png": "98f0d2b1d74a048d3bc9c7ecfd886939",
    "frost3.png": "b3ed8eb147824261888e730f916c0d8b",
    "frost4.jpg": "d70b9d6aa0b1fe7bd8133b113787e078",
    "frost5.jpg": "50984ae2c871b7df2c28f1d71ca460a0",
}
PROCEDURAL = "procedural"
LARGEST_KEPT = 2**23  # pixels of an enlarged texture that is cached for the next image


def texture(number: int, shape: tuple[int, int], scale: float | None, folder: str | None = None) -> Image:
    """Texture 0 to 4, scaled for an image of this shape: by ``scale``, or by imagecorruptions' rule if that is None."""
    source = texture_source(folder)
    original = _load(source, number)
    if scale is None:
        factor = 1.1 * max(1.0, shape[0] / original.shape[0], shape[1] / original.shape[1])
        pixels = math.ceil(original[..., 0].size * factor**2)
        check_buffer("frost", shape, pixels)
        return _enlarge_texture(source, number, factor) if pixels <= LARGEST_KEPT else _enlarge(source, number, factor)
    return original if scale == 1 else _reduce_texture(source, number, scale)


def texture_source(folder: str | None = None) -> str:
    """The folder the photographs are read from, or ``procedural``."""
    named = folder or os.environ.get(ENVIRONMENT)
    if named == PROCEDURAL:
        return PROCEDURAL
    if named:
        _check(Path(named))
        return named
    return _installed_textures()


def recorded_name(kind: str, folder: str | None = None) -> str:
    """The name of a kind in records: ``frost(procedural)`` if the photographs are not available."""
    return f"frost({PROCEDURAL})" if kind == "frost" and texture_source(folder) == PROCEDURAL else kind


@lru_cache(maxsize=1)
def _installed_textures() -> str:
    spec = importlib.util.find_spec("imagecorruptions")  # finds the folder without importing the package
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "frost"
        if not _wrong_files(folder):
            return str(folder)
    return PROCEDURAL


def _check(folder: Path) -> None:
    wrong = _wrong_files(folder)
    if wrong:
        raise HoldfastError(
            f"frost textures: expected the published {', '.join(wrong)} in {folder}, found none or other files: "
            "name another folder, or none for the procedural textures"
        )


@lru_cache(maxsize=8)
def _wrong_files(folder: Path) -> tuple[str, ...]:
    def right(name: str, digest: str) -> bool:
        path = folder / name
        return path.is_file() and hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == digest

    return tuple(name for name, digest in TEXTURES.items() if not right(name, digest))


@lru_cache(maxsize=10)
def _load(source: str, number: int) -> Image:
    if source == PROCEDURAL:
        ice = procedural(number)
    else:
        ice = cv2.cvtColor(cv2.imread(str(Path(source) / list(TEXTURES)[number]), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    ice.flags.writeable = False
    return ice


def _enlarge(source: str, number: int, scale: float) -> Image:
    """imagecorruptions' rule: bicubic, to the next whole number of pixels."""
    original = _load(source, number)
    size = (math.ceil(original.shape[1] * scale), math.ceil(original.shape[0] * scale))
    ice = cv2.resize(original, size, interpolation=cv2.INTER_CUBIC)
    ice.flags.writeable = False
    return ice


_enlarge_texture = lru_cache(maxsize=10)(_enlarge)


@lru_cache(maxsize=10)
def _reduce_texture(source: str, number: int, scale: float) -> Image:
    ice = cv2.resize(_load(source, number), (0, 0), fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
    ice.flags.writeable = False
    return ice


def procedural(number: int) -> Image:
    """Our procedural texture, 600×900: layers of crystal needles on clouded glass. Not the published corruption."""
    shape = (600, 900)
    generator = np.random.Generator(np.random.Philox(key=[2019, number]))
    light, spread = _STAND_INS[number]
    pane = light + 0.4 * spread * _clouds(generator, shape, 1.8)
    for length in (90, 45, 20):
        needles = _needles(generator, shape, length) - 128.0
        pane += spread / 60 * cv2.GaussianBlur(needles, (0, 0), length / 60)
    tint = np.array([0.9, 0.97, 1.03], np.float32)
    return np.clip(pane[..., None] * tint, 0, 255).astype(np.uint8)


_STAND_INS = ((130, 32), (190, 24), (205, 22), (150, 28), (115, 36))  # brightness and contrast, as varied as real frost


def _needles(generator: np.random.Generator, shape: tuple[int, int], length: int) -> NDArray[np.float64]:
    """Thin triangles in stars around random points, each star of its own brightness."""
    canvas = np.full(shape, 128, np.uint8)
    stars = shape[0] * shape[1] * 2 // length**2
    centre = generator.uniform((0, 0), shape[::-1], (stars, 2))[:, None]
    angle = generator.uniform(0, 2 * np.pi, (stars, 6))
    along = length * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    tip = centre + along * generator.uniform(0.4, 1, (stars, 6, 1))
    side = along[..., ::-1] * (-1, 1) / 14
    corners = (16 * np.stack([centre - side, tip, centre + side], axis=2)).astype(np.int32)
    greys = np.clip(128 + 50 * generator.standard_normal(stars), 0, 255)
    for star, grey in zip(corners, greys.tolist(), strict=True):
        for needle in star:
            cv2.fillConvexPoly(canvas, needle, grey, cv2.LINE_AA, shift=4)
    return canvas.astype(np.float64)


def _clouds(generator: np.random.Generator, shape: tuple[int, int], slope: float) -> NDArray[np.float32]:
    """Periodic noise with spectrum 1/f^slope, mean 0, standard deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])[None])
    frequency[0, 0] = 1
    spectrum = np.fft.rfft2(generator.standard_normal(shape)) / frequency**slope
    spectrum[0, 0] = 0
    noise = np.fft.irfft2(spectrum, s=shape)
    return (noise / noise.std()).astype(np.float32)
