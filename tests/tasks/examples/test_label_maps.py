"""Example images of segmentation: label maps over the picture, and the wrong pixels below a prediction."""

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import ComputeConfig
from holdfast.data.scenes import SceneSource
from holdfast.tasks.examples.label_maps import MapExamples
from tests.reporting.sections.test_examples import (
    QUICK,  # helper
    stored,  # helper
)


class Level(nn.Module):
    """Eleven classes by the level of the red channel, moved by ``shift``."""

    def __init__(self, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, images):
        levels = torch.arange(11).view(1, -1, 1, 1) / 10 + self.shift
        return -(images[:, :1] - levels).square() * 40


def test_segmenters_are_seen_side_by_side(tmp_path):
    source = SceneSource("test", size=(40, 48), count=2)
    for name, shift in (("one", 0.0), ("two", 0.05)):
        options = {"out": tmp_path / name, "compute": ComputeConfig(keep_examples=8), **QUICK}
        records = holdfast.evaluate(Level(shift), source, "clean", **options)
    (example, *_) = stored(records)
    number = [source.id(index) for index in range(2)].index(example.id)
    drawing, picture = MapExamples(), Image.open(io.BytesIO(example.picture))
    image = torch.from_numpy(np.asarray(source.image(number)).copy()).permute(2, 0, 1)[None] / 255
    seen, true = Level(0.05)(image)[0].argmax(0).numpy(), source.target(number)
    said = drawing.answer(picture, example.fields, source.classes)
    assert said.right == pytest.approx((seen == true)[true != 255].mean())
    truth = np.asarray(drawing.truth(picture, example.fields, source.classes).picture)
    classes = [value for value in np.unique(true) if value != 255]
    means = np.array([truth[true == value].mean(axis=0) for value in classes])
    assert len(np.unique(means.round(), axis=0)) == len(classes)  # each class in its own colour
    text = holdfast.report([tmp_path / "one", tmp_path / "two"])
    figures = re.findall(r'<figure class="example".*?</figure>', text, re.S)
    assert figures
    assert {figure.count("<img") for figure in figures} == {4}  # the image, the truth, both models
    assert all(">one</span>" in figure and ">two</span>" in figure for figure in figures)
