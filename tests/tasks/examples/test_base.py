"""Examples of classification, and thumbnails: small images keep every pixel."""

import io

import numpy as np
import pytest
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.records.records import CellRecord
from holdfast.tasks.examples.base import CLASS_EXAMPLES, class_name, encode_picture, thumbnail

NAMES = ("cat", "dog")
CELL = CellRecord(
    ids=np.array(["a", "b", "c"]),
    targets=np.array([0, 1, 1]),
    fields={"predictions": np.array([0, 0, 0]), "confidences": np.array([0.9, 0.6, 0.8], np.float32)},
    header={},
)


def test_the_hardest_example_is_the_most_confident_error():
    assert CLASS_EXAMPLES.hardness(CELL).tolist() == pytest.approx([0, 0.6, 0.8])


def test_captions_name_classes_and_say_how_sure_the_model_was():
    picture = Image.new("RGB", (4, 4))
    kept = CLASS_EXAMPLES.recorded_answer(CELL, 2)
    assert CLASS_EXAMPLES.truth(picture, kept, NAMES).words == "dog"
    answer = CLASS_EXAMPLES.answer(picture, kept, NAMES)
    assert (answer.words, answer.right, answer.sure) == ("cat, 80 %", 0, pytest.approx(0.8))
    assert CLASS_EXAMPLES.answer(picture, CLASS_EXAMPLES.recorded_answer(CELL, 0), NAMES).right == 1
    assert class_name(5, NAMES) == "5"
    with pytest.raises(HoldfastError, match="hold the predictions"):
        CLASS_EXAMPLES.predicted_answer(None, None, size=(4, 4), cell="clean")


def test_small_pictures_keep_every_pixel_and_large_ones_their_proportions():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    small = thumbnail(pixels, side=112)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_picture(small)))), pixels)
    large = thumbnail(np.zeros((200, 400, 3), np.uint8), side=112)
    assert large.size == (112, 56)
    assert Image.open(io.BytesIO(encode_picture(large))).format == "JPEG"
