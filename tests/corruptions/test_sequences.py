"""Sequences of ImageNet-P, Tiny-ImageNet-P and CIFAR-P against brute-force transcriptions of their definition."""

import colorsys

import cv2
import numpy as np
import pytest
import scipy.ndimage as nd
from PIL import Image

from holdfast.corruptions import (
    EXTRA_SEQUENCES,
    SEQUENCES,
    TEST_SEQUENCES,
    LegacyDraws,
    frame_count,
    keyed,
    perturb,
)
from holdfast.errors import HoldfastError
from tests.corruptions.oracle import photograph, share_beyond
from tests.corruptions.test_presets import clipped_zoom, trail

SIZES = {"imagenet": (256, 340), "tiny": (64, 64), "cifar": (32, 32)}
SIDES = {"imagenet": 224, "tiny": 64, "cifar": 32}
FRAMES = {("imagenet", "translate"): 41, ("cifar", "translate"): 16, ("cifar", "motion_blur"): 21}


def image_for(preset, kind="any"):
    return photograph(*((90, 130) if (preset, kind) == ("tiny", "motion_blur") else SIZES[preset]))


def cropped(image, preset):
    side = SIDES[preset]
    top, left = round((image.shape[0] - side) / 2), round((image.shape[1] - side) / 2)
    return image[top : top + side, left : left + side]


def cast(unit):
    return (255 * np.clip(unit, 0, 1)).astype(np.uint8)


@pytest.mark.parametrize("preset", SIZES)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_frame_counts_and_shapes(kind, preset):
    frames = perturb(image_for(preset, kind), kind, preset=preset, rng=1)
    count = FRAMES.get((preset, kind), 31)
    assert frames.shape == (count, SIDES[preset], SIDES[preset], 3)
    assert frame_count(kind, preset=preset) == count
    assert len({frame.tobytes() for frame in frames}) > count // 2


def test_the_ten_test_kinds_have_snow_and_not_spatter():
    assert len(TEST_SEQUENCES) == 10
    assert "snow" in TEST_SEQUENCES
    assert EXTRA_SEQUENCES == ("speckle_noise", "gaussian_blur", "spatter", "shear")


@pytest.mark.parametrize(
    ("preset", "kind", "levels"),
    [
        ("imagenet", "gaussian_noise", (0.03, 0.05, 0.08)),
        ("cifar", "gaussian_noise", (0.02, 0.04, 0.06)),
        ("tiny", "gaussian_noise", (0.025, 0.05, 0.075)),
        ("imagenet", "shot_noise", (300, 120, 60)),
        ("cifar", "shot_noise", (700, 400, 200)),
        ("tiny", "shot_noise", (500, 250, 125)),
        ("imagenet", "speckle_noise", (0.05, 0.10, 0.15)),
        ("cifar", "speckle_noise", (0.05, 0.07, 0.10)),
    ],
)
def test_noise_frames_are_draws_around_a_clean_first_frame(preset, kind, levels):
    image = image_for(preset)
    clean = cropped(image, preset)
    for level, value in enumerate(levels, start=1):
        stream = np.random.RandomState(level)
        frames = perturb(image, kind, preset=preset, level=level, rng=LegacyDraws(level))
        np.testing.assert_array_equal(frames[0], clean)
        for frame in frames[1:4]:
            unit = clean / 255
            if kind == "shot_noise":
                unit = stream.poisson(unit * value) / value
            else:
                unit = unit + (unit if kind == "speckle_noise" else 1) * (value * stream.standard_normal(unit.shape))
            np.testing.assert_array_equal(frame, cast(unit))


@pytest.mark.parametrize(
    ("preset", "radius", "sigma", "step", "last"), [("imagenet", 10, 3, 4, 30), ("cifar", 6, 1.8, 9, 20)]
)
def test_motion_blur_turns(preset, radius, sigma, step, last):
    image = image_for(preset)
    frames = perturb(image, "motion_blur", preset=preset)
    for number in (0, 7, last):
        expected = np.floor(trail(cropped(image, preset), radius, sigma, step * (number - last)))
        assert share_beyond(frames[number], expected) == 0
        assert abs(frames[number].mean() - expected.mean()) < 0.05


def test_motion_blur_floors():
    """σ 1.8: k₀ = 1/2.7560 = 0.36285, k₁ = 0.31096, k₂ = 0.19573; the last frame runs along the rows."""
    image = np.zeros((32, 32, 3), np.uint8)
    image[:, 16:] = 100
    last = perturb(image, "motion_blur", preset="cifar")[20]
    # one column before the edge all but k₀ is bright: 63.7; two before it all but k₀ and k₁: 32.6; then 13.05
    assert last[5, 12:17, 0].tolist() == [3, 13, 32, 63, 100]


def test_tiny_motion_blur_is_scaled_down_after_it():
    image = image_for("tiny", "motion_blur")
    frames = perturb(image, "motion_blur", preset="tiny")
    blurred = np.floor(trail(image, 14, 3, 5 * (4 - 30))).astype(np.uint8)
    expected = np.asarray(Image.fromarray(blurred).resize((64, 64), Image.Resampling.BILINEAR))
    assert share_beyond(frames[4], expected) == 0


