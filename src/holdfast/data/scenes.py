"""Embedded scenes: scikit-learn's digits on procedural backgrounds, with label maps and instances.

A data set for segmentation and detection that needs no download and has any size. Every scene depends only on its split
and number. Digits of one split never appear in scenes of another.
"""

import colorsys
import re
from dataclasses import dataclass
from functools import cache, lru_cache

import cv2
import numpy as np
from PIL import Image

from holdfast.data.detection_targets import Objects, run_lengths
from holdfast.data.digits import SPLITS, split_of_every_image
from holdfast.data.label_maps import TASK
from holdfast.errors import HoldfastError, nearest

CLASSES = ("background", *(str(digit) for digit in range(10)))
COUNTS = {"train": 2000, "val": 200, "test": 200}
SIZE = (96, 128)
SMALLEST = 32
OWN_COLOUR = 0.8  # probability that a digit has the hue of its class; the others differ by shape alone
PLAIN = "plain"  # digits always in the hue of their class, no distractors: a small detector learns these in minutes
_SIZE_WORD = re.compile(r"(\d+)x(\d+)")


@dataclass(frozen=True, eq=False)
class Scene:
    """One image with its ground truth.

    Attributes:
        image: uint8 (H, W, 3).
        labels: the class of every pixel, uint8 (H, W), an index into `CLASSES`.
        instances: instance of every pixel, uint8 (H, W): 0 for background, else 1, 2, …
        digits: the digit of instance 1, 2, …; each has visible pixels.
    """

    image: np.ndarray
    labels: np.ndarray
    instances: np.ndarray
    digits: tuple[int, ...]

    def boxes(self) -> np.ndarray:
        """Tight boxes around the visible pixels of every instance: x0, y0, x1, y1 (exclusive), int64 (n, 4)."""
        return np.array([_box(self.instances == number) for number in range(1, len(self.digits) + 1)]).reshape(-1, 4)


class SceneSource:
    """Scenes of one split; the id contains split, size and number."""

    classes = CLASSES
    task = TASK

    def __init__(
        self, split: str, *, size: tuple[int, int] = SIZE, count: int | None = None, plain: bool = False
    ) -> None:
        self.split, self.size, self.plain = split, size, plain
        self._count = COUNTS[split] if count is None else count
        self.name = f"scenes/{split}/{size[0]}x{size[1]}" + (f"/{PLAIN}" if plain else "")

    def __len__(self) -> int:
        return self._count

    def id(self, index: int) -> str:
        """The id ``scenes/split/HxW/number``, with ``plain`` before the number for plain scenes."""
        return f"{self.name}/{index:06d}"

    def scene(self, index: int) -> Scene:
        """One scene with its ground truth."""
        return _scene(self.split, self.size, int(index), plain=self.plain)

    def image(self, index: int) -> Image.Image:
        """The image of one scene."""
        return Image.fromarray(self.scene(index).image)

    def target(self, index: int) -> np.ndarray:
        """The label of every pixel, uint8 (H, W); no pixel is ignored."""
        return self.scene(index).labels


def open_scenes(rest: str, *, split: str) -> SceneSource:
    """Open ``scenes``, optionally with a split, a size, a count and ``plain``: ``scenes:test,240x320,50``."""
    options: dict[str, object] = {}
    for word in rest.split(",") if rest else ():
        if word in SPLITS:
            split = word
        elif found := _SIZE_WORD.fullmatch(word):
            options["size"] = int(found[1]), int(found[2])
        elif word.isdigit():
            options["count"] = int(word)
        elif word == PLAIN:
            options["plain"] = True
        else:
            raise HoldfastError(
                f"scenes takes a split ({', '.join(SPLITS)}), a size such as 96x128, a count and {PLAIN}, "
                f"got {word!r}{nearest(word, [*SPLITS, PLAIN])}"
            )
    if min(options.get("size", SIZE)) < SMALLEST:  # type: ignore[call-overload]
        raise HoldfastError(f"scenes must be at least {SMALLEST} pixels high and wide, got {rest!r}")
    if options.get("count") == 0:
        raise HoldfastError(f"the count of scenes must be at least 1, got {rest!r}")
    return SceneSource(split, **options)  # type: ignore[arg-type]


def draw_scene(
    rng: np.random.Generator, glyphs: np.ndarray, digits: np.ndarray, *, size: tuple[int, int], plain: bool = False
) -> Scene:
    """Draw one scene.

    Args:
        rng: the random generator of all choices.
        glyphs: the digits that may appear, float (n, 8, 8) in [0, 1].
        digits: their classes, (n,).
        size: height and width.
        plain: every digit in the hue of its class, and no distractor shapes.
    """
    picture = _background(rng, size, shapes=not plain)
    labels, instances = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    drawn: list[int] = []
    for _ in range(int(rng.integers(2, 6))):
        chosen = int(rng.integers(len(glyphs)))
        cover = _place_digit(rng, glyphs[chosen], size)
        visible = cover >= 0.5
        if not visible.any() or _hides_too_much(instances, visible):
            continue
        drawn.append(int(digits[chosen]))
        picture = _paint_digit(rng, picture, cover, digit=int(digits[chosen]), own=1.0 if plain else OWN_COLOUR)
        labels[visible], instances[visible] = digits[chosen] + 1, len(drawn)
    image = picture + rng.normal(0, 4, picture.shape)
    return Scene(np.clip(np.round(image), 0, 255).astype(np.uint8), labels, instances, tuple(drawn))


