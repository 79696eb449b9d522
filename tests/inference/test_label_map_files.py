"""Predicted label maps as PNG files, for benchmark servers (ACDC and Cityscapes test) and for inspection."""

import numpy as np
import pytest
from PIL import Image

from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.inference.label_map_files import export_predictions
from tests.data.test_label_maps import save_image
from tests.evaluation.tasks.test_segmentation import Constant


def test_predictions_are_written_with_the_numbers_of_the_labels(tmp_path):
    stem = "GOPR0475_frame_000041"
    for weather in ("fog", "night", "rain", "snow"):
        save_image(tmp_path / "rgb_anon" / weather / "test" / "GOPR0475" / f"{stem}_rgb_anon.png", (9, 16))
    source = open_data(f"acdc:{tmp_path},test")
    source.box = (16, 32)
    assert export_predictions(Constant(19), source, tmp_path / "out") == 4
    written = np.array(Image.open(tmp_path / "out" / "night" / "test" / "GOPR0475" / f"{stem}.png"))
    assert written.shape == (9, 16)
    assert set(np.unique(written)) == {7}  # road's label id
    with pytest.raises(HoldfastError, match="label maps"):
        export_predictions(Constant(10), "digits", tmp_path / "out")
