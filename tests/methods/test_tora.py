"""TORA's objective and phases: what is minimised, what is attacked, what learns."""

import pytest
import timm
import torch
from torch.nn import functional as F

import holdfast
from holdfast.attacks import GradientAttack, PixelModel, perturb
from holdfast.errors import HoldfastError
from holdfast.methods.tora import OneView, TradeOff, tora_objective
from holdfast.models.adaptation import PHASES, begin_phase
from holdfast.training.build import build_optimizer
from holdfast.training.recipe import OptimizerRecipe

HALF = (0.5, 0.5, 0.5)
ATTACK = GradientAttack(eps=8 / 255, alpha=4 / 255, steps=2)


def adapted(**settings) -> holdfast.models.tora.ToraViT:
    model = holdfast.tora(timm.create_model("vit_nano", depth=2), **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("backbone."):
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(6, 3, 32, 32) * 2 - 1, F.one_hot(torch.arange(6), 10).float()


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("view", ["joint", "acc", "rob"])
def test_the_loss_is_the_weighted_sum_over_adversarial_and_clean_images(weight, view):
    model, (images, targets) = adapted(), batch()
    objective = TradeOff(weight, attack=ATTACK, view=view, mean=HALF, std=HALF)
    torch.manual_seed(7)
    loss = objective(model, images, targets)

    torch.manual_seed(7)
    seed = int(torch.randint(2**31, ()))
    pixels = PixelModel(OneView(model, view), mean=HALF, std=HALF)
    adversarial = perturb(ATTACK, pixels, (images + 1) / 2, targets, seed=seed) * 2 - 1
    robust = F.cross_entropy(model.views(adversarial)[view], targets)
    clean = F.cross_entropy(model.views(images)[view], targets)
    torch.testing.assert_close(loss.total, weight * robust + (1 - weight) * clean)
    expected = {"adversarial_cross_entropy": robust} if weight > 0 else {}
    expected |= {"clean_cross_entropy": clean} if weight < 1 else {}
    torch.testing.assert_close(dict(loss.parts), {name: value.detach() for name, value in expected.items()})


def test_the_attack_looks_at_the_prediction_that_is_trained():
    model, (images, targets) = adapted(), batch()
    losses = {}
    for attacked in ("acc", "rob"):
        pixels = PixelModel(OneView(model, attacked), mean=HALF, std=HALF)
        strong = GradientAttack(eps=8 / 255, alpha=2 / 255, steps=8)
        adversarial = perturb(strong, pixels, (images + 1) / 2, targets) * 2 - 1
        with torch.no_grad():
            losses[attacked] = {v: F.cross_entropy(model(adversarial, view=v), targets) for v in ("acc", "rob")}
    assert losses["acc"]["acc"] > losses["rob"]["acc"]
    assert losses["rob"]["rob"] > losses["acc"]["rob"]


LEARNS = {
    ("tora", "robust"): {"rob", "fusion", "heads.rob", "tokens.rob"},
    ("tora", "accuracy"): {"acc", "fusion", "heads.acc", "tokens.acc"},
    ("tora", "joint"): {"fusion"},
    ("adapter-fusion", "robust"): {"rob", "fusion", "heads.rob", "tokens.rob"},
    ("adapter-fusion", "joint"): {"fusion"},
    ("single-adapter", "joint"): {"adapter", "heads.joint", "tokens.joint"},
    ("head-only", "joint"): {"heads.acc", "heads.rob"},
}


def part(name: str) -> str:
    """``layers.1.rob.up.weight`` → ``rob``, ``heads.acc.bias`` → ``heads.acc``."""
    words = name.split(".")
    return words[2] if words[0] == "layers" else ".".join(words[:2]) if words[0] != "backbone" else "backbone"


@pytest.mark.parametrize(("method", "phase"), LEARNS)
@pytest.mark.parametrize("weight_decay", [0.05, 0.0])
def test_only_what_learns_gets_gradients_and_is_in_the_optimizer(method, phase, weight_decay):
    model, (images, targets) = adapted(method=method), batch()
    begin_phase(model, phase)
    objective = tora_objective(phase=phase, trade_off=0.5, mean=HALF, std=HALF, steps=1)
    objective(model, images, targets).total.backward()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with_gradient = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {part(name) for name in with_gradient} == LEARNS[method, phase]
    assert all(part(name) in LEARNS[method, phase] for name in with_gradient)
    optimizer = build_optimizer(model, OptimizerRecipe(weight_decay=weight_decay), global_batch=8)
    moved = {names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]}
    assert moved == with_gradient  # nothing frozen, and nothing that the loss does not reach


