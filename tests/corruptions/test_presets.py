"""What the generators of ImageNet-C, Tiny-ImageNet-C and CIFAR-C do differently, against brute-force transcriptions."""

import math

import cv2
import numpy as np
import pytest
import scipy.ndimage as nd

from holdfast.corruptions import SEVERITIES, LegacyDraws, corrupt, parameters
from holdfast.corruptions.frost_textures import TEXTURES, texture_source
from tests.corruptions.oracle import photograph, share_beyond

SIDES = {"imagenet": 224, "tiny": 64, "cifar": 32, "inception": 299}


def trail(image, radius, sigma, angle):
    """ImageMagick's motion blur: y(p) = Σ k_i X(p + o_i), border replicated, one pixel offset after the other."""
    steps = range(2 * radius + 1)
    weights = np.array([math.exp(-(i**2) / (2 * sigma**2)) for i in steps])
    weights /= weights.sum()
    radians = math.radians(angle)
    rows, columns = np.arange(image.shape[0]), np.arange(image.shape[1])
    result = np.zeros(image.shape)
    for i, weight in zip(steps, weights, strict=True):
        down, across = math.ceil(i * math.sin(radians) - 0.5), math.ceil(i * math.cos(radians) - 0.5)
        shifted = image[np.clip(rows + down, 0, len(rows) - 1)][:, np.clip(columns + across, 0, len(columns) - 1)]
        result += weight * shifted.astype(float)
    return result


def clipped_zoom(layer, factor):
    side = len(layer)
    length = math.ceil(side / factor)
    top = (side - length) // 2
    zoomed = nd.zoom(layer[top : top + length, top : top + length], factor, order=1)
    start = (len(zoomed) - side) // 2
    return zoomed[start : start + side, start : start + side]


def motion_blur(image, stream, p):
    return np.floor(trail(image, p["radius"], p["sigma"], stream.uniform(-45, 45)))


def snow(image, stream, p):
    layer = clipped_zoom(stream.normal(p["loc"], p["scale"], image.shape[:2]), p["zoom"])
    layer[layer < p["threshold"]] = 0
    layer = np.floor(255 * np.clip(layer, 0, 1))
    layer = np.floor(trail(layer, p["radius"], p["sigma"], stream.uniform(-135, -45)))[..., None] / 255
    x = image / 255
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = p["mix"] * x + (1 - p["mix"]) * np.maximum(x, 1.5 * grey + 0.5)
    return 255 * np.clip(x + layer + layer[::-1, ::-1], 0, 1)


def frost(image, stream, p):
    name = list(TEXTURES)[stream.randint(5)]
    ice = cv2.imread(f"{texture_source()}/{name}")
    ice = cv2.resize(ice, (0, 0), fx=p["texture_scale"], fy=p["texture_scale"]) if p["texture_scale"] != 1 else ice
    row = stream.randint(0, ice.shape[0] - image.shape[0])
    column = stream.randint(0, ice.shape[1] - image.shape[1])
    window = ice[row : row + image.shape[0], column : column + image.shape[1], ::-1]
    return np.clip(p["image_weight"] * image + p["frost_weight"] * window, 0, 255)


def plasma(side, decay, stream):
    """Diamond-square on a torus, all indices wrapped."""
    field, step, reach = np.zeros((side, side)), side, 100.0
    while step >= 2:
        half = step // 2
        grid = np.arange(0, side, step)
        ys, xs = np.meshgrid(grid, grid, indexing="ij")

        def at(dy, dx, ys=ys, xs=xs):
            return field[(ys + dy) % side, (xs + dx) % side]

        def jitter(reach=reach, shape=ys.shape):
            return reach * stream.uniform(-reach, reach, shape)

        field[ys + half, xs + half] = (at(0, 0) + at(step, 0) + at(0, step) + at(step, step)) / 4 + jitter()
        field[ys, xs + half] = (at(0, 0) + at(0, step) + at(half, half) + at(-half, half)) / 4 + jitter()
        field[ys + half, xs] = (at(0, 0) + at(step, 0) + at(half, half) + at(half, -half)) / 4 + jitter()
        step, reach = half, reach / decay
    field -= field.min()
    return field / field.max()


def fog(image, stream, p):
    x = image / 255
    clouds = plasma(p["map_side"], p["decay"], stream)[: len(image), : len(image), None]
    return 255 * np.clip((x + p["amount"] * clouds) * x.max() / (x.max() + p["amount"]), 0, 1)


def elastic_transform(image, stream, p):
    x = (image / 255).astype(np.float32)
    shape = x.shape[:2]
    centre, third = np.float32(shape) // 2, min(shape) // 3
    before = np.float32([centre + third, [centre[0] + third, centre[1] - third], centre - third])
    after = before + stream.uniform(-p["affine"], p["affine"], before.shape).astype(np.float32)
    x = cv2.warpAffine(x, cv2.getAffineTransform(before, after), shape[::-1], borderMode=cv2.BORDER_REFLECT_101)
    fields = []
    for _ in range(2):
        noise = stream.uniform(-1, 1, shape)
        smooth = nd.gaussian_filter(noise, p["sigma"], mode="reflect", truncate=3) if p["sigma"] else noise
        fields.append(p["alpha"] * smooth)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    places = [rows + fields[1], columns + fields[0]]
    moved = [nd.map_coordinates(x[..., channel], places, order=1, mode="reflect") for channel in range(3)]
    return 255 * np.clip(np.stack(moved, axis=-1), 0, 1)


REFERENCES = {f.__name__: f for f in (motion_blur, snow, frost, fog, elastic_transform)}


@pytest.mark.parametrize("preset", SIDES)
@pytest.mark.parametrize("kind", REFERENCES)
def test_generators_own_rules(kind, preset):
    image = photograph(SIDES[preset], SIDES[preset], "flower.jpg")
    for severity in SEVERITIES:
        stream = np.random.RandomState(40 + severity)
        expected = REFERENCES[kind](image, stream, parameters(kind, severity, preset=preset)).astype(np.uint8)
        ours = corrupt(image, kind, severity=severity, preset=preset, rng=LegacyDraws(40 + severity))
        assert share_beyond(ours, expected) <= 0.001
        assert abs(ours.mean() - expected.mean()) < 0.05  # half a level is a rounding where the generator floors


def test_small_defocus_radii_are_only_the_alias_filter():
    image = photograph(32, 32)
    expected = cv2.GaussianBlur(image.astype(np.float64), (3, 3), 0.4, borderType=cv2.BORDER_REFLECT_101)
    assert share_beyond(corrupt(image, "defocus_blur", severity=1, preset="cifar"), np.floor(expected)) == 0


@pytest.mark.parametrize("preset", ["tiny", "cifar", "inception"])
def test_every_other_kind_runs_at_its_presets_size(preset):
    from holdfast.corruptions import ALL

    image = photograph(SIDES[preset], SIDES[preset])
    for kind in ALL:
        results = [corrupt(image, kind, severity=severity, preset=preset, rng=1) for severity in SEVERITIES]
        assert any((result != image).any() for result in results)
