"""Digital corruptions: contrast, elastic transform, pixelate, JPEG compression and saturate."""

import io

import numpy as np
import pytest
from PIL import Image

from holdfast.corruptions import corrupt
from tests.corruptions.oracle import photograph
from tests.evaluation.test_extreme_images import peak


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (224, 224)], ids=str)
@pytest.mark.parametrize("quality", [5, 25, 80])
def test_jpeg_gives_the_bytes_of_pillow(quality, size):
    from holdfast.corruptions.digital import jpeg_compression

    image = photograph(*size)
    coded = io.BytesIO()
    Image.fromarray(image).save(coded, "JPEG", quality=quality)
    np.testing.assert_array_equal(
        jpeg_compression(image[None], [None], quality=quality)[0], np.asarray(Image.open(coded))
    )


def test_elastic_transform_of_a_very_long_image_takes_little():
    """Beyond a length the field is smoothed tap by tap: the same to rounding, without a matrix."""
    from holdfast.corruptions.digital import smooth_fields, smoothed_by_taps

    before = peak()
    assert corrupt(np.zeros((20_000, 32, 3), np.uint8), "elastic_transform", severity=3, rng=0).shape == (20_000, 32, 3)
    assert peak() - before < 2**28
    fields = np.random.default_rng(0).uniform(-1, 1, (1_000, 32, 2)).astype(np.float32)
    assert np.allclose(smooth_fields(fields, (10.0, 0.32)), smoothed_by_taps(fields, (10.0, 0.32)), atol=1e-5)
