"""The independent reference: imagecorruptions-imaug as a black box, and sources that replay the draws it makes."""

# ruff: noqa: NPY002 - the legacy stream is what the reference draws from
import functools
import warnings

import cv2
import imagecorruptions
import numba
import numpy as np
from sklearn.datasets import load_sample_image

from holdfast.corruptions import LegacyDraws

NEED_A_SEED = ("glass_blur", "impulse_noise")  # these two do not follow numpy.random.seed


@functools.cache
def photograph(height, width, name="china.jpg"):
    image = cv2.resize(load_sample_image(name), (width, height), interpolation=cv2.INTER_AREA)
    image.flags.writeable = False
    return image


def oracle(image, kind, severity, seed):
    np.random.seed(seed)
    keywords = {"seed": seed} if kind in NEED_A_SEED else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return imagecorruptions.corrupt(image, severity, kind, **keywords)


def replay(kind, seed):
    """A source of the draws the reference makes for this seed."""
    return {"glass_blur": CompiledDraws, "impulse_noise": ModernDraws}.get(kind, LegacyDraws)(seed)


def seed_without_the_sixth_texture(start):
    """The fork draws frost from six textures, everybody else from five; seeds that draw one of the five agree."""
    return next(seed for seed in range(start, start + 100) if np.random.RandomState(seed).randint(6) < 5)


def share_beyond(ours, theirs, levels=1):
    return float((np.abs(ours.astype(int) - theirs) > levels).mean())


class CompiledDraws(LegacyDraws):
    """The stream inside numba-compiled functions, drawn one pair of offsets after another."""

    def __init__(self, seed):
        super().__init__(seed)
        self.seed, self.used = seed, 0

    def integers(self, low, high, shape=()):
        count = int(np.prod(shape)) // 2
        pairs = _compiled_pairs(self.seed, self.used + count, low, high)[self.used :]
        self.used += count
        return pairs.reshape(shape)


class ModernDraws(LegacyDraws):
    """scikit-image's own generator."""

    def __init__(self, seed):
        super().__init__(seed)
        self.generator = np.random.default_rng(seed)

    def uniform(self, low, high, shape=()):
        return self.generator.uniform(low, high, shape)


@numba.njit
def _compiled_pairs(seed, count, low, high):
    np.random.seed(seed)
    pairs = np.empty((count, 2), np.int64)
    for number in range(count):
        pairs[number, 0] = np.random.randint(low, high)
        pairs[number, 1] = np.random.randint(low, high)
    return pairs
