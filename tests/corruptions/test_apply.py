"""Odd sizes, constant images and bad input."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.corruptions import ALL, KINDS, PRESETS, SEVERITIES, corrupt, corrupt_batch
from holdfast.corruptions.apply import LARGEST_SIDE
from holdfast.errors import HoldfastError
from tests.corruptions.oracle import photograph

IMAGE = photograph(32, 32)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALL),
    st.sampled_from(SEVERITIES),
    st.integers(32, 90),
    st.integers(32, 90),
    st.integers(0, 2**64),
)
def test_every_size_keeps_its_shape_and_its_input(kind, severity, height, width, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    copy = image.copy()
    result = corrupt(image, kind, severity=severity, rng=seed)
    assert result.shape == image.shape
    assert result.dtype == np.uint8
    assert result.flags.writeable
    assert not np.shares_memory(result, image)
    np.testing.assert_array_equal(image, copy)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("shape", [(32, 32), (32, 500), (500, 32), (33, 47)], ids=str)
def test_all_severities_work_on_extreme_shapes(kind, shape):
    image = photograph(*shape)
    results = [corrupt(image, kind, severity=severity, rng=1) for severity in SEVERITIES]
    assert {result.shape for result in results} == {(*shape, 3)}
    assert all(result.flags.writeable for result in results)
    assert any((result != image).any() for result in results)


@pytest.mark.parametrize("level", [0, 255])
@pytest.mark.parametrize("preset", ["any", "cifar"])
@pytest.mark.parametrize("kind", ALL)
def test_constant_images_stay_sane(kind, preset, level):
    image = np.full((32, 32, 3), level, np.uint8)
    for severity in SEVERITIES:
        result = corrupt(image, kind, severity=severity, preset=preset, rng=severity)
        if kind in ("shot_noise", "speckle_noise", "fog") and level == 0:
            assert result.max() == 0
        if KINDS[kind].group in ("blur", "digital") and not (kind == "saturate" and level == 255):
            # the motion trail of a tiny image is cut without renormalising, which darkens it
            assert np.abs(result.astype(int) - level).max() <= (80 if kind == "motion_blur" else 3)
        if kind in ("spatter", "brightness") and level == 255:
            assert result.mean() > 60


def test_spatter_without_a_single_drop_leaves_the_image_alone():
    from holdfast.corruptions.weather import spatter

    class NoDrops:
        literal = False

        def normal(self, shape):
            return np.full(shape, -9.0, np.float32)

    for mud in (0, 1):
        parameters = {"loc": 0.65, "scale": 0.3, "sigma": 2, "threshold": 0.68, "gain": 0.5, "mud": mud}
        np.testing.assert_array_equal(spatter(IMAGE[None], [NoDrops()], **parameters)[0], IMAGE)


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (IMAGE / 255.0, "image: expected uint8 with values 0 to 255, got float64"),
        (IMAGE.astype(np.uint16), "image: expected uint8 with values 0 to 255, got uint16"),
        (np.zeros((32, 32, 4), np.uint8), "image: expected H×W×3 (RGB) or H×W (grey), got shape (32, 32, 4)"),
        (np.zeros((1, 32, 32, 3), np.uint8), "image: expected H×W×3 (RGB) or H×W (grey), got shape (1, 32, 32, 3)"),
        (np.zeros((31, 40, 3), np.uint8), "image: expected at least 32 pixels on each side, got 31×40"),
        (
            np.zeros((32, 40000, 3), np.uint8),
            "image: expected at most 32766 pixels on each side and 2^29 in all, got 32×40000",
        ),
        ("cat.png", "image: expected a NumPy array of uint8, H×W×3, got str"),
    ],
)
def test_bad_images_are_refused_in_one_sentence(image, sentence):
    with pytest.raises(HoldfastError) as error:
        corrupt(image, "fog", severity=3)
    assert str(error.value) == sentence


def test_the_longest_images_that_are_taken_go_through_every_look_up():
    image = np.resize(IMAGE, (32, LARGEST_SIDE, 3))
    assert corrupt(image, "elastic_transform", severity=3).shape == image.shape
    with pytest.raises(HoldfastError, match="expected at most 32766 pixels on each side"):
        corrupt(np.zeros((32, LARGEST_SIDE + 1, 3), np.uint8), "elastic_transform", severity=3)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, "3", None, True])
def test_severities_outside_1_to_5_are_refused(severity):
    with pytest.raises(HoldfastError, match="severity: expected a whole number from 1 to 5, got"):
        corrupt(IMAGE, "fog", severity=severity)


def test_unknown_kinds_name_the_nearest():
    with pytest.raises(HoldfastError, match="kind: unknown corruption 'gausian_noise'; did you mean 'gaussian_noise'"):
        corrupt(IMAGE, "gausian_noise")
    with pytest.raises(HoldfastError, match="expected one of gaussian_noise, shot_noise"):
        corrupt(IMAGE, "xyz")


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "any"])
def test_presets_take_their_own_size_only(preset):
    with pytest.raises(HoldfastError, match=f"preset '{preset}' is defined for .* use preset 'any' for other sizes"):
        corrupt(photograph(40, 40), "fog", preset=preset)


def test_unknown_preset_rng_and_missing_ids_are_refused():
    with pytest.raises(
        HoldfastError, match="preset: expected one of imagenet, tiny, cifar, inception, any, got 'imagnet'"
    ):
        corrupt(IMAGE, "fog", preset="imagnet")
    with pytest.raises(HoldfastError, match="rng: expected a seed, a NumPy generator or a source of draws, got str"):
        corrupt(IMAGE, "fog", rng="0")
    with pytest.raises(HoldfastError, match="ids: expected one per image, 2 in all, got 1"):
        corrupt_batch([IMAGE, IMAGE], "fog", ids=["a"])


def test_no_rng_means_fresh_draws_and_a_generator_is_used_as_it_is():
    assert (corrupt(IMAGE, "gaussian_noise") != corrupt(IMAGE, "gaussian_noise")).any()
    first, second = (corrupt(IMAGE, "snow", rng=np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_package_works_without_torch():
    code = (
        "import sys, holdfast.corruptions; sys.exit(bool({'torch', 'timm', 'torchvision', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
