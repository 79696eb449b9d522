"""TRADES and MART: the values of the published losses and attacks on a linear model."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.methods import Mart, RobustObjective, Trades
from holdfast.methods.trades import climb, divergence_from_clean, kl_divergence, mart_terms, summed_cross_entropy
from holdfast.training.recipe_files import load_recipe, to_yaml
from tests.chaos.processes import run_group
from tests.training.helpers import assert_same_run, log_of, run, tiny
from tests.training.test_loop import StopsAt

X = torch.tensor([[0.4, 0.6], [0.8, 0.03]], dtype=torch.float64)
Y = torch.tensor([0, 2])
NOISE = 0.001 * torch.tensor([[0.5, -1.2], [-0.3, 0.8]], dtype=torch.float64)


@pytest.fixture
def model():
    layer = nn.Linear(2, 3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1, -2], [0.5, 1], [-1, 0.5]], dtype=torch.float64))
        layer.bias.copy_(torch.tensor([0.1, 0, -0.1], dtype=torch.float64))
    return layer


attack = partial(climb, eps=0.031, alpha=0.007, noise=NOISE)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (1, [[0.4075, 0.5918], [0.7927, 0.0378]]),
        (3, [[0.4215, 0.5778], [0.7787, 0.0518]]),
        (10, [[0.431, 0.569], [0.769, 0.061]]),
    ],
)
def test_trades_climbs_the_divergence_from_a_start_beside_the_image(model, steps, wanted):
    found = attack(model, X, divergence_from_clean, steps=steps)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_the_loss_of_trades_and_its_gradient_are_the_published_ones(model):
    attacked = attack(model, X, divergence_from_clean, steps=10)
    divergence = kl_divergence(model(X), model(attacked))
    assert float(divergence.detach()) == pytest.approx(0.0013060628, abs=6e-11)
    total = F.cross_entropy(model(X), Y) + 6 * divergence
    assert float(total.detach()) == pytest.approx(2.1578987719, abs=6e-11)
    total.backward()
    through_the_target = [[0.0496511041, -0.2527676333], [0.2666141970, 0.1953457162], [-0.3162653011, 0.0574219172]]
    np.testing.assert_allclose(model.weight.grad, through_the_target, atol=6e-11)


def test_the_loss_of_mart_is_the_published_one(model):
    attacked = attack(model, X, lambda _: summed_cross_entropy(Y), steps=10)
    np.testing.assert_allclose(attacked, [[0.369, 0.631], [0.831, 0]], atol=1e-12)
    boosted, divergence = (float(term.detach()) for term in mart_terms(model(X), model(attacked), Y))
    assert boosted == pytest.approx(3.1680805664, abs=6e-11)
    assert divergence == pytest.approx(0.0010979849, abs=6e-11)
    assert boosted + 5 * divergence == pytest.approx(3.1735704907, abs=6e-10)


def test_the_attack_leaves_modes_statistics_and_gradients_alone():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 3))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    images = torch.rand(4, 3, 2, 2)
    noise = 0.001 * torch.randn_like(images)
    climb(network, images, divergence_from_clean, eps=0.03, alpha=0.01, steps=2, noise=noise)
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize(("term", "figure"), [(Trades(steps=2), "trades_kl"), (Mart(steps=2), "mart_kl")])
def test_a_run_is_alive_and_resumes_to_the_same_bits(term, figure, tmp_path):
    values = {"augment": {"smoothing": 0.1}, "train": {"epochs": 1}}
    run(tmp_path / "whole", objective=RobustObjective([term]), **values)
    assert all(line[figure] > 0 for line in log_of(tmp_path / "whole", "step"))
    assert run(tmp_path / "parts", objective=StopsAt(2, RobustObjective([term])), **values).stopped_by
    run(tmp_path / "parts", resume=True, objective=RobustObjective([term]), **values)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_two_processes_agree_on_the_weights(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    objective = {"name": "robust", "options": {"augmix": {}, "trades": {"steps": 2}}}
    recipe.write_text(to_yaml(load_recipe(tiny(objective=objective, train={"epochs": 1}))))
    command = ["train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8"]
    ends = run_group(command, folder=tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)


def test_bad_settings_get_one_sentence():
    with pytest.raises(HoldfastError, match="eps of trades must lie between 0 and 1"):
        Trades(eps=8)
