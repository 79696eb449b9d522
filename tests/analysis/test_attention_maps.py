"""Attention maps of a few images: N × N, and one query's map over the image."""

import numpy as np

from holdfast.analysis import attention_maps
from tests.analysis.test_figure_groups import texts
from tests.analysis.test_unlike import maps_of


def test_the_cosine_below_a_picture_is_that_pictures():
    found = maps_of("a", "f", 100)
    found.arrays["query/corrupted/0"][0] = [[1, 0], [0, 0]]
    found.arrays["mean/corrupted/0"][0] = np.eye(4)
    assert f"cosine {1 / 2:.3f}" in texts(attention_maps.query_overlays([found]))  # ⟨1111, 1000⟩ / (2 · 1)
    figure = attention_maps.mean_maps([found])
    assert f"cosine {4 / (4 * 2):.3f}" in texts(figure)
    assert "clipped" in texts(figure)
