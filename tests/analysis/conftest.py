"""A small model and images for tests of whole analyses: seconds, not minutes."""

import numpy as np
import pytest
import timm
import torch

import holdfast  # noqa: F401 - registers our models
from holdfast.analysis.settings import Settings
from holdfast.data import ArraySource
from holdfast.data.factory import open_data

QUICK = Settings(cells=("gaussian_noise/5", "fog/3"), masks=3, occlusion_images=4, pictures=2, clusters=3)


@pytest.fixture(scope="session")
def digits():
    """Twelve digits."""
    whole = open_data("digits:test")
    chosen = np.arange(0, 12)
    return ArraySource("digits", whole.images[chosen], whole.targets[chosen], whole.classes, whole.numbers[chosen])


@pytest.fixture
def fan():
    """An untrained FAN-nano of ten classes; its attention is sharpened, so that measures have something to tell."""
    return sharpened(timm.create_model("fan_nano", num_classes=10, tap="tap"))


def sharpened(model):
    """Larger queries: attention of an untrained model is nearly even."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("attn.q.weight", "attn.qkv.weight")):
                weight.mul_(20)
    return model.eval()
