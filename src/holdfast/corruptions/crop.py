"""Preprocessing of the published generators: resize and crop before a corruption."""

import numpy as np
from PIL import Image as Pillow

from holdfast.corruptions.filters import Image
from holdfast.corruptions.severities import preset_of
from holdfast.errors import HoldfastError
from holdfast.io.image_sizes import check_resized


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
