"""Weather corruptions: snow, frost, fog, brightness and spatter."""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.filters import (
    FLAT_STAYS,
    Field,
    Image,
    Images,
    each,
    motion,
    smooth,
    stack_arrays,
    stack_rows,
    stretch,
    strips,
    swap_rows_and_columns,
    to_bytes,
    zoom_map,
    zoom_window,
)
from holdfast.corruptions.frost_textures import texture
from holdfast.corruptions.rng import Draws
from holdfast.io.images import check_buffer

_WATER = np.array([175, 238, 238], np.float32)
_MUD = np.array([63, 42, 20], np.float32)
LARGE_MAP = 1024  # cells on a side from which a fog map is refined in strips: 8192×8192 takes 0.6 GB instead of 0.9
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)


def snow(
    images: Images,
    draws: Sequence[Draws],
    *,
    loc: float,
    scale: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    mix: float,
    eight_bit: bool = False,
) -> Images:
    """Whitened image plus a motion-blurred layer of flakes and the same layer rotated by 180°.

    ImageNet-C; draws the layer, then the angle. ``eight_bit``: the layer is truncated to bytes before and after the
    motion blur, as in the generators that used ImageMagick; otherwise it is rounded after the blur and then cropped to
    the image's size, as in imagecorruptions.
    """
    height, width = images.shape[1:3]
    flakes = []
    for source in draws:
        layer = snow_layer((height, width), source, loc=loc, scale=scale, zoom=zoom, trimmed=eight_bit)
        angle = float(source.uniform(-135, -45))
        blurred = snowflakes(layer, angle, threshold=threshold, radius=radius, sigma=sigma, eight_bit=eight_bit)
        seen = blurred[:height, :width]
        flakes.append(cv2.add(seen, cv2.rotate(seen, cv2.ROTATE_180), dtype=cv2.CV_32F))
    return add_snow(stack_rows(images), np.concatenate(flakes), mix=mix).reshape(images.shape)


def snow_layer(shape: tuple[int, ...], draws: Draws, *, loc: float, scale: float, zoom: float, trimmed: bool) -> Field:
    """Normal values, zoomed. Only the centre is visible, so only literal sources draw the rest."""
    (top, rows), (left, columns) = zoom_window(shape[0], zoom), zoom_window(shape[1], zoom)
    seen = (slice(top, top + rows), slice(left, left + columns))
    layer = draws.normal(shape)[seen] if draws.literal else draws.normal((rows, columns))
    layer = (loc + scale * layer).astype(np.float32, copy=False)
    if zoom == 1:
        return layer
    wide = stretch(swap_rows_and_columns(layer), *zoom_map(shape[1], zoom, trimmed=trimmed))
    return stretch(swap_rows_and_columns(wide), *zoom_map(shape[0], zoom, trimmed=trimmed))


def snowflakes(layer: Field, angle: float, *, threshold: float, radius: int, sigma: float, eight_bit: bool) -> Image:
    """Flakes above the threshold, blurred along the angle, as bytes."""
    flakes = np.where(layer < threshold, np.float32(0), np.minimum(layer, np.float32(1)))
    flakes *= np.float32(255)
    if eight_bit:
        return to_bytes(motion(np.floor(flakes), radius, sigma, angle, base=FLAT_STAYS))
    blurred = motion(flakes, radius, sigma, angle)
    return np.rint(blurred, out=blurred).astype(np.uint8)


def add_snow(image: Image, flakes: Field, *, mix: float) -> Image:
    """Whitened image plus flakes: mix·x + (1−mix)·max(x, 1.5·grey + 0.5) + flakes."""
    result = np.empty_like(image)
    for rows in strips(image.shape):
        part = image[rows].astype(np.float32)
        white = cv2.cvtColor(part, cv2.COLOR_RGB2GRAY)
        white *= np.float32(1.5)
        white += np.float32(127.5)
        pale = cv2.max(part, cv2.merge([white] * 3))
        mixed = cv2.addWeighted(part, mix, pale, 1 - mix, 0)
        result[rows] = to_bytes(cv2.add(mixed, cv2.merge([flakes[rows]] * 3)))
    return result


