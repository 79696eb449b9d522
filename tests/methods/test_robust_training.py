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
from holdfast.attacks.patch_selection import attention_received_by_patches
from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.adversarial import AdversarialTraining
from holdfast.methods.afat import AfatSettings, FeatureAlignment, alignment, corruptor_for
from holdfast.methods.noise2net import Noise2Net, noise2net
from holdfast.methods.patch_augment import PatchAugmentation, patch_augment, resized_pixel_crops
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


def test_attention_looks_at_the_model_without_leaving_a_trace_also_in_half_precision():
    model = timm.create_model("fan_nano").train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    images, targets = batch()
    attention_received_by_patches(model, images)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = build(afat(model, selection="attention"))(model, images, targets).total
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_attention_over_windows_or_no_model_at_all_cannot_choose():
    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1))
    with pytest.raises(
        holdfast.HoldfastError, match=r"blocks that attend to all patches of one grid .* SwinTransformer"
    ):
        attention_received_by_patches(swin, torch.zeros(1, 3, 224, 224))
    images, _ = batch()
    with pytest.raises(holdfast.HoldfastError, match="selection 'attention' of AFAT needs a model"):
        afat(timm.create_model("vit_nano"), selection="attention").corrupt(images)


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


def test_released_patch_augmentation_leaves_the_gradients_of_plain_cross_entropy():
    model = timm.create_model("fan_nano").train()
    images, targets = batch()
    gradients = {}
    for name, terms in {"plain": [], "no-op": [PatchAugmentation(patch_size=4, discard_gradient=True)]}.items():
        model.zero_grad()
        build(*terms)(model, images, targets).total.backward()
        gradients[name] = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(gradients["plain"], gradients["no-op"])


def test_the_released_augmented_pass_moves_batch_norm_first_and_with_afat_in_both_halves():
    images, targets = batch()
    model = timm.create_model("fan_nano").train()
    other, player = copy.deepcopy(model), afat(model)
    reference = FeatureAlignment(copy.deepcopy(player.corruptor), player.settings, mean=MEAN, std=STD)
    torch.manual_seed(5)
    build(PatchAugmentation(patch_size=4, discard_gradient=True), player)(model, images, targets)
    torch.manual_seed(5)
    augmented = patch_augment(images, patch_size=4, low=-1.0, high=1.0)
    for seen in (augmented, images):
        other(torch.cat([reference.corrupt(seen), seen]))
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, other.get_buffer(name))
    assert {int(b) for name, b in model.named_buffers() if name.endswith("num_batches_tracked")} == {2}


def changed_patches(augmented: torch.Tensor, images: torch.Tensor, size: int) -> torch.Tensor:
    return (augmented != images).any(dim=1).unfold(1, size, size).unfold(2, size, size).flatten(3).any(-1)


@pytest.mark.parametrize(("crops", "share"), [("per-patch", 1 - 0.7**3), ("released", 1 - 0.7**2)])
def test_patch_augmentation_changes_whole_patches_only_and_stays_in_range(crops, share):
    """Patches of 8: the released crop has 7 or 8 pixels, and 7 (a change) where less than 88 % of the area is kept."""
    images = torch.rand(4, 3, 32, 48)
    options = {"patch_size": 8, "crops": crops, "low": 0.0, "high": 1.0}
    augmented = [patch_augment(images, probability=0.3, **options) for _ in range(40)]
    shares = torch.tensor([changed_patches(a, images, 8).float().mean() for a in augmented])
    uncropped = shares if crops == "per-patch" else shares[shares < 0.55]
    assert uncropped.mean() == pytest.approx(share, abs=0.05)
    assert min(a.min() for a in augmented) >= 0
    assert max(a.max() for a in augmented) <= 1
    torch.testing.assert_close(patch_augment(images, probability=0.0, **options), images, atol=0, rtol=0)


def test_the_released_crop_tosses_one_coin_for_the_batch_and_takes_15_or_16_pixels():
    """Of 0.85–1 of 256 pixels, a side rounds to 15 below 15.5² / 256: 59 % of the crops, of which there are four."""
    patches = torch.rand(600, 3, 16, 16)
    crops = resized_pixel_crops(patches)
    changed = (crops != patches).flatten(1).any(dim=1)
    assert changed.float().mean() == pytest.approx((15.5**2 / 256 - 0.85) / 0.15, abs=0.06)
    corners = [(y, x) for y in (0, 1) for x in (0, 1)]
    candidates = torch.stack(
        [
            F.interpolate(patches[..., y : y + 15, x : x + 15], 16, mode="bilinear", align_corners=True)
            for y, x in corners
        ]
    )
    distances = (candidates - crops).abs().flatten(2).amax(dim=2)[:, changed]
    assert distances.amin(dim=0).max() < 1e-5
    assert distances.argmin(dim=0).bincount(minlength=4).min() > 0.15 * changed.sum()

    images = torch.rand(4, 3, 64, 64)
    shares = []
    for _ in range(300):
        augmented = patch_augment(images, probability=0.1, low=0.0, high=1.0)
        shares.append(changed_patches(augmented, images, 16).float().mean().item())
    cropped = [share for share in shares if share > 0.45]
    assert 0.05 < len(cropped) / 300 < 0.16  # a tenth of the calls
    assert sum(cropped) / len(cropped) == pytest.approx(1 - 0.41 * 0.9**2, abs=0.04)
    uncropped = [share for share in shares if share <= 0.45]
    assert sum(uncropped) / len(uncropped) == pytest.approx(0.19, abs=0.02)


def test_noise2net_distorts_its_share_of_the_batch_differently_every_time():
    images = torch.rand(6, 3, 32, 48)
    once, again = (noise2net(images, share=0.5, low=0.0, high=1.0) for _ in range(2))
    torch.testing.assert_close(once[3:], images[3:], atol=0, rtol=0)
    assert ((once[:3] - images[:3]).abs().mean(dim=(1, 2, 3)) > 0.01).all()
    assert (once[:3] - again[:3]).abs().mean() > 0.01
    assert once.min() >= 0
    assert once.max() <= 1
    torch.manual_seed(3)
    first = noise2net(images, low=0.0, high=1.0)
    torch.manual_seed(3)
    torch.testing.assert_close(noise2net(images, low=0.0, high=1.0), first, atol=0, rtol=0)


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
