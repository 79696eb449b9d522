"""AFAT, patch-wise augmentation and adversarial training, alone and together, in a plain PyTorch loop."""

import copy
import runpy
from pathlib import Path

import pytest
import timm
import torch
from torch.nn import functional as F

import holdfast
from holdfast.attacks import GradientAttack
from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.adversarial import AdversarialTraining
from holdfast.methods.afat import AfatSettings, FeatureAlignment, alignment, corruptor_for
from holdfast.methods.noise2net import Noise2Net
from holdfast.methods.patch_augment import PatchAugmentation
from holdfast.methods.robust_training import RobustObjective, robust_objective

MEAN = STD = (0.5, 0.5, 0.5)


def batch(size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(4, 3, size, size) * 2 - 1, torch.arange(4) % 10


def afat(model, **settings) -> FeatureAlignment:
    return FeatureAlignment(corruptor_for(model, (32, 32)), AfatSettings(**settings), mean=MEAN, std=STD)


def build(*terms) -> RobustObjective:
    return RobustObjective(terms, mean=MEAN, std=STD)


@pytest.mark.parametrize(("ratio", "occluded"), [(0.05, 10), (0.1, 20), (0.25, 49), (0.5, 98)])
@pytest.mark.parametrize("selection", ["adversarial", "random"])
def test_the_published_number_of_patches_is_occluded(ratio, occluded, selection):
    model = timm.create_model("vit_tiny_patch16_224")
    player = FeatureAlignment(corruptor_for(model, (224, 224)), AfatSettings(ratio=ratio, selection=selection))
    images = torch.randn(2, 3, 224, 224).clamp(-1.5, 1.5)
    patches = (player.corrupt(images) != images).any(dim=1).unfold(1, 16, 16).unfold(2, 16, 16).flatten(3).any(-1)
    assert patches.flatten(1).sum(dim=1).tolist() == [occluded, occluded]


def test_one_backward_pass_equals_two_separate_ones():
    """The classifier's gradient of CE + λ·align, and the corruption model's of −scale·λ·align, clipped.

    On a model without BatchNorm: with it, even the clean images' cross-entropy depends a little on the occluded ones.
    """
    model = timm.create_model("vit_nano").train()
    images, targets = batch()
    player = afat(model, weight=0.7, grad_scale=1000.0, clip=0.01, lr=0.1, weight_decay=0.0)
    start = copy.deepcopy(player.corruptor)
    torch.manual_seed(1)
    objective = build(player)
    objective(model, images, targets).total.backward()
    ours = {key: p.grad.clone() for key, p in model.named_parameters()}
    objective.update()

    def separate() -> tuple[torch.Tensor, torch.Tensor, FeatureAlignment]:
        torch.manual_seed(1)
        other = FeatureAlignment(copy.deepcopy(start), AfatSettings(weight=0.7, grad_scale=1000.0), mean=MEAN, std=STD)
        with holdfast.watch(model) as seen:
            logits = model(torch.cat([other.corrupt(images), images]))
        return (
            F.cross_entropy(logits[4:], targets),
            alignment(*zip(*(f.chunk(2) for f in seen.features), strict=True))[0],
            other,
        )

    model.zero_grad()
    cross_entropy, align, _ = separate()
    (cross_entropy + 0.7 * align).backward()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, ours[key], atol=1e-6, rtol=1e-4)

    _, align, other = separate()
    gradients = torch.autograd.grad(0.7 * align, list(other.corruptor.parameters()))
    norm = torch.stack([g.norm() for g in gradients]).norm()
    for now, before, gradient in zip(player.corruptor.parameters(), start.parameters(), gradients, strict=True):
        expected = before + 0.1 * 1.9 * gradient * (0.01 / (norm + 1e-6))  # Nesterov's first step: 1 + momentum
        torch.testing.assert_close(now, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("selection", ["adversarial", "cross-entropy"])
def test_a_loss_scaler_does_not_change_how_the_corruption_model_moves(selection):
    """fp16 without fp16: its scaler multiplies the loss, and the clamp must not see that (nor a halved loss)."""
    images, targets = batch()
    moved = {}
    for scale in (1.0, 65536.0, 0.5):
        torch.manual_seed(3)
        model = timm.create_model("fan_nano")
        objective = build(afat(model, selection=selection, lr=1.0))
        before = [parameter.clone() for parameter in objective.modules["corruptor"].parameters()]
        (objective(model, images, targets).total * scale).backward()
        objective.update()
        now = objective.modules["corruptor"].parameters()
        moved[scale] = torch.cat([(a - b).detach().flatten() for a, b in zip(now, before, strict=True)])
    assert moved[1.0].norm() > 0.01
    torch.testing.assert_close(moved[65536.0], moved[1.0])
    torch.testing.assert_close(moved[0.5], moved[1.0])


def test_accumulated_passes_move_the_corruption_model_by_their_mean():
    model = timm.create_model("vit_nano")
    images, targets = batch()
    gradients = []
    for passes in (1, 2):
        torch.manual_seed(4)
        objective = build(afat(model, occlusion="drop", lr=0.0))
        for _ in range(passes):
            (objective(model, images, targets).total / passes).backward()
        gradients.append(objective.update()["corruptor_grad_norm"])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_cross_entropy_selection_reaches_the_corruption_model_only():
    model = timm.create_model("fan_nano").eval()
    images, targets = batch()
    player = afat(model, selection="cross-entropy", weight=0.0, grad_scale=1.0)
    torch.manual_seed(2)
    build(player)(model, images, targets).total.backward()
    torch.manual_seed(2)
    other = FeatureAlignment(copy.deepcopy(player.corruptor), player.settings, mean=MEAN, std=STD)
    hurt = F.cross_entropy(model(other.corrupt(images)), targets)
    expected = torch.autograd.grad(hurt, list(other.corruptor.parameters()))
    for parameter, gradient in zip(player.corruptor.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)
    plain = {
        key: torch.autograd.grad(F.cross_entropy(model(images), targets), p)[0] for key, p in model.named_parameters()
    }
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[key], atol=1e-5, rtol=1e-3)


