"""Each attention measure equals a brute-force computation, and is right at the known extremes."""

import itertools

import numpy as np
import pytest
import torch

from holdfast.analysis.attention_stability import head_cosines, image_scores, layer_cosines
from holdfast.errors import HoldfastError
from tests.analysis.handles import handle_of, random_handle

CHUNKS = (1, 100, 2**23)  # values in memory: one row at a time, some rows, everything


def cosine(a, b):
    a, b = np.asarray(a, dtype=np.float64).ravel(), np.asarray(b, dtype=np.float64).ravel()
    return a @ b / np.sqrt((a @ a) * (b @ b))


# ---------------------------------------------------------------------------------------------- stability


@pytest.mark.parametrize("values", CHUNKS)
def test_stability_equals_brute_force_whatever_the_chunk(values):
    clean, corrupted = random_handle(seed=1), random_handle(seed=2)
    found = head_cosines(clean, corrupted, values=values)
    a, b = clean.maps(), corrupted.maps()
    for image, head in itertools.product(range(2), range(3)):
        assert found.flattened[image, head] == pytest.approx(cosine(a[image, head], b[image, head]), abs=1e-6)
        rows = [cosine(a[image, head, row], b[image, head, row]) for row in range(12)]
        assert found.row_wise[image, head] == pytest.approx(np.mean(rows), abs=1e-6)


@pytest.mark.parametrize("values", CHUNKS)
def test_windows_of_an_image_are_parts_of_one_vector(values):
    options = {"batch": 2 * 6, "tokens": 4, "kind": "window", "grid": (2, 2), "windows": (2, 3)}
    clean, corrupted = random_handle(seed=1, **options), random_handle(seed=2, **options)
    found = head_cosines(clean, corrupted, values=values)
    assert found.flattened.shape == (2, 3)
    a, b = clean.maps().unflatten(0, (2, 6)), corrupted.maps().unflatten(0, (2, 6))
    assert found.flattened[1, 2] == pytest.approx(cosine(a[1, :, 2], b[1, :, 2]), abs=1e-6)
    rows = [cosine(a[1, window, 2, row], b[1, window, 2, row]) for window in range(6) for row in range(4)]
    assert found.row_wise[1, 2] == pytest.approx(np.mean(rows), abs=1e-6)


def test_identical_maps_score_one_and_disjoint_ones_zero():
    same = random_handle()
    assert torch.allclose(head_cosines(same, same).flattened, torch.ones(2, 3), atol=1e-6)
    assert torch.allclose(head_cosines(same, same).row_wise, torch.ones(2, 3), atol=1e-6)
    first, second = torch.eye(6)[[0] * 6], torch.eye(6)[[1] * 6]
    apart = head_cosines(handle_of(first[None, None]), handle_of(second[None, None]))
    assert apart.flattened.abs().max() < 1e-6
    assert apart.row_wise.abs().max() < 1e-6


def test_an_images_score_is_the_mean_over_all_heads_of_all_layers():
    clean = [random_handle(heads=2, seed=1), random_handle(heads=4, tokens=9, seed=2)]
    corrupted = [random_handle(heads=2, seed=3), random_handle(heads=4, tokens=9, seed=4)]
    scores = image_scores([layer.flattened for layer in layer_cosines(clean, corrupted)])
    each = [
        cosine(a.maps()[1, head], b.maps()[1, head])
        for a, b in zip(clean, corrupted, strict=True)
        for head in range(a.q.shape[1])
    ]
    assert len(each) == 6
    assert scores[1] == pytest.approx(np.mean(each), abs=1e-6)


def test_mixed_token_grids_are_refused():
    with pytest.raises(HoldfastError, match="same images, heads and token grid, got 2×3 maps of a 3×4 grid and 2×3"):
        head_cosines(random_handle(grid=(3, 4)), random_handle(grid=(4, 3)))
    with pytest.raises(HoldfastError, match="same images, heads and token grid"):
        head_cosines(random_handle(tokens=12), random_handle(tokens=16))
    with pytest.raises(HoldfastError, match="same layers, got 1 and 2"):
        layer_cosines([random_handle()], [random_handle()] * 2)
    with pytest.raises(HoldfastError, match="same layers, got 0 and 0"):
        layer_cosines([], [])


# ---------------------------------------------------------------------------------------------- overfocusing


# ---------------------------------------------------------------------------------------------- head diversity