@lru_cache(maxsize=8)  # image, labels and boxes of a scene are read in a row
def _scene(split: str, size: tuple[int, int], index: int, *, plain: bool) -> Scene:
    glyphs, digits = digit_glyphs(split)
    rng = np.random.default_rng([SPLITS.index(split), *size, index])
    return draw_scene(rng, glyphs, digits, size=size, plain=plain)


@cache
def digit_glyphs(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Digits of a split, float (n, 8, 8) in [0, 1], and their classes."""
    from sklearn.datasets import load_digits

    data = load_digits()
    members = split_of_every_image(data.target) == split
    return (data.images[members] / 16).astype(np.float32), data.target[members].astype(np.int64)


def _background(rng: np.random.Generator, size: tuple[int, int], *, shapes: bool) -> np.ndarray:
    """A dull colour with noise at two scales and distractor shapes; float32 (H, W, 3)."""
    height, width = size
    picture = np.broadcast_to(rng.uniform(40, 140, 3), (height, width, 3)).astype(np.float32)
    for cells, strength in ((3, 30), (12, 15)):
        clouds = rng.uniform(-strength, strength, (cells, cells, 3)).astype(np.float32)
        picture = picture + cv2.resize(clouds, (width, height), interpolation=cv2.INTER_CUBIC)
    unit = min(size)
    for _ in range(int(rng.integers(2, 6)) if shapes else 0):
        colour = rng.uniform(10, 170, 3).tolist()
        ends = [(int(x), int(y)) for x, y in zip(rng.integers(0, width, 2), rng.integers(0, height, 2), strict=True)]
        thickness = max(1, int(unit * rng.uniform(0.02, 0.08)))
        if rng.random() < 0.5:
            cv2.line(picture, ends[0], ends[1], colour, thickness, cv2.LINE_AA)
        else:
            axes = tuple(int(radius) for radius in unit * rng.uniform(0.05, 0.3, 2))
            cv2.ellipse(picture, ends[0], axes, float(rng.uniform(0, 180)), 0, 360, colour, -1, cv2.LINE_AA)
    return picture


def _place_digit(rng: np.random.Generator, glyph: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Coverage in [0, 1] of every pixel by one digit, rotated, enlarged and mostly inside the image."""
    height, width = size
    side = min(size) * rng.uniform(0.4, 0.6)
    angle = rng.uniform(-8, 8)
    centre = rng.uniform(0.25 * side, width - 0.25 * side), rng.uniform(0.25 * side, height - 0.25 * side)
    to_scene = cv2.getRotationMatrix2D((3.5, 3.5), angle, side / 8)
    to_scene[:, 2] += np.array(centre) - 3.5
    ink = cv2.warpAffine(glyph, to_scene, (width, height), flags=cv2.INTER_CUBIC, borderValue=0)
    return np.clip((ink - 0.35) / 0.2, 0, 1)


def _hides_too_much(instances: np.ndarray, visible: np.ndarray) -> bool:
    """Whether a digit would cover more than a third of the visible pixels of another."""
    covered = instances[visible]
    numbers = np.unique(covered[covered > 0])
    return any((covered == number).sum() > (instances == number).sum() / 3 for number in numbers)


def _paint_digit(
    rng: np.random.Generator, picture: np.ndarray, cover: np.ndarray, *, digit: int, own: float
) -> np.ndarray:
    """Paint a digit in a bright colour: mostly the hue of its class, so that a small model learns in minutes."""
    hue = digit / 10 + rng.normal(0, 0.02) if rng.random() < own else rng.uniform()
    colour = 255 * np.array(colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.6, 1), rng.uniform(0.78, 1)))
    return (picture + cover[..., None] * (colour.astype(np.float32) - picture)).astype(np.float32)


def _box(mask: np.ndarray) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


class SceneObjectSource:
    """The images of `SceneSource` with boxes and masks of the visible part of every digit."""

    task = "detection"
    classes = CLASSES[1:]
    category_ids = tuple(range(1, len(CLASSES)))

    def __init__(self, scenes: SceneSource) -> None:
        self.scenes, self.name = scenes, f"scene-objects-{scenes.split}" + ("-plain" if scenes.plain else "")
        self.id, self.image = scenes.id, scenes.image

    def __len__(self) -> int:
        return len(self.scenes)

    def target(self, index: int) -> Objects:
        """The visible digits of one scene."""
        scene = self.scenes.scene(index)
        numbers = np.arange(1, len(scene.digits) + 1)
        masks = scene.instances == numbers[:, None, None]
        return Objects(
            scene.instances.shape,
            scene.boxes().astype(np.float64),
            np.array(scene.digits, np.int64),
            masks.sum(axis=(1, 2)).astype(np.float64),
            np.zeros(len(numbers), bool),
            run_lengths(masks),
        )


def open_scene_objects(rest: str, *, split: str) -> SceneObjectSource:
    """Open ``scene-objects`` with the options of ``scenes``: split, size, count and ``plain``."""
    return SceneObjectSource(open_scenes(rest, split=split))
