"""Looking inside a segmenter's encoder: what is possible at any size, and what is refused."""

import pytest
import torch

import holdfast
from holdfast.analysis.settings import Settings
from holdfast.analysis.token_grouping import MOST_TOKENS, groups_figure, sample_grid
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from tests.tasks.detectors import plain_mask_rcnn

ONE = {"settings": Settings(pictures=1), "show": False}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11).eval()


def test_the_encoder_is_seen_at_the_images_own_size(model):
    names = "stability,overfocus,noise-decay,grouping,patches"
    found = holdfast.analyze(model, "scenes:test,64x128,1", names, **ONE)
    assert set(found.results) == {"stability", "overfocus", "noise-decay", "grouping"}
    assert found.results["stability"].header["size"] == [64, 128]
    layer = found.results["overfocus"].header["layers"][0]
    assert layer["tokens"] == (64 // 16) * (128 // 16)
    assert not found.results["stability"].header["answers"]  # an image has no single class
    assert "not those of the data" in found.skipped["patches"]


def test_of_a_large_grid_every_second_row_and_column_is_grouped_and_the_figure_says_so(model, monkeypatch):
    step, places = sample_grid((64, 128))
    assert step == 2
    assert places.shape == (32, 64)
    assert places.size == MOST_TOKENS
    assert places[0].tolist()[:2] == [128 + 1, 128 + 3]
    assert sample_grid((28, 28))[0] == 1
    monkeypatch.setattr("holdfast.analysis.token_grouping.MOST_TOKENS", 8)
    result = holdfast.analyze(model, "scenes:test,64x128,1", "grouping", **ONE).results["grouping"]
    assert result.header["every"] == [2] * len(result.header["modules"])
    assert result.arrays["groups/clean/0"].shape == (1, 2, 4)
    assert any("every 2nd row and column" in text.get_text() for text in groups_figure(result).texts)


def test_detectors_and_wrong_sizes_are_one_sentence(capsys):
    with pytest.raises(HoldfastError, match="not detectors"):
        holdfast.analyze(plain_mask_rcnn(), "scene-objects:test,64x80,1", "stability", **ONE)
    assert main(["analyze", "run:nowhere", "--data", "digits", "--size", "10x20x30"]) == 2
    assert "size must be a number of pixels, or HEIGHTxWIDTH" in capsys.readouterr().err
