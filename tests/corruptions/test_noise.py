"""The tables that noise is drawn from against the distributions they stand for."""

import numpy as np
import pytest
from scipy import stats

from holdfast.corruptions import StreamDraws, corrupt, keyed
from holdfast.corruptions.noise import UNDECIDED, below, gaussian_law, lookup_table, shot_law, speckle_law


@pytest.mark.parametrize("photons", [3, 5, 12, 60, 500])
def test_shot_table_is_the_poisson_distribution(photons):
    counts = np.arange(photons * 6 + 60)
    results = (np.clip(counts / photons, 0, 1) * 255).astype(np.uint8)
    steps = shot_law(photons).cumulative
    for level in (0, 1, 37, 128, 200, 255):
        probability = stats.poisson.pmf(counts, level / 255 * photons)
        expected = np.bincount(results, weights=probability, minlength=256)
        assert np.abs(np.diff(steps[level], prepend=0) - expected).max() <= 1e-6


@pytest.mark.parametrize("sigma", [0.04, 0.18, 0.38])
def test_gaussian_table_is_the_normal_distribution(sigma):
    steps = gaussian_law(sigma).cumulative[0]
    for shift in (-120, -1, 0, 1, 77):  # floor(255·σ·n) = shift
        expected = stats.norm.cdf((shift + 1) / (255 * sigma)) - stats.norm.cdf(shift / (255 * sigma))
        assert steps[shift + 255] - steps[shift + 254] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("level", "sigma"), [(1, 0.15), (128, 0.35), (255, 0.6)])
def test_speckle_table_is_the_scaled_normal_distribution(level, sigma):
    steps = speckle_law(sigma).cumulative[level]
    expected = stats.norm.cdf((np.arange(255) + 1) / level, loc=1, scale=sigma)
    assert np.abs(steps[:255] - expected).max() <= 1e-12


def test_impulse_hits_exactly_its_share_of_the_words():
    words = np.arange(65536, dtype=np.uint16)[None]
    assert below(0.135, words, [keyed(0, "a", "b", 1)]).sum() in (8847, 8848)  # 0.135 · 65536 = 8847.36
    assert below(0.135, ~words, [keyed(0, "a", "b", 1)])[0, ::-1].sum() in (8847, 8848)
    split = np.full((1, 20000), 8847, np.uint16)
    assert below(0.135, split, [keyed(0, "a", "b", 1)]).mean() == pytest.approx(0.36, abs=0.02)


def test_impulse_noise_is_half_white_half_black():
    result = corrupt(np.full((400, 500, 3), 90, np.uint8), "impulse_noise", severity=5, rng=2)
    for level in (0, 255):
        assert (result == level).mean() == pytest.approx(0.135, abs=4 * np.sqrt(0.135 / result.size))
    assert set(np.unique(result)) == {0, 90, 255}


def test_guide_answers_every_16_bit_word_as_plain_inversion_does():
    cumulative = np.array([[0.1, 0.1, 0.50001, 0.7, 1.0], [0.0, 0.25, 0.25, 0.9999, 1.0]])
    built = lookup_table(cumulative, first=-2, guide_bits=12)
    words = np.arange(65536, dtype=np.uint16)
    for row in (0, 1):
        sampled = built.sample(words, np.full(65536, row, np.uint8), lambda places: np.full(places.size, 0.5))
        assert UNDECIDED not in sampled
        plain = np.searchsorted(cumulative[row], (words + 0.5) / 65536, side="right") - 2
        decided = built.guide.reshape(2, -1)[row][words >> 4] != UNDECIDED
        np.testing.assert_array_equal(sampled[~decided], plain[~decided])
        np.testing.assert_array_equal(sampled[decided], plain[decided])


@pytest.mark.parametrize(("kind", "level"), [("gaussian_noise", 90), ("shot_noise", 90), ("speckle_noise", 200)])
def test_samples_follow_their_table(kind, level):
    tables = {"gaussian_noise": gaussian_law(0.18), "shot_noise": shot_law(12), "speckle_noise": speckle_law(0.35)}
    steps = tables[kind].cumulative
    if kind == "gaussian_noise":
        clipped = np.searchsorted(np.clip(np.arange(-255, 256) + level, 0, 255), np.arange(256), side="right") - 1
        steps = np.where(np.arange(256) < 255, steps[0][clipped], 1.0)
    else:
        steps = steps[level]
    image = np.full((400, 500, 3), level, np.uint8)
    seen = np.bincount(corrupt(image, kind, severity=3, rng=11).ravel(), minlength=256)
    expected = np.diff(steps, prepend=0) * image.size
    likely = expected > 20
    statistic = ((seen - expected)[likely] ** 2 / expected[likely]).sum()
    assert stats.chi2.sf(statistic, likely.sum() - 1) > 1e-4
    assert seen[~likely].sum() == pytest.approx(expected[~likely].sum(), abs=6 * np.sqrt(expected[~likely].sum() + 9))


def test_fields_have_the_moments_of_their_distribution():
    draws = keyed(0, "image", "fog", 1)
    normal, uniform = draws.normal((1000, 1000)), draws.uniform(-2, 6, (1000, 1000))
    assert normal.mean() == pytest.approx(0, abs=0.005)
    assert normal.std() == pytest.approx(1, abs=0.003)
    assert stats.kurtosis(normal.ravel()) == pytest.approx(0, abs=0.03)
    assert uniform.min() >= -2
    assert uniform.max() < 6
    assert uniform.mean() == pytest.approx(2, abs=0.02)


@pytest.mark.parametrize("span", [4, 16, 36, 64, 100])
def test_whole_numbers_are_equally_likely(span):
    seen = np.bincount(StreamDraws(np.random.default_rng(3)).integers(0, span, (400, 400)).ravel(), minlength=span)
    assert len(seen) == span
    assert stats.chisquare(seen).pvalue > 1e-4


@pytest.mark.parametrize("bits", [np.random.Philox, np.random.PCG64, np.random.MT19937])
def test_every_generator_fills_all_bits_of_its_words(bits):
    words = StreamDraws(np.random.Generator(bits(1))).words(40000).reshape(-1, 4)
    for place in range(4):
        assert words[:, place].mean() == pytest.approx(32767.5, abs=800)