@each
def frost(
    image: Image,
    draws: Draws,
    *,
    image_weight: float,
    frost_weight: float,
    texture_scale: float | None = None,
    textures: str | None = None,
) -> Image:
    """Frost: a·X + b·F with F a random crop of one of five photographs of frost.

    ImageNet-C; a sixth texture exists but is never drawn. Draws the texture, then the row and column of the crop.
    ``texture_scale``: 1 for ImageNet, 0.3 for Tiny, 0.2 for CIFAR; None: enlarged 1.1 times or more (imagecorruptions).
    """
    height, width = image.shape[:2]
    ice = texture(int(draws.integers(0, 5)), (height, width), texture_scale, textures)
    row = int(draws.integers(0, ice.shape[0] - height))
    column = int(draws.integers(0, ice.shape[1] - width))
    window = ice[row : row + height, column : column + width]
    levels = np.arange(256.0)
    result = np.empty_like(image)
    for rows in strips(image.shape):  # float64: a·X + b·F is often an integer, and float32 may fall just below it
        total = cv2.LUT(image[rows], image_weight * levels)
        total += cv2.LUT(window[rows], frost_weight * levels)
        result[rows] = np.minimum(total, 255, out=total).astype(np.uint8)
    return result


def fog(images: Images, draws: Sequence[Draws], *, amount: float, decay: float, map_side: int | None = None) -> Images:
    """Fog: (u + c·M)·m/(m + c) with a plasma fractal M in [0, 1] and m the image's maximum.

    ImageNet-C; the plasma is normalised over its whole map, of which the top left part is used.
    """
    height, width = images.shape[1:3]
    side = map_side or _power_of_two(max(height, width))
    check_buffer("fog", (height, width), side * side)
    clouds = plasma(side, decay, draws)
    levels = np.arange(256, dtype=np.float32)
    result = np.empty_like(images)
    for image, cloud, foggy in zip(images, clouds, result, strict=True):
        low, high = float(cloud.min()), float(cloud.max())
        brightest = float(image.max()) / 255
        factor = brightest / (brightest + amount)
        slope = np.float32(255 * amount * factor / (high - low))
        base = levels * np.float32(factor)
        for rows in strips(image.shape):
            mist = (cloud[rows, :width] - np.float32(low)) * slope
            foggy[rows] = to_bytes(cv2.add(cv2.LUT(image[rows], base), cv2.merge([mist] * 3)))
    return result


def plasma(side: int, decay: float, draws: Sequence[Draws]) -> Field:
    """Plasma fractal: diamond-square noise on a torus, one map per source of draws.

    ImageNet-C; the released code multiplies uniform values of ±a by a once more, so amplitudes fall with decay².
    Draws per level all centres, then all points right of a corner, then all points below one.
    """
    unit = stack_arrays([source.uniform(-1, 1, (side * side - 1,)) for source in draws]).astype(np.float32, copy=False)
    grid = np.zeros((len(draws), 1, 1), np.float32)
    amplitude, used = 1e4, 0  # a² for the released start of a = 100; the map is normalised afterwards
    while grid.shape[1] < side:
        cells = grid.shape[1]
        jitter = unit[:, used : used + 3 * cells**2].reshape(-1, 3, cells, cells)
        jitter *= np.float32(amplitude)
        refine = _refine if cells < LARGE_MAP else _refine_in_strips
        grid, amplitude, used = refine(grid, jitter), amplitude / decay**2, used + 3 * cells**2
    return grid


def _refine(grid: Field, jitter: Field) -> Field:
    """One level of diamond-square: N h w and the jitter of centres, right and lower points, N 3 h w → N 2h 2w."""
    finer = np.empty((len(grid), 2 * grid.shape[1], 2 * grid.shape[2]), np.float32)
    finer[:, ::2, ::2] = grid
    grid *= np.float32(0.25)
    right = grid + _next(grid, 2)
    centre = right + _next(right, 1)
    centre += jitter[:, 0]
    finer[:, 1::2, 1::2] = centre
    centre *= np.float32(0.25)
    right += jitter[:, 1]
    right += centre
    finer[:, ::2, 1::2] = np.add(right, _previous(centre, 1), out=right)
    below = grid + _next(grid, 1)
    below += jitter[:, 2]
    below += centre
    finer[:, 1::2, ::2] = np.add(below, _previous(centre, 2), out=below)
    return finer