def test_dropped_patches_get_the_mean_colour():
    model = timm.create_model("fan_nano")
    images = torch.rand(2, 3, 32, 32) + 0.1
    corrupted = afat(model, occlusion="drop").corrupt(images)
    changed = corrupted != images.clamp(-1, 1)
    assert changed.any()
    assert (corrupted[changed] == 0).all()


def test_attention_occludes_the_patches_that_receive_the_most_of_it():
    model = timm.create_model("vit_tiny_patch16_224", depth=3).train()
    images = torch.randn(2, 3, 224, 224).clamp(-1.5, 1.5)
    player = FeatureAlignment(corruptor_for(model, (224, 224)), AfatSettings(selection="attention"))
    with torch.no_grad(), holdfast.watch(model.eval()) as seen:
        model(images)
    received = sum(handle.maps().sum(dim=(1, 2))[:, 1:] for handle in seen.attention)
    changed = (player.corrupt(images, model.train()) != images).any(dim=1).unfold(1, 16, 16).unfold(2, 16, 16)
    occluded = changed.flatten(3).any(-1).flatten(1)
    assert occluded.sum(dim=1).tolist() == [20, 20]
    assert all(received[i][occluded[i]].min() >= received[i][~occluded[i]].max() for i in range(2))
    assert model.training
    assert not player.modules


COMBINATIONS = {
    "cross-entropy alone": lambda model: [],
    "ADL": lambda model: [AttentionDiversification(variant="paper")],
    "AFAT": lambda model: [afat(model)],
    "AFAT, random": lambda model: [afat(model, selection="random")],
    "AFAT, attention": lambda model: [afat(model, selection="attention")],
    "AFAT and ADL": lambda model: [afat(model), AttentionDiversification(variant="paper")],
    "patches": lambda model: [PatchAugmentation(patch_size=4)],
    "adversarial": lambda model: [AdversarialTraining(GradientAttack(eps=0.03, alpha=0.02, steps=2))],
    "Noise2Net": lambda model: [Noise2Net(0.5)],
    "all": lambda model: [
        PatchAugmentation(patch_size=4),
        afat(model),
        AttentionDiversification(variant="paper"),
        AdversarialTraining(GradientAttack(eps=0.03, alpha=0.02, steps=1), clean_weight=0.5),
    ],
}


