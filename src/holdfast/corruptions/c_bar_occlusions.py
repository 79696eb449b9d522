"""What hides parts of an image in ImageNet-C-bar and CIFAR-10-C-bar: a checkerboard, sparkles and lines.

Mintun, Kirillov and Xie, NeurIPS 2021; magnitudes and sizes as in `holdfast.corruptions.c_bar_noise`.
"""

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.corruptions.c_bar_draws import inner_draws
from holdfast.corruptions.c_bar_noise import Plane, length_unit
from holdfast.corruptions.filters import Image, each
from holdfast.corruptions.rng import Draws

SPARKLES = 5
RAYS = (50, 200)  # of a sparkle, the second not reached
GREY = 128


@each
def checkerboard_cutout(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Turn random fields of a turned checkerboard grey.

    As published, a field's number is cut toward zero where it is looked up and floored where its colour is decided.
    """
    angle = float(draws.uniform(0, 2 * np.pi))
    side = max(length_unit(image) * float(draws.uniform(0.1, 0.25)), 1.0)
    height, width = image.shape[:2]
    count = int(4 * max(height, width) // side)
    source = inner_draws(draws)
    uniforms = source.uniform(0, 1, (count, count)) if source.literal else source.fractions(count * count)
    chosen = uniforms.reshape(count, count) < magnitude / 10
    y, x = np.arange(height)[:, None], np.arange(width)
    down = (y * math.cos(angle) + x * math.sin(angle)) / side
    across = (-y * math.sin(angle) + x * math.cos(angle)) / side
    same_colour = ((np.floor(down).astype(np.intp) ^ np.floor(across).astype(np.intp)) & 1) == 0
    grey = same_colour & chosen[np.trunc(down).astype(np.intp), np.trunc(across).astype(np.intp)]
    result = image.copy()
    result[grey] = GREY
    return result


@each
def sparkles(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Add five white stars whose light falls with the square of the distance: all of the image gets brighter."""
    height, width = image.shape[:2]
    centres = [(float(draws.uniform(0, height)), float(draws.uniform(0, width))) for _ in range(SPARKLES)]
    source = inner_draws(draws)
    counts = [int(draws.integers(*RAYS)) for _ in range(SPARKLES)]
    radius = 0.01 * magnitude * length_unit(image)
    result = image.astype(np.float64)
    for centre, count in zip(centres, counts, strict=True):
        lengths = np.maximum(1.0, radius + 0.25 * radius * source.normal((count,)))
        profile, light = _star(image.shape[:2], centre, lengths)
        weight = cv2.merge([np.minimum(profile * light, 1)] * 3)
        result = result.astype(np.float32).astype(np.float64)  # the original rounds before each star
        result += weight * (255 - result)
    return result.astype(np.uint8)


@each
def inverse_sparkles(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Fade to white everywhere but in one star."""
    height, width = image.shape[:2]
    centre = (height * float(draws.uniform(0.25, 0.75)), width * float(draws.uniform(0.25, 0.75)))
    source = inner_draws(draws)
    count = int(draws.integers(*RAYS))
    radius = length_unit(image) / 4
    profile, light = _star(image.shape[:2], centre, radius + 0.25 * radius * source.normal((count,)))
    weight = cv2.merge([np.minimum(profile * light ** (0.13 * magnitude), 1)] * 3)
    return (255 + weight * (image - 255.0)).astype(np.uint8)


def _star(shape: tuple[int, ...], centre: tuple[float, float], lengths: NDArray[Any]) -> tuple[Plane, Plane]:
    """Of a star with rays of these lengths: how bright a pixel is across its ray, and λ² / distance² along it."""
    y, x = np.arange(shape[0])[:, None] - centre[0], np.arange(shape[1]) - centre[1]
    around = (np.arctan2(x, y) + np.pi) / (2 * np.pi) * len(lengths)
    ray = around.astype(np.intp)
    around -= ray
    table = np.concatenate([lengths, lengths[:2]]).astype(np.float64)  # the last ray's neighbour is the first
    reach = table.take(ray)
    reach += around * np.diff(table, append=0).take(ray)
    reach *= reach
    reach /= x * x + y * y + 1e-4
    around -= 0.5
    return 1 - around * around, reach


@each
def lines(image: Image, draws: Draws, *, magnitude: float) -> Image:
    """Draw anti-aliased grey lines of similar direction across the image."""
    angle, variation = float(draws.uniform(0, 2 * np.pi)), float(draws.uniform(0.1, 1))
    source, length = inner_draws(draws), length_unit(image)
    result = image.copy()
    for _ in range(int(magnitude * length / 10)):
        row, column, turn = (float(source.uniform(0, 1)) for _ in range(3))
        row, column, turn = image.shape[0] * row, image.shape[1] * column, angle + 2 * np.pi * variation * (turn - 0.5)
        down, across = length * math.cos(turn), length * math.sin(turn)
        start, end = (int(row - down), int(column - across)), (int(row + down), int(column + across))
        rows, columns, opacities = _line(start, end)
        inside = (rows >= 0) & (rows < image.shape[0]) & (columns >= 0) & (columns < image.shape[1])
        rows, columns, opacity = rows[inside], columns[inside], opacities[inside, None]
        result[rows, columns] = ((1 - opacity) * result[rows, columns] + GREY * opacity).astype(np.uint8)
    return result


def _line(
    start: tuple[int, int], end: tuple[int, int]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Rows, columns and opacities of an anti-aliased line, in the order of Zingl's algorithm (2012).

    Each step goes on along the longer axis, and along the shorter one whenever that is nearer to the line; beside the
    pixel of the step itself it may light the next one along each axis. A pixel may come twice: its last opacity counts.
    """
    tall, wide = abs(start[0] - end[0]), abs(start[1] - end[1])
    length = math.hypot(tall, wide) or 1.0
    step = np.arange(max(tall, wide) + 1)
    shorter = min(tall, wide) * (2 * step + 1) // (2 * max(tall, wide, 1))
    down, across = (step, shorter) if tall > wide else (shorter, step)
    error = wide * (1 + down) - tall * (1 + across)
    more = step < step[-1]  # the last step is the end
    r, c = start[0] + down * _direction(start[0], end[0]), start[1] + across * _direction(start[1], end[1])
    below, beside = r + _direction(start[0], end[0]), c + _direction(start[1], end[1])
    rows, columns = np.stack([r, below, r], axis=1), np.stack([c, c, beside], axis=1)
    distance = np.stack([np.abs(error - wide + tall), np.abs(error + tall), np.abs(wide - error)], axis=1)
    lit = np.stack(
        [
            np.ones(len(step), bool),
            more & (2 * error >= -wide) & (error + tall < length),
            more & (2 * error <= tall) & (wide - error < length),
        ],
        axis=1,
    )
    return rows[lit], columns[lit], 1 - distance[lit] / length


def _direction(start: int, end: int) -> int:
    return 1 if start < end else -1