@pytest.mark.parametrize("preset", SIZES)
def test_zoom_blur_is_a_running_mean_of_scalings(preset):
    image = cropped(image_for(preset), preset)
    frames = perturb(image_for(preset), "zoom_blur", preset=preset)
    layers = [image.astype(float)]
    for number in range(1, 31):
        factor = 1 + 0.004 * number
        layers.append(np.floor(backwards(image, lambda x, y, s=factor: (x / s, y / s)) + 1e-6))
        if number in (1, 9, 30):
            assert share_beyond(frames[number], np.floor(np.mean(layers, axis=0))) <= 0.001
    np.testing.assert_array_equal(frames[0], image)


def test_zoom_blur_of_a_ramp_by_hand():
    """Column x holds 8x, so a scaling by s shows 8·(15.5 + (x − 15.5)/s); the mean of 1/s over 31 frames is 0.9445."""
    ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 1, 3))
    last = perturb(ramp, "zoom_blur", preset="cifar")[30]
    steepness = np.mean([1 / (1 + 0.004 * number) for number in range(31)])
    assert steepness == pytest.approx(0.9445, abs=1e-4)
    # 124 ∓ 124·0.9445 is 6.88 and 241.12, of which truncations take less than two; a crop zoom gives 3 and 237
    assert 5 <= last[9, 0, 0] <= 6
    assert 240 <= last[9, 31, 0] <= 241


@pytest.mark.parametrize(
    ("preset", "scale", "zoom", "radius", "sigma"),
    [("imagenet", 0.3, 3, 14, 4), ("cifar", 0.3, 2, 10, 2), ("tiny", 0.28, 2, 10, 2.5)],
)
def test_snow_drives_one_layer_around(preset, scale, zoom, radius, sigma):
    image = cropped(image_for(preset), preset)
    frames = perturb(image_for(preset), "snow", preset=preset, rng=LegacyDraws(3))
    layer = clipped_zoom(np.random.RandomState(3).normal(0.05, scale, image.shape[:2]), zoom)
    layer[layer < 0.5] = 0
    layer = np.floor(255 * np.clip(layer, 0, 1))
    x = image / 255
    x = 0.85 * x + 0.15 * np.maximum(x, 1.5 * (x @ [0.299, 0.587, 0.114])[..., None] + 0.5)
    for number in (0, 13, 30):
        flakes = np.floor(trail(layer, radius, sigma, 4 * number - 150))[..., None] / 255
        assert share_beyond(frames[number], cast(x + flakes + flakes[::-1, ::-1])) <= 0.001


@pytest.mark.parametrize(("preset", "step"), [("imagenet", 0.02), ("cifar", 0.015), ("tiny", 0.02)])
def test_brightness_goes_from_dark_to_bright(preset, step):
    image = cropped(image_for(preset), preset)
    frames = perturb(image_for(preset), "brightness", preset=preset)
    for number in (0, 15, 30):
        for row, column in [(3, 5), (20, 9), (31, 31)]:
            hue, saturation, value = colorsys.rgb_to_hsv(*(image[row, column] / 255))
            expected = colorsys.hsv_to_rgb(hue, saturation, min(max(value + step * (number - 15), 0), 1))
            np.testing.assert_allclose(frames[number, row, column], np.floor(np.multiply(expected, 255)), atol=1)


@pytest.mark.parametrize(
    ("preset", "first", "step", "truncate"),
    [("imagenet", 0.25, 0.035, 6), ("cifar", 0.3, 0.015, 7), ("tiny", 0.35, 0.014, 7)],
)
def test_gaussian_blur_grows(preset, first, step, truncate):
    image = cropped(image_for(preset), preset) / 255
    frames = perturb(image_for(preset), "gaussian_blur", preset=preset)
    for number in (0, 30):
        sigma = first + step * number
        smooth = nd.gaussian_filter(image, (sigma, sigma, 0), mode="nearest", truncate=truncate)
        assert share_beyond(frames[number], cast(smooth)) == 0


@pytest.mark.parametrize(("preset", "pixels"), [("imagenet", 20), ("cifar", 7), ("tiny", 15)])
def test_translate_moves_whole_pixels(preset, pixels):
    image = image_for(preset)
    frames = perturb(image, "translate", preset=preset)
    np.testing.assert_array_equal(frames[pixels], cropped(image, preset))
    for number in (0, len(frames) - 1):
        moved = nd.shift(image, (0, number - pixels, 0), order=0)
        np.testing.assert_array_equal(frames[number], cropped(moved, preset))


def test_cifar_shifts_run_from_minus_7_to_8():
    columns = np.tile(np.arange(1, 33, dtype=np.uint8)[None, :, None], (32, 1, 3))
    frames = perturb(columns, "translate", preset="cifar")
    np.testing.assert_array_equal(frames[0][3, :, 1], [*range(8, 33), *[0] * 7])
    np.testing.assert_array_equal(frames[15][3, :, 1], [*[0] * 8, *range(1, 25)])