def test_phases_fix_the_prediction_and_the_weight():
    built = {phase: tora_objective(phase=phase, trade_off=0.3, mean=HALF, std=HALF) for phase in PHASES}
    assert {phase: (one.view, one.weight) for phase, one in built.items()} == {
        "robust": ("rob", 1.0),
        "accuracy": ("acc", 0.0),
        "joint": ("joint", 0.3),
    }


def test_what_cannot_be_gets_one_sentence():
    with pytest.raises(HoldfastError, match=r"lambda must lie between 0 and 1, got 1\.2"):
        TradeOff(1.2)
    with pytest.raises(HoldfastError, match="phase must be one of robust, accuracy, joint, got 'robst'; did you mean"):
        begin_phase(adapted(), "robst")
    with pytest.raises(HoldfastError, match="method head-only has one phase, joint; got 'robust'"):
        begin_phase(adapted(method="head-only"), "robust")
    with pytest.raises(HoldfastError, match=r"train\.phases\.weights must hold one weight"):
        tora_objective(phase="joint", trade_off=None, mean=HALF, std=HALF)


def test_in_a_plain_loop_lambda_moves_the_two_losses_apart():
    """Ten lines of anybody's loop: more weight on robustness lowers the robust loss and raises the clean one."""
    images, targets = batch()
    start = adapted().state_dict()
    ends = {}
    for weight in (0.0, 1.0):
        model = adapted()
        model.load_state_dict(start)
        begin_phase(model, "joint")
        objective = TradeOff(weight, attack=GradientAttack(eps=0.1, alpha=0.05, steps=2), mean=HALF, std=HALF)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
        for _ in range(15):
            objective(model, images, targets).total.backward()
            optimizer.step()
            optimizer.zero_grad()
        judge = TradeOff(0.5, attack=objective.attack, mean=HALF, std=HALF)
        ends[weight] = {name: float(value) for name, value in judge(model, images, targets).parts.items()}
    assert ends[1.0]["adversarial_cross_entropy"] < ends[0.0]["adversarial_cross_entropy"]
    assert ends[0.0]["clean_cross_entropy"] < ends[1.0]["clean_cross_entropy"]


def moved_heads(*, own_heads: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of the two heads of a model that fuses nothing, which begin as copies of one."""
    torch.manual_seed(0)
    model, (images, targets) = holdfast.tora(timm.create_model("vit_nano", depth=2), method="head-only"), batch()
    begin_phase(model, "joint")
    objective = tora_objective(phase="joint", trade_off=0.3, mean=HALF, std=HALF, steps=1, own_heads=own_heads)
    objective(model, images, targets).total.backward()
    return model.heads["acc"].weight.grad, model.heads["rob"].weight.grad


def test_two_heads_of_one_prediction_learn_the_same_and_heads_with_losses_of_their_own_do_not():
    assert torch.equal(*moved_heads(own_heads=False))
    assert not torch.allclose(*moved_heads(own_heads=True))


def test_with_own_heads_each_loss_reads_its_head_and_the_attack_looks_at_the_robust_one():
    model, (images, targets) = adapted(method="head-only"), batch()
    objective = TradeOff(0.3, attack=ATTACK, mean=HALF, std=HALF, own_heads=True)
    torch.manual_seed(7)
    loss = objective(model, images, targets)
    torch.manual_seed(7)
    seed = int(torch.randint(2**31, ()))
    pixels = PixelModel(OneView(model, "rob"), mean=HALF, std=HALF)
    adversarial = perturb(ATTACK, pixels, (images + 1) / 2, targets, seed=seed) * 2 - 1
    robust = F.cross_entropy(model.views(adversarial)["rob"], targets)
    clean = F.cross_entropy(model.views(images)["acc"], targets)
    torch.testing.assert_close(loss.total, 0.3 * robust + 0.7 * clean)


def test_own_heads_are_refused_where_there_is_one_head():
    objective = TradeOff(0.5, attack=ATTACK, mean=HALF, std=HALF, own_heads=True)
    with pytest.raises(HoldfastError, match="own_heads needs the heads acc and rob"):
        objective(adapted(method="single-adapter"), *batch())