def _refine_in_strips(grid: Field, jitter: Field) -> Field:
    """The same with a row of neighbours on either side of every strip; the temporary arrays stay small."""
    count, cells = grid.shape[:2]
    finer = np.empty((count, 2 * cells, 2 * cells), np.float32)
    for rows in strips(grid.shape[1:]):
        places = np.arange(rows.start - 1, rows.stop + 1) % cells  # the map is a torus
        finer[:, 2 * rows.start : 2 * rows.stop] = _refine(grid[:, places], jitter[:, :, places])[:, 2:-2]
    return finer


def _next(grid: Field, axis: int) -> Field:
    first, rest = (grid[:, :1], grid[:, 1:]) if axis == 1 else (grid[..., :1], grid[..., 1:])
    return np.concatenate((rest, first), axis=axis)


def _previous(grid: Field, axis: int) -> Field:
    last, rest = (grid[:, -1:], grid[:, :-1]) if axis == 1 else (grid[..., -1:], grid[..., :-1])
    return np.concatenate((last, rest), axis=axis)


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()


def brightness(images: Images, _draws: Sequence[Draws], *, shift: float) -> Images:
    """Brightness: add to the value channel of HSV.

    ImageNet-C; hue and saturation are unchanged, so each channel is scaled by V'/V: a table of (V, channel).
    """
    table = _brightness_table(shift)
    pixels, result = stack_rows(images), np.empty_like(stack_rows(images))
    for rows in strips(pixels.shape):
        part = pixels[rows]
        red, green, blue = cv2.split(part)
        value = cv2.max(cv2.max(red, green), blue)
        index = cv2.merge([value] * 3).astype(np.uint16)
        index <<= 8
        index |= part
        result[rows] = table.take(index, mode="clip")
    return result.reshape(images.shape)


@lru_cache(maxsize=64)
def _brightness_table(shift: float) -> NDArray[np.uint8]:
    """Entry 256·V + x: the new value of channel x of a pixel with maximum V, computed as via HSV and back."""
    # not u·V'/V, which is the same but rounds differently: 1–6 % of the truncated bytes would differ by one level
    value, channel = np.arange(256)[:, None] / 255.0, np.arange(256)[None] / 255.0
    saturation = np.divide(value - channel, value, out=np.zeros((256, 256)), where=value > 0)
    brighter = np.clip(value + shift, 0, 1)
    return (np.clip(brighter * (1 - saturation), 0, 1) * 255).astype(np.uint8).ravel()


@each
def spatter(
    image: Image,
    draws: Draws,
    *,
    loc: float,
    scale: float,
    sigma: float,
    threshold: float,
    gain: float,
    mud: int,
) -> Image:
    """Spatter: splashes of water (severities 1 to 3) or mud (4 and 5).

    ImageNet-C, extra kind. If nothing passes the threshold the image is unchanged; the released code divides by zero.
    """
    layer = drops(image.shape[:2], draws, loc=loc, scale=scale, sigma=sigma, threshold=threshold)
    return add_mud(image, layer, threshold=threshold, sigma=gain) if mud else add_water(image, layer, gain=gain)


def drops(shape: tuple[int, ...], draws: Draws, *, loc: float, scale: float, sigma: float, threshold: float) -> Field:
    """Smoothed normal values, set to zero below the threshold."""
    layer = smooth((loc + scale * draws.normal(shape)).astype(np.float32, copy=False), sigma)
    layer[layer < threshold] = 0
    return layer


def add_water(image: Image, layer: Field, *, gain: float) -> Image:
    """Add water: the embossed distance to the edges of the drops, in pale turquoise."""
    liquid = (np.minimum(layer, 1) * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    _, distance = cv2.threshold(distance, 20, 20, cv2.THRESH_TRUNC)
    relief = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
    relief = cv2.blur(cv2.filter2D(relief, cv2.CV_8U, _EMBOSS), (3, 3))
    water = cv2.multiply(liquid, relief, dtype=cv2.CV_32F)
    peak = float(water.max())
    if peak > 0:
        water *= np.float32(gain / peak)
    return to_bytes(cv2.add(image, cv2.merge([water * tint for tint in _WATER]), dtype=cv2.CV_32F))


def add_mud(image: Image, layer: Field, *, threshold: float, sigma: float) -> Image:
    """Add mud: pixels well inside the smoothed mask turn brown."""
    mask = smooth((layer > threshold).astype(np.float32), sigma)
    mask[mask < 0.8] = 0
    cover = cv2.merge([mask] * 3)
    return to_bytes(image * (1 - cover) + cover * _MUD)