def test_rotation_is_clockwise():
    dot = np.zeros((32, 32, 3), np.uint8)
    dot[15:17, 27:29] = 255  # 12 right of the centre, so 15° bring it to 12·cos 15° = 11.6 right and 3.1 below
    last = perturb(dot, "rotate", preset="cifar")[30][..., 0]
    row, column = nd.center_of_mass(last.astype(float))
    assert (row + 0.5 - 16, column + 0.5 - 16) == pytest.approx((3.1, 11.6), abs=0.1)


@pytest.mark.parametrize("kind", ["rotate", "shear"])
@pytest.mark.parametrize("preset", SIZES)
def test_geometric_kinds_pass_through_the_clean_image(kind, preset):
    image = image_for(preset)
    np.testing.assert_array_equal(perturb(image, kind, preset=preset)[15], cropped(image, preset))


def backwards(image, inverse):
    """Bilinear samples where ``inverse`` takes the offset of each pixel's centre from the picture's centre."""
    height, width = image.shape[:2]
    rows, columns = np.mgrid[:height, :width]
    x, y = inverse(columns + 0.5 - width / 2, rows + 0.5 - height / 2)
    places = [y + height / 2 - 0.5, x + width / 2 - 0.5]
    return np.stack(
        [nd.map_coordinates(image[..., c].astype(float), places, order=1, mode="nearest") for c in range(3)], axis=-1
    )


def water(image, layer):
    drops = (255 * layer).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    relief = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = cv2.blur(cv2.filter2D(relief, cv2.CV_8U, emboss), (3, 3))
    mask = drops.astype(float) * relief
    return cast(image / 255 + (0.6 * mask / mask.max())[..., None] * np.array([175, 238, 238]) / 255)


@pytest.mark.parametrize(
    ("preset", "loc", "scale", "sigma", "threshold", "flow"),
    [
        ("imagenet", 0.65, 0.27, 3.7, 0.69, (0.05, 0.1, 0.15, 0.7)),
        ("cifar", 0.6, 0.265, 1.75, 0.7, (0.2, 0.8)),
        ("tiny", 0.6, 0.25, 1.75, 0.7, (0.2, 0.8)),
    ],
)
def test_spatter_is_one_layer_of_water_that_flows(preset, loc, scale, sigma, threshold, flow):
    image = cropped(image_for(preset), preset)
    frames = perturb(image_for(preset), "spatter", preset=preset, rng=LegacyDraws(2))
    layer = nd.gaussian_filter(np.random.RandomState(2).normal(loc, scale, image.shape[:2]), sigma, mode="nearest")
    layer[layer < threshold] = 0
    for number in range(8):
        assert share_beyond(frames[number], water(image, layer)) <= 0.001
        layer = np.apply_along_axis(np.convolve, 0, layer, flow, mode="same")


def test_the_flow_is_a_convolution_of_columns():
    from holdfast.corruptions.sequences import convolve_columns

    layer = np.zeros((9, 2), np.float32)
    layer[3, 1] = 1
    np.testing.assert_allclose(
        convolve_columns(layer, (0.05, 0.1, 0.15, 0.7))[:, 1], [0, 0, 0.05, 0.1, 0.15, 0.7, 0, 0, 0], atol=1e-7
    )
    np.testing.assert_allclose(convolve_columns(layer, (0.2, 0.8))[:, 1], [0, 0, 0, 0.2, 0.8, 0, 0, 0, 0], atol=1e-7)


def test_sequences_are_keyed():
    image = image_for("cifar")
    first, again = (perturb(image, "snow", preset="cifar", rng=keyed(0, "a", "snow sequence", 1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(
        perturb(image, "snow", preset="cifar", rng=7), perturb(image, "snow", preset="cifar", rng=7)
    )
    assert (first != perturb(image, "snow", preset="cifar", rng=7)).any()


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("tilted", {}, "kind: unknown sequence 'tilted'; did you mean 'tilt'"),
        ("tilt", {"preset": "any"}, "preset: expected one of imagenet, tiny, cifar, got 'any'"),
        ("tilt", {"level": 2}, "level: expected 1 for tilt, got 2"),
        ("shot_noise", {"level": 4}, "level: expected 1 or 2 or 3 for shot_noise, got 4"),
        ("tilt", {"preset": "cifar"}, "image: cifar sequences of tilt expect 32×32, got 40×40"),
        ("snow", {}, "image: imagenet sequences of snow expect a short side of 256 pixels, got 40×40"),
        (
            "motion_blur",
            {"preset": "tiny"},
            "image: tiny sequences of motion_blur expect at least 64 pixels on each side",
        ),
    ],
)
def test_bad_requests_are_one_sentence(kind, options, sentence):
    with pytest.raises(HoldfastError) as error:
        perturb(photograph(40, 40), kind, **options)
    assert str(error.value).startswith(sentence)
