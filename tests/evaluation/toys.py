"""Models whose answers can be read off the pixels, and data to ask them about."""

import time

import numpy as np
import torch
from torch import nn

from holdfast.data.source import ArraySource


class Brightest(nn.Module):
    """Three classes: the channel with the largest mean."""

    def forward(self, images):
        return 20 * images.mean(dim=(2, 3))


class ByLevel(nn.Module):
    """As many classes as asked for: the mean red level by ``step``, to the nearest."""

    def __init__(self, classes, step):
        super().__init__()
        self.classes, self.step = classes, step
        self.register_buffer("levels", step * torch.arange(classes).float())

    def forward(self, images):
        return -(255 * images[:, 0].mean(dim=(1, 2))[:, None] - self.levels).abs()


class Slow(Brightest):
    """A model that takes its time."""

    def forward(self, images):
        time.sleep(0.05)
        return super().forward(images)


class Views(nn.Module):
    """Three predictions: right, always class 1, and what the other two say together."""

    def views(self, images):
        acc = 20 * images.mean(dim=(2, 3))
        rob = torch.eye(3)[1].expand(len(images), 3) * 100
        return {"joint": acc, "acc": acc, "rob": rob}

    def forward(self, images):
        return self.views(images)["joint"]


def brightest():
    return Brightest()


def slow():
    return Slow()


def not_a_model():
    return "brightest"


def colours(count=30, *, seed=0, size=32):
    """Noisy images of which one channel is brighter, often by very little; classes 0, 1, 2 in turn."""
    rng = np.random.default_rng(seed)
    images = rng.integers(60, 180, (count, size, size, 3)).astype(np.int64)
    targets = np.arange(count) % 3
    for number, target in enumerate(targets):
        images[number, :, :, target] += rng.choice([0, 1, 2, 30])
    return ArraySource("colours", images.astype(np.uint8), targets, ("red", "green", "blue"), np.arange(count))


def plain(targets, *, margin, level=100, size=32):
    """Images of one colour: the channel of the target is brighter than the others by ``margin`` levels."""
    images = np.full((len(targets), size, size, 3), level, dtype=np.uint8)
    for number, (target, more) in enumerate(zip(targets, margin, strict=True)):
        images[number, :, :, target] += more
    return ArraySource("plain", images, np.array(targets), ("red", "green", "blue"), np.arange(len(targets)))


def brightest_channel(image):
    """What `Brightest` says of one image, by NumPy."""
    return int(image.reshape(-1, 3).mean(axis=0).argmax())
