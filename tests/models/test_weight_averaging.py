"""Averages of weights, against values computed by hand (WiSE-FT, model soups)."""

import pytest
import torch
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.models.weight_averaging import (
    GREEDY_RULES,
    GreedyRule,
    average,
    greedy_soup,
    interpolate,
    reestimate_batch_norm,
    uniform_soup,
)


@pytest.mark.parametrize(("alpha", "output"), [(0, 2), (0.25, 1.875), (0.5, 1), (0.75, -0.625), (1, -3)])
def test_weights_are_interpolated_and_not_outputs(alpha, output):
    """b · relu(a · x) at x = 1: the mean of the outputs would be 0.75 at α = 0.25."""
    start = {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}
    end = {"a": torch.tensor(3.0), "b": torch.tensor(-1.0)}
    mixed = interpolate(start, end, alpha)
    assert float(mixed["b"] * torch.relu(mixed["a"])) == output


def test_the_ends_are_the_parents_bit_for_bit_also_where_numbers_are_not_finite():
    start = {"w": torch.tensor([float("inf"), float("nan"), -0.0]), "n": torch.tensor(3)}
    end = {"w": torch.randn(3), "n": torch.tensor(3)}
    for alpha, parent in ((0, start), (1, end)):
        mixed = interpolate(start, end, alpha)
        assert all(mixed[key].numpy().tobytes() == parent[key].numpy().tobytes() for key in parent)


def test_a_long_sum_of_halves_is_rounded_once():
    states = [{"w": torch.tensor([0.10009766, 1.234375], dtype=torch.float16)}] * 72
    assert torch.equal(uniform_soup(states)["w"], states[0]["w"])


def test_counters_come_from_the_last_model_and_structural_integers_must_agree():
    def state(count, index):
        return {"norm.num_batches_tracked": torch.tensor(count), "relative_position_index": torch.tensor(index)}

    mixed = interpolate(state(100, [0, 1]), state(201, [0, 1]), 0.5)
    assert (mixed["norm.num_batches_tracked"].dtype, int(mixed["norm.num_batches_tracked"])) == (torch.int64, 201)
    with pytest.raises(HoldfastError, match="relative_position_index"):
        interpolate(state(1, [0, 1]), state(1, [1, 0]), 0.5)


def test_tied_weights_stay_tied():
    def state():
        weight = torch.randn(3, 2)
        return {"embedding.weight": weight, "decoder.weight": weight, "decoder.bias": torch.randn(3)}

    mixed = average([state(), state()], [0.3, 0.7])
    assert mixed["embedding.weight"].data_ptr() == mixed["decoder.weight"].data_ptr()


@pytest.mark.parametrize("other", [{"v": torch.zeros(2)}, {"w": torch.zeros(3)}])
def test_other_architectures_are_refused(other):
    with pytest.raises(HoldfastError, match="same architecture"):
        interpolate({"w": torch.zeros(2)}, other, 0.5)


THRESHOLDS = (8.8, 6.7, 1.7, 2.0, 8.7)  # A to E: 1 if x > threshold
X = torch.arange(0.5, 10)


def held_out(members) -> float:
    threshold = sum(THRESHOLDS[number] for number in members) / len(members)
    return float(((threshold < X) == (X > 5)).float().mean().round(decimals=6))


@pytest.mark.parametrize(
    ("accept_ties", "later_first", "tried", "members"),
    [
        (False, True, "BDCEA", "BD"),
        (True, True, "BDCEA", "BDE"),
        (False, False, "BCDAE", "BC"),
        (True, False, "BCDAE", "BCAE"),
    ],
)
def test_greedy_soups_follow_both_published_rules(accept_ties, later_first, tried, members):
    scores = [held_out([number]) for number in range(5)]
    assert scores == pytest.approx([0.6, 0.8, 0.7, 0.7, 0.6])
    soup = greedy_soup(scores, held_out, GreedyRule(accept_ties, later_first))
    assert "".join("ABCDE"[number] for number in soup.tried) == tried
    assert "".join("ABCDE"[number] for number in soup.members) == members
    assert soup.score == pytest.approx(0.9)
    assert {"released", "paper"} == GREEDY_RULES.keys()


def test_batch_statistics_are_those_of_the_averaged_network():
    """x in {-1, 3}: at w = 2 the variance is 16, while the mean of 4 (w = 1) and 36 (w = 3) is 20."""

    def network(weight):
        layer = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
        nn.init.constant_(layer[0].weight, weight)
        layer[1].running_mean.fill_(weight)
        layer[1].running_var.fill_(4 * weight**2)
        return layer

    model = network(1)
    model.load_state_dict(interpolate(network(1).state_dict(), network(3).state_dict(), 0.5))
    assert (float(model[1].running_mean), float(model[1].running_var)) == (2, 20)
    images = torch.tensor([[-1.0], [3.0]]).repeat(50_000, 1)
    reestimate_batch_norm(model, [images, images])
    assert float(model[1].running_mean) == pytest.approx(2, abs=1e-3)
    assert float(model[1].running_var) == pytest.approx(16, abs=1e-2)
    assert (model.training, model[1].momentum) == (True, 0.1)
