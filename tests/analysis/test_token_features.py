"""Noise decay, significant eigenvalues and grouping against brute force and known cases."""

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import holdfast  # noqa: F401 - registers our models
from holdfast.analysis.noise_decay import relative_change, significant_eigenvalues
from holdfast.analysis.token_features import TokenLayout, default_modules, outputs_of
from holdfast.analysis.token_grouping import affinity, by_size, group_tokens
from holdfast.errors import HoldfastError


def test_relative_change_equals_brute_force():
    clean, noisy = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    expected = [np.linalg.norm((noisy - clean)[i].numpy()) / np.linalg.norm(clean[i].numpy()) for i in range(3)]
    assert relative_change(clean, noisy).tolist() == pytest.approx(expected, rel=1e-5)
    assert relative_change(clean, clean).tolist() == [0, 0, 0]
    assert relative_change(clean, 3 * clean).tolist() == pytest.approx([2, 2, 2])
    with pytest.raises(HoldfastError, match=r"alike, got \(3, 4, 5\), \(3, 5, 4\)"):
        relative_change(clean, noisy.mT)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (9, 9)])
def test_eigenvalues_are_those_of_the_token_affinity(shape):
    tokens = torch.randn(2, *shape) * torch.logspace(0, -3, shape[1])
    for image in range(2):
        values = np.linalg.eigvalsh((tokens[image].double() @ tokens[image].double().T).numpy())
        for epsilon in (1e-1, 1e-2, 1e-4):
            expected = int((values > epsilon * values.max()).sum())
            assert significant_eigenvalues(tokens, epsilon=epsilon)[image] == expected


@given(st.integers(1, 6), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_features_of_rank_k_have_k_significant_eigenvalues(rank, seed):
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.linalg.qr(torch.randn(1, size, rank, generator=generator)).Q for size in (16, 10))
    assert significant_eigenvalues(left @ right.mT, epsilon=1e-3).tolist() == [rank]


def test_epsilon_must_be_a_share():
    for epsilon in (0, 1, -0.5):
        with pytest.raises(HoldfastError, match="epsilon must lie between 0 and 1"):
            significant_eigenvalues(torch.randn(1, 4, 4), epsilon=epsilon)


def test_maps_become_tokens_row_by_row():
    features = torch.arange(24).reshape(1, 2, 3, 4)
    tokens = TokenLayout(grid=(3, 4)).tokens(features)  # B C H W
    assert tokens[0, 5].tolist() == features[0, :, 1, 1].tolist()
    tokens = TokenLayout(channels_last=True, grid=(2, 3)).tokens(features)  # B H W C
    assert tokens[0, 4].tolist() == features[0, 1, 1].tolist()


def test_sequences_lose_their_prefix_and_stand_row_by_row():
    features = torch.arange(5).reshape(1, 5, 1)
    layout = TokenLayout(prefix=1, grid=(2, 2), order=torch.tensor([3, 0, 2, 1]))
    assert layout.tokens(features)[0, :, 0].tolist() == [2, 4, 3, 1]


def test_outputs_are_those_of_the_modules_and_hooks_go_away():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    x = torch.randn(5, 3)
    with outputs_of(model, ["0", "1.0"]) as seen:
        model(x)
    assert torch.equal(seen["0"], model[0](x))
    assert torch.equal(seen["1.0"], model[0](x).relu())
    assert not any(module._forward_hooks for module in model.modules())
    with (
        pytest.raises(HoldfastError, match=r"modules must name parts of the model, got '1\.5'"),
        outputs_of(model, ["1.5"]),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        ("fan_nano", "blocks.0", "blocks.5", 6),
        ("vit_nano", "blocks.0", "blocks.7", 8),
        ("resnet26", "act1", "layer4.1", 9),
        ("convnext_atto", "stages.0.blocks.0", "stages.3.blocks.1", 12),
    ],
)
def test_blocks_are_found_in_attention_models_and_convolutional_ones(name, first, last, count):
    modules = default_modules(timm.create_model(name))
    assert (modules[0], modules[-1], len(modules)) == (first, last, count)


def test_a_home_made_network_is_measured_at_its_children():
    assert default_modules(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())) == ["0", "1"]


# ---------------------------------------------------------------------------------------------- grouping


def test_affinity_is_the_self_correlation_of_softmaxed_tokens():
    tokens = torch.randn(5, 7)
    p = np.exp(tokens.double().numpy())
    p /= p.sum(axis=1, keepdims=True)
    assert affinity(tokens).numpy() == pytest.approx(p @ p.T, rel=1e-6)


@pytest.mark.parametrize("clusters", [2, 3, 4])
def test_planted_groups_are_found(clusters):
    generator = torch.Generator().manual_seed(1)
    truth = torch.randperm(60, generator=generator) % clusters
    tokens = 6 * torch.eye(16)[truth * 3] + 0.3 * torch.randn(60, 16, generator=generator)
    found = group_tokens(tokens, clusters=clusters)
    pairs = {(int(a), int(b)) for a, b in zip(truth, found, strict=True)}
    assert len(pairs) == clusters  # the same partition, up to names
    assert (found == group_tokens(tokens, clusters=clusters)).all()


def test_groups_are_numbered_by_size():
    assert by_size(np.array([7, 7, 2, 2, 2, 5])).tolist() == [1, 1, 0, 0, 0, 2]
    assert by_size(np.array([3, 1, 3, 1])).tolist() == [0, 1, 0, 1]


def test_grouping_of_448_pixels_has_784_tokens():
    groups = group_tokens(torch.randn(28 * 28, 64), clusters=5)
    assert groups.shape == (784,)
    assert set(groups) <= set(range(5))


def test_a_number_of_groups_must_fit_the_tokens():
    for clusters in (1, 9):
        with pytest.raises(HoldfastError, match=r"clusters must lie between 2 and the number of tokens \(8\)"):
            group_tokens(torch.randn(8, 4), clusters=clusters)
