"""Weather corruptions: snow, frost, fog, brightness and spatter."""

import numpy as np

from holdfast.corruptions import weather
from holdfast.corruptions.rng import StreamDraws
from holdfast.corruptions.weather import snowflakes


def test_a_fog_map_is_the_same_whether_its_levels_are_refined_whole_or_in_strips(monkeypatch):
    def clouds():
        return weather.plasma(256, 1.7, [StreamDraws(np.random.default_rng(seed)) for seed in (1, 2)])

    whole = clouds()
    monkeypatch.setattr(weather, "LARGE_MAP", 1)
    np.testing.assert_array_equal(clouds(), whole)


def test_the_blurred_flakes_of_snow_floor():
    layer = np.zeros((9, 32), np.float32)
    layer[4, 20] = 1
    flakes = snowflakes(layer, 0, threshold=0.5, radius=6, sigma=1.8, eight_bit=True)
    assert flakes[4, 18:22].tolist() == [49, 79, 92, 0]  # 255·k: 49.9, 79.3, 92.5
    rounded = snowflakes(layer, 0, threshold=0.5, radius=6, sigma=1.8, eight_bit=False)  # as imagecorruptions does
    assert rounded[4, 18:22].tolist() == [50, 79, 93, 0]
