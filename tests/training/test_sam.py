"""SAM and ASAM: published values, and what a step must leave alone."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from holdfast.training.loop import train
from holdfast.training.recipe import SamRecipe
from holdfast.training.recipe_files import load_recipe, to_yaml
from holdfast.training.sam import ascent_steps, kept_statistics, perturbed, sharpness_aware
from tests.chaos.processes import run_group
from tests.training.helpers import RANDOM, TINY, assert_same_run, assert_same_weights, log_of, run, tiny
from tests.training.test_loop import StopsAt


class Quadratic(nn.Module):
    """½ (w₁² + 10 w₂²)."""

    def __init__(self, *start: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def backward(self, scale: float = 1.0) -> None:
        (scale * 0.5 * (self.weight**2 * torch.tensor([1.0, 10.0], dtype=torch.float64)).sum()).backward()


def descend(start, settings, *, steps, momentum=0.0):
    """The weights after every step of SGD at the learning rate 0.05."""
    model, seen = Quadratic(*start), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    for _ in range(steps):
        sharpness_aware(model.backward, model.backward, settings, model, ())
        optimizer.step()
        optimizer.zero_grad()
        seen.append(model.weight.detach().clone().tolist())
    return seen


def close(values):
    return pytest.approx(values, abs=6e-11)


def steps_of(start, settings, scale=1.0):
    model = Quadratic(*start)
    model.backward(scale)
    return ascent_steps(dict(model.named_parameters()), settings)["weight"].tolist()


def test_sam_takes_the_published_steps():
    assert steps_of((1, 1), SamRecipe()) == close([0.0049751860, 0.0497518595])
    seen = descend((1, 1), SamRecipe(), steps=5)
    assert seen[0] == close([0.9497512407, 0.4751240702])
    assert seen[1] == close([0.9017736349, 0.2130470253])
    assert seen[4] == close([0.7681839647, 0.0049733702])
    assert descend((1, 1), SamRecipe(), steps=5, momentum=0.9)[4] == close([0.4122763274, -0.4264173048])


@pytest.mark.parametrize(
    ("eta", "step", "first", "fifth"),
    [
        (0.0, [0.0124960956, -0.9996876464], [0.9493751952, -0.5001561768], [0.7079208133, -0.0143013360]),
        (0.01, [0.0126838083, -1.0046829548], [0.9493658096, -0.4976585226], [0.7071745533, -0.0136502455]),
    ],
)
def test_asam_takes_the_published_steps(eta, step, first, fifth):
    settings = SamRecipe(rho=0.5, adaptive=True, eta=eta)
    assert steps_of((1, -2), settings) == close(step)
    seen = descend((1, -2), settings, steps=5)
    assert (seen[0], seen[4]) == (close(first), close(fifth))


def test_asam_measures_biases_and_tokens_as_sam_does():
    model = nn.Linear(1, 1)
    for value in model.parameters():
        value.grad = torch.full_like(value, 3.0)
    named = dict(model.named_parameters())
    adaptive = ascent_steps(named, SamRecipe(rho=1, adaptive=True))
    scale = float(model.weight.detach().abs() + 0.01)
    assert float(adaptive["weight"] / adaptive["bias"]) == pytest.approx(scale**2, rel=1e-5)


def test_the_scale_of_the_loss_cancels_and_what_is_not_finite_moves_nothing():
    assert steps_of((1, 1), SamRecipe(), scale=1024) == pytest.approx(steps_of((1, 1), SamRecipe()), abs=1e-12)
    overflowed = Quadratic(1, 1)
    overflowed.backward(float("inf"))
    assert ascent_steps(dict(overflowed.named_parameters()), SamRecipe()) == {}
    assert steps_of((0, 0), SamRecipe()) == [0, 0]


def test_weights_are_put_back_exactly_also_those_without_a_second_gradient():
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, 1.0)
    model(torch.randn(4, 3)).sum().backward()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with perturbed(dict(model.named_parameters()), SamRecipe(rho=3e-7)):
        model.zero_grad()
        assert not torch.equal(model.weight, before["weight"])
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())


def test_the_second_pass_leaves_batch_statistics_alone():
    norm, x = nn.BatchNorm1d(1), torch.tensor([[1.0], [2.0], [3.0], [6.0]])
    norm(x)
    with kept_statistics(norm):
        norm(2 * x)
    assert float(norm.running_mean) == pytest.approx(0.3)
    assert float(norm.running_var) == pytest.approx(1.3666666667)
    assert int(norm.num_batches_tracked) == 1


SAM = {"optimizer": {"sam": {"rho": 0.05}}}


def test_rho_0_is_the_base_optimizer_with_mixup_dropout_and_accumulation(tmp_path):
    run(tmp_path / "plain", **RANDOM)
    run(tmp_path / "sam", **RANDOM, optimizer={"sam": {"rho": 0}})
    assert_same_weights(tmp_path / "plain/model.safetensors", tmp_path / "sam/model.safetensors")


def test_a_run_with_sam_logs_its_sharpness_and_resumes_to_the_same_bits(tmp_path):
    clipped = {"optimizer": {**SAM["optimizer"], "clip_grad": 1.0}}
    run(tmp_path / "whole", **clipped, train={"accumulate": 2, "batch_size": 8})
    assert all(line["sharpness"] > 0 for line in log_of(tmp_path / "whole", "step"))
    from holdfast.methods import CrossEntropy

    parts = {**clipped, "train": {"accumulate": 2, "batch_size": 8}}
    stopped = run(tmp_path / "parts", objective=StopsAt(9, CrossEntropy()), **parts)
    assert stopped.stopped_by
    run(tmp_path / "parts", resume=True, **parts)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_sam_counts_every_batch_once_in_batch_norm_and_trains_in_bf16(tmp_path):
    recipe = {**TINY, "model": {"name": "test_resnet"}, "data": {**TINY["data"], "size": 32}, **SAM}
    result = train({**recipe, "train": {**TINY["train"], "precision": "bf16"}}, out=tmp_path / "run", show=False)
    state = load_file(result.folder / "model.safetensors")
    assert {int(value) for key, value in state.items() if key.endswith("num_batches_tracked")} == {result.step}


def test_two_processes_agree_on_the_weights(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    afat = {"name": "robust", "options": {"afat": {"weight": 0.1}}}
    recipe.write_text(to_yaml(load_recipe(tiny(objective=afat, train={"epochs": 1, "accumulate": 2}, **SAM))))
    command = ["train", str(recipe), "--out", str(tmp_path / "two"), "--train.batch_size=8"]
    ends = run_group(command, folder=tmp_path)
    assert [code for code, _ in ends] == [0, 0], ends
    (end,) = log_of(tmp_path / "two", "end")
    assert (end["processes"], end["processes_agree"]) == (2, True)
