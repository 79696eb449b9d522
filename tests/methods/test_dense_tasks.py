"""Robust methods on detectors and segmenters: alive, and what they cannot do is one sentence."""

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.methods import detection_losses, robust_objective
from holdfast.methods.afat import corruptor_for
from holdfast.models.corruption_model import ConvCorruptor, Corruptor
from holdfast.models.detector import detector
from holdfast.models.segmenter import segmenter
from holdfast.tasks import task_named

SMALL = {
    "encoder_options": {"patch_size": 16, "trunk_stride": 8, "img_size": 64, "depth": 2, "tap": "tap"},
    **{"channels": 16, "head_width": 16, "mask_convs": [8], "top_channels": 32, "proposals": [20, 20], "samples": 8},
}
TARGET = {
    "boxes": torch.tensor([[4.0, 4.0, 40.0, 50.0]]),
    "labels": torch.tensor([1]),
    "masks": torch.ones(1, 64, 64, dtype=torch.uint8),
}
OPTIONS = {"afat": {"weight": 1.0, "lr": 0.05}, "adl": {"variant": "paper", "tau": 0.9}}


@pytest.fixture
def small_detector():
    torch.manual_seed(0)
    return detector("fan_nano_hybrid", "mask", num_classes=3, fixed_size=[64, 96], **SMALL).train()


def images(count: int = 2) -> list[torch.Tensor]:
    return list(torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(1)))


def built(model, **options):
    return robust_objective(model=model, size=(64, 96), mean=(0.0,) * 3, std=(1.0,) * 3, **options)


def test_without_terms_a_detector_is_trained_for_its_own_losses(small_detector):
    losses = []
    for objective in (built(small_detector), detection_losses):
        torch.manual_seed(5)
        losses.append(objective(small_detector, images(), [TARGET, TARGET]))
    assert losses[0].total == losses[1].total
    assert losses[0].parts.keys() == losses[1].parts.keys()


def test_both_methods_play_on_a_detectors_backbone_and_move_the_corruption_model(small_detector):
    objective = built(small_detector, **OPTIONS)
    corruptor = objective.modules["corruptor"]
    assert isinstance(corruptor, Corruptor)
    assert corruptor.grid == (4, 6)
    before = corruptor.fc.weight.clone()
    loss = objective(small_detector, images(), [TARGET, TARGET])
    loss.total.backward()
    moved = objective.update()
    assert loss.parts["alignment"] > 0
    assert loss.parts["adl"] > 0
    assert moved["corruptor_grad_norm"] > 0
    assert not torch.equal(corruptor.fc.weight, before)
    assert any(p.grad.abs().sum() > 0 for n, p in small_detector.named_parameters() if "dilation_predictor" in n)


def test_the_heads_see_the_clean_images_alone(small_detector):
    seen = []
    small_detector.rpn.register_forward_pre_hook(lambda _, args: seen.append(args[1]["0"].detach()))
    small_detector.eval()  # no drop-path: the clean half of the joint batch is what the clean batch is
    small_detector.requires_grad_(False)
    for options in ({}, OPTIONS):
        torch.manual_seed(5)
        with torch.no_grad(), pytest.raises(AttributeError):  # in evaluation it answers with detections, not losses
            built(small_detector, **options)(small_detector, images(), None)
    assert seen[0].shape == seen[1].shape
    torch.testing.assert_close(seen[0], seen[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["patches", "adversarial", "distillation"])
def test_what_needs_answers_to_changed_images_is_refused_for_detectors(small_detector, name):
    with pytest.raises(HoldfastError, match="returns only losses"):
        built(small_detector, **{name: {}})


def test_a_detectors_attention_cannot_choose_the_patches(small_detector):
    with pytest.raises(HoldfastError, match="selection of AFAT must be adversarial or random for a detector"):
        built(small_detector, afat={"selection": "attention"})


def test_attention_chooses_on_a_segmenter():
    model = segmenter("fan_mini_4_p4_hybrid", num_classes=3).train()
    objective = robust_objective(
        model=model, size=(64, 96), mean=(0.0,) * 3, std=(1.0,) * 3, afat={"weight": 1.0, "selection": "attention"}
    )
    loss = objective(model, torch.rand(2, 3, 64, 96), torch.zeros(2, 64, 96, dtype=torch.long))
    assert loss.parts["alignment"] > 0


def test_images_of_many_sizes_or_many_patches_get_the_convolutional_corruption_model(small_detector):
    assert isinstance(corruptor_for(small_detector, None), ConvCorruptor)
    assert isinstance(corruptor_for(small_detector, (1024, 2048)), ConvCorruptor)
    assert isinstance(corruptor_for(small_detector, (512, 512)), Corruptor)
    with pytest.raises(HoldfastError, match="must be 'conv' for images of different sizes"):
        corruptor_for(small_detector, None, kind="published")


def test_the_convolutional_corruption_model_scores_a_patch_from_its_neighbourhood_at_any_size():
    torch.manual_seed(0)
    model = ConvCorruptor(patch_size=8)
    for size in ((32, 64), (128, 40)):
        pictures = torch.randn(2, 3, *size, requires_grad=True)
        keep = model.keep(pictures, 0.25)
        assert keep.shape == (2, 1, size[0] // 8, size[1] // 8)
        assert ((keep == 0).flatten(1).float().mean(dim=1) - 0.25).abs().max() < 0.1
    scores = model(pictures).unflatten(1, (16, 5))
    gradient = torch.autograd.grad(scores[0, 0, 0], pictures)[0][0].abs().sum(dim=0)
    assert gradient[:32].sum() > 0
    assert gradient[32:].sum() == 0  # four patches down: outside of its 7×7


@pytest.mark.parametrize("kind", ["published", "conv"])
def test_all_methods_play_on_a_segmenter_of_any_shape(kind):
    torch.manual_seed(0)
    model = segmenter("fan_mini_4_p4_hybrid", num_classes=3, tap="tap").train()
    task = task_named("segmentation")
    options = {"afat": {"weight": 1.0, "lr": 0.05, "corruptor": kind}, "adl": {"variant": "paper", "tau": 0.9}}
    objective = robust_objective(
        model=model,
        size=(64, 96),
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        task_loss=task.training.loss,
        goal=task.evaluation.goal,
        adversarial={"eps": 0.03, "alpha": 0.02, "steps": 1},
        **options,
    )
    loss = objective(model, torch.randn(2, 3, 64, 96), torch.randint(3, (2, 64, 96)))
    loss.total.backward()
    assert objective.update()["corruptor_grad_norm"] > 0
    for figure in ("alignment", "adl", "adversarial_cross_entropy"):
        assert loss.parts[figure] > 0
    assert any(p.grad.abs().sum() > 0 for n, p in model.named_parameters() if "dilation_predictor" in n)
