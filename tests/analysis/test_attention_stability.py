"""Each attention measure equals a brute-force computation, and is right at the known extremes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.attention_stability import head_cosines, image_scores, layer_cosines
from holdfast.analysis.head_diversity import head_similarity, mean_pairwise
from holdfast.analysis.layer_info import map_rows
from holdfast.analysis.overfocus import concentration, effective_number, overfocus, top_share
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


@pytest.mark.parametrize("values", CHUNKS)
def test_overfocusing_equals_brute_force_whatever_the_chunk(values):
    handle = random_handle(seed=5)
    found = overfocus(handle, top=3, values=values)
    for image, head in itertools.product(range(2), range(3)):
        a = handle.maps()[image, head].double().numpy()
        entropies = [-sum(p * np.log(p) for p in row if p > 0) for row in a]
        received = a.mean(axis=0)
        assert found.effective_tokens[image, head] == pytest.approx(np.exp(entropies).mean(), rel=1e-5)
        assert found.top_share[image, head] == pytest.approx(sorted(received)[-3:] @ np.ones(3), rel=1e-5)
        herfindahl = (sum(received**2) - 1 / 12) / (1 - 1 / 12)
        assert found.column_concentration[image, head] == pytest.approx(herfindahl, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "maps", "effective", "top_2", "concentrated"),
    [
        ("uniform", torch.full((1, 1, 8, 8), 1 / 8), 8, 2 / 8, 0),
        ("one-hot", torch.eye(8)[[3] * 8][None, None], 1, 1, 1),
        ("diagonal", torch.eye(8)[None, None], 1, 2 / 8, 0),
    ],
)
def test_known_maps(name, maps, effective, top_2, concentrated):
    found = overfocus(handle_of(maps), top=2)
    assert found.effective_tokens.item() == pytest.approx(effective, rel=1e-5)
    assert found.top_share.item() == pytest.approx(top_2, rel=1e-5)
    assert found.column_concentration.item() == pytest.approx(concentrated, abs=1e-6)


@given(st.integers(2, 30), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_overfocusing_stays_within_its_bounds(tokens, top, seed):
    weights = torch.randn(4, tokens, generator=torch.Generator().manual_seed(seed)).mul(4).softmax(-1).double()
    assert ((effective_number(weights) >= 1 - 1e-9) & (effective_number(weights) <= tokens + 1e-9)).all()
    assert ((top_share(weights, top) >= min(top, tokens) / tokens - 1e-6) & (top_share(weights, top) <= 1 + 1e-6)).all()
    assert ((concentration(weights) >= -1e-6) & (concentration(weights) <= 1 + 1e-6)).all()


def test_one_token_alone_has_everything():
    assert concentration(torch.ones(2, 1)).tolist() == [1, 1]
    with pytest.raises(HoldfastError, match="top must be at least 1, got 0"):
        overfocus(random_handle(), top=0)


# ---------------------------------------------------------------------------------------------- head diversity


@pytest.mark.parametrize("values", CHUNKS)
def test_head_similarity_equals_brute_force_whatever_the_chunk(values):
    handle = random_handle(heads=4, seed=6)
    found = head_similarity(handle, values=values)
    maps = handle.maps()
    for image, i, j in itertools.product(range(2), range(4), range(4)):
        assert found[image, i, j] == pytest.approx(cosine(maps[image, i], maps[image, j]), abs=1e-6)
    pairs = [cosine(maps[1, i], maps[1, j]) for i, j in itertools.combinations(range(4), 2)]
    assert mean_pairwise(found)[1] == pytest.approx(np.mean(pairs), abs=1e-6)


def test_equal_heads_are_alike_disjoint_heads_are_not_and_one_head_has_no_pair():
    one = random_handle(heads=1).maps()
    assert mean_pairwise(head_similarity(handle_of(one.expand(-1, 3, -1, -1)))).tolist() == pytest.approx([1, 1])
    apart = torch.stack([torch.eye(5)[[0] * 5], torch.eye(5)[[1] * 5]])[None]
    assert mean_pairwise(head_similarity(handle_of(apart))).item() == pytest.approx(0, abs=1e-6)
    assert mean_pairwise(head_similarity(handle_of(one))).isnan().all()


def test_rows_come_in_order_and_whole():
    handle = random_handle(tokens=7)
    for values in (1, 2 * 3 * 7 * 2, 10**6):
        assert torch.equal(torch.cat([rows[:, 0] for rows in map_rows(handle, values=values)], dim=2), handle.maps())
