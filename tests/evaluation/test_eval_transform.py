"""Resize and crop as timm does it, and in words."""

import numpy as np
import pytest
from PIL import Image
from timm.data import create_transform

from holdfast.errors import HoldfastError
from holdfast.evaluation.eval_transform import CROP_MODES, EvalTransform

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (70, 90, 3)).astype(np.uint8))
BASE = {"size": (32, 32), "crop_pct": 0.8, "crop_mode": "center", "interpolation": "bicubic", "mean": (0.5, 0.5, 0.5)}


@pytest.mark.parametrize("mode", CROP_MODES)
@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_pixels_are_timms(mode, size):
    ours = EvalTransform(**{**BASE, "crop_mode": mode, "size": size})(PICTURE)
    about = {"crop_pct": 0.8, "crop_mode": mode, "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (1.0,) * 3}
    theirs = create_transform((3, *size), **about)(PICTURE)
    assert ours.shape == (*size, 3)
    np.testing.assert_array_equal(ours, (255 * (theirs + 0.5)).round().byte().permute(1, 2, 0).numpy())


def test_records_keep_it_in_words():
    assert EvalTransform(**BASE).words() == "short side 40 bicubic, centre crop 32×32"
    assert EvalTransform(**{**BASE, "crop_mode": "squash"}).words() == "40×40 bicubic, centre crop 32×32"
    assert EvalTransform(**{**BASE, "size": (24, 40)}).words() == "scaled to cover 30×50 bicubic, centre crop 24×40"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"crop_pct": 0}, "crop_pct must be above 0"),
        ({"crop_pct": 1.1}, "crop_pct must be above 0 and at most 1"),
        ({"crop_mode": "middle"}, "crop_mode must be one of center, squash, border"),
        ({"interpolation": "bicubi"}, "got 'bicubi'; did you mean 'bicubic'"),
    ],
)
def test_anything_else_is_one_sentence(changed, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        EvalTransform(**{**BASE, **changed})
