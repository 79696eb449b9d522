"""Our own stream against the reference's law on real photographs: mean, deviation and spectrum of many draws.

The reference is the same corruption fed with the legacy stream, which `test_fidelity` shows to be the published one.
"""

import numpy as np
import pytest
import scipy.fft
import scipy.stats

from holdfast.corruptions import ALL, KINDS, LegacyDraws, StreamDraws, corrupt_batch, parameters
from holdfast.corruptions.apply import FUNCTIONS
from tests.corruptions.oracle import photograph

# draws of a quick and of a full check; the full ones bring three standard errors of the mean below 0.3 level
DRAWS = {
    "gaussian_noise": (64, 256),
    "shot_noise": (64, 256),
    "impulse_noise": (64, 256),
    "speckle_noise": (64, 256),
    "glass_blur": (512, 1024),
    "elastic_transform": (512, 1024),
    "motion_blur": (1024, 4096),
    "snow": (2048, 40000),
    "spatter": (512, 4096),
    "frost": (4096, 200000),
    "fog": (8192, 48000),
}
SIDE, CHUNK = 32, 16
RADIUS = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
BANDS = [(low < RADIUS) & (low + 0.1 >= RADIUS) for low in (0.02, 0.1, 0.2, 0.3, 0.4)]


def moments(batches):
    """Mean and its squared standard error, deviation, and log power in five bands, over all draws."""
    means, squares, power, count = [], 0.0, 0.0, 0
    for batch in batches:
        values = np.asarray(batch, np.float32)
        count += values.size
        means += values.mean(axis=(1, 2, 3), dtype=np.float64).tolist()
        squares += (values.astype(np.float64) ** 2).sum()
        power = power + (np.abs(scipy.fft.rfft2(values, axes=(1, 2))) ** 2).sum(axis=(0, 3), dtype=np.float64)
    mean, spectrum = np.mean(means), np.array([np.log(power[band].mean() / count) for band in BANDS])
    return mean, np.var(means) / len(means), np.sqrt(squares / count - mean**2), spectrum


def own(image, kind, severity, draws):
    for start in range(0, draws, CHUNK):
        yield corrupt_batch([image] * CHUNK, kind, ids=range(start, start + CHUNK), severity=severity, seed=1)


def literal(image, kind, severity, draws):
    values, source = parameters(kind, severity), LegacyDraws(2)
    stack = np.stack([image] * CHUNK)
    for _ in range(0, draws, CHUNK):
        yield FUNCTIONS[kind](stack, [source] * CHUNK, **values)


def check(kind, severity, name, *, draws):
    image = photograph(SIDE, SIDE, name)
    mean, variance, deviation, spectrum = moments(own(image, kind, severity, draws))
    other_mean, other_variance, other_deviation, other_spectrum = moments(literal(image, kind, severity, draws))
    assert mean == pytest.approx(other_mean, abs=max(0.3, 3 * np.sqrt(variance + other_variance)))
    assert deviation == pytest.approx(other_deviation, rel=0.02)
    assert np.abs(spectrum - other_spectrum).max() <= 0.1


@pytest.mark.parametrize("kind", DRAWS)
def test_severity_3_has_the_law_of_the_reference(kind):
    check(kind, 3, "flower.jpg", draws=DRAWS[kind][0])


@pytest.mark.full
@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
@pytest.mark.parametrize("severity", [1, 2, 4, 5])
@pytest.mark.parametrize("kind", DRAWS)
def test_all_severities_have_the_law_of_the_reference(kind, severity, name):
    check(kind, severity, name, draws=DRAWS[kind][0])


@pytest.mark.full
@pytest.mark.parametrize("kind", DRAWS)
def test_many_draws_have_the_law_of_the_reference(kind):
    check(kind, 3, "china.jpg", draws=DRAWS[kind][1])


class Noted(StreamDraws):
    """Keeps what single numbers were drawn."""

    def __init__(self, seed):
        super().__init__(np.random.default_rng(seed))
        self.angles, self.places = [], []

    def uniform(self, low, high, shape=()):
        drawn = super().uniform(low, high, shape)
        self.angles += [] if shape else [float(drawn)]
        return drawn

    def integers(self, low, high, shape=()):
        drawn = super().integers(low, high, shape)
        self.places += [] if shape else [(int(drawn) - low) / (high - low)]
        return drawn


@pytest.mark.parametrize(("kind", "low", "high"), [("motion_blur", -45, 45), ("snow", -135, -45)])
def test_angles_are_uniform(kind, low, high):
    source = Noted(3)
    FUNCTIONS[kind](np.zeros((500, 32, 32, 3), np.uint8), [source] * 500, **parameters(kind, 1))
    assert len(source.angles) == 500
    assert scipy.stats.kstest(source.angles, "uniform", (low, high - low)).pvalue > 1e-3


def test_frost_draws_five_textures_and_all_windows():
    source = Noted(4)
    FUNCTIONS["frost"](np.zeros((1500, 32, 32, 3), np.uint8), [source] * 1500, **parameters("frost", 1))
    textures, rows, columns = (np.array(source.places[start::3]) for start in range(3))
    assert scipy.stats.chisquare(np.unique(textures, return_counts=True)[1]).pvalue > 1e-3
    assert set(textures) == {0.0, 0.2, 0.4, 0.6, 0.8}
    for places in (rows, columns):
        assert scipy.stats.kstest(places, "uniform").pvalue > 1e-3


def test_every_random_kind_is_checked():
    assert set(DRAWS) == {name for name in ALL if KINDS[name].random}