@pytest.mark.parametrize("name", ["fan_nano", "tap_fan_nano", "vit_nano", "rvt_nano"])
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_moves_the_model_on_every_backbone(combination, name):
    model = timm.create_model(name.removeprefix("tap_"))
    if name.startswith("tap_"):
        holdfast.add_tap(model)
    objective = build(*COMBINATIONS[combination](model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, targets = batch()
    losses = []
    for _ in range(2):
        loss = objective(model, images, F.one_hot(targets, 10).float())
        loss.total.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        figures = {**loss.parts, **objective.update()}
        assert all(torch.isfinite(torch.as_tensor(value)) for value in figures.values())
        losses.append(loss.total.item())
    assert losses[1] != losses[0]


def test_both_players_are_alive():
    """The corruption model has a gradient and changes its mind; the classifier learns to ignore a fixed one."""
    model = timm.create_model("fan_nano").train()
    images, targets = batch()
    objective = build(afat(model, lr=0.05))
    figures = []
    for _ in range(8):
        objective(model, images, targets).total.backward()
        figures.append(objective.update())
        model.zero_grad()
    assert all(figure["corruptor_grad_norm"] > 0 for figure in figures)
    assert max(figure["selection_change"] for figure in figures) > 0

    objective = build(afat(model, weight=10.0, lr=0.0, occlusion="drop"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    alignments = []
    for _ in range(15):
        loss = objective(model, images, targets)
        loss.total.backward()
        optimizer.step()
        optimizer.zero_grad()
        objective.update()
        alignments.append(loss.parts["alignment"].item())
    assert alignments[-1] < 0.5 * alignments[0]


@pytest.mark.parametrize(
    ("options", "eps", "alpha", "steps"),
    [
        ({}, 1 / 255, 0.5 / 255, 5),
        ({"eps": "4/255"}, 4 / 255, 2 / 255, 5),
        ({"eps": 0.0}, 0.0, 0.5 / 255, 5),
        ({"eps": 0.01, "alpha": 0.002, "steps": 2, "weight": 0.5}, 0.01, 0.002, 2),
    ],
)
def test_what_a_recipe_leaves_out_of_the_attack_is_as_usual(options, eps, alpha, steps):
    model = timm.create_model("fan_nano")
    (term,) = robust_objective(model=model, size=(32, 32), mean=MEAN, std=STD, adversarial=options).terms
    assert (term.attack.eps, term.attack.steps) == (eps, steps)
    assert term.attack.alpha == pytest.approx(alpha)
    assert term.weight == options.get("weight", 1.0)


def test_an_objective_is_built_from_a_recipes_options():
    model = timm.create_model("fan_nano")
    objective = robust_objective(
        model=model,
        size=(32, 32),
        mean=MEAN,
        std=STD,
        adl={"variant": "paper"},
        afat={"weight": 0.1},
        patches={"patch_size": 4},
        adversarial={"eps": 0.01, "alpha": 0.01, "steps": 1, "clean_weight": 1.0},
    )
    assert objective.modules["corruptor"].grid == (8, 8)
    loss = objective(model, *batch())
    assert {
        "cross_entropy",
        "alignment",
        "adl",
        "patch_cross_entropy",
        "adversarial_cross_entropy",
    } <= loss.parts.keys()
    with pytest.raises(holdfast.HoldfastError, match="unknown option 'tao' of 'adl'; did you mean 'tau'"):
        robust_objective(model=model, size=(32, 32), mean=MEAN, std=STD, adl={"tao": 2})
    with pytest.raises(holdfast.HoldfastError, match="crops of patches must be 'released' or 'per-patch', got 'all'"):
        PatchAugmentation(crops="all")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ratio": 0.0}, "ratio of AFAT must lie between 0 and 1, got 0.0"),
        ({"ratio": 1.5}, "ratio of AFAT must lie between 0 and 1, got 1.5"),
        ({"weight": -0.1}, "weight of AFAT must not be negative, got -0.1"),
        (
            {"selection": "best"},
            "selection of AFAT must be one of adversarial, random, cross-entropy, attention, got 'best'",
        ),
        ({"occlusion": "black"}, "occlusion of AFAT must be one of noise, drop, got 'black'"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        AfatSettings(**settings)


def test_a_corruption_model_of_another_grid_is_refused():
    player = FeatureAlignment(corruptor_for(timm.create_model("fan_nano"), (64, 64)))
    with pytest.raises(
        holdfast.HoldfastError, match="images must be 64×64 for a corruptor of 16×16 patches, got 32×32"
    ):
        player.corrupt(torch.rand(1, 3, 32, 32))
    with pytest.raises(holdfast.HoldfastError, match="AFAT needs a backbone with a patch size, and ResNet has none"):
        corruptor_for(timm.create_model("resnet18"), (224, 224))


def test_the_ten_line_example_runs():
    script = Path(__file__).parents[2] / "examples" / "afat_adl_plain_loop.py"
    result = runpy.run_path(str(script))
    assert result["loss"].total.isfinite()
