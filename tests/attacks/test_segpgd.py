"""Attacks on every pixel: SegPGD by its formula, and what every attack promises."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import holdfast
from holdfast.attacks import (
    PIXEL_MISCLASSIFICATION,
    PIXEL_PRESETS,
    GradientAttack,
    SegPGD,
    from_pixels,
    perturb,
    perturb_pixels,
)
from holdfast.attacks.segpgd import pixel_attack_loss
from holdfast.errors import HoldfastError


class Pixelwise(nn.Module):
    """A linear classifier of every pixel, whose gradients can be written down."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, classes, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


def scene(batch: int = 2, size: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 3, (batch, size, size))
    labels[:, 0] = 255
    return torch.rand(batch, 3, size, size), labels


def by_hand(model, images, labels, *, eps, alpha, steps, segpgd):
    """SegPGD as its paper prints it, one image at a time, from the image itself."""
    out = []
    for image, label in zip(images, labels, strict=True):
        x = image.clone()
        for t in range(1, steps + 1):
            x = x.requires_grad_()
            logits = model(x[None])[0]
            lam = (t - 1) / (2 * steps)
            total = 0
            for row in range(label.shape[0]):
                for column in range(label.shape[1]):
                    y = label[row, column]
                    if y == 255:
                        continue
                    right = logits[:, row, column].argmax() == y
                    weight = (1 - lam if right else lam) if segpgd else 1
                    total = total - weight * logits[:, row, column].log_softmax(0)[y]
            (gradient,) = torch.autograd.grad(total, x)
            x = (x.detach() + alpha * gradient.sign()).clamp(image - eps, image + eps).clamp(0, 1)
        out.append(x)
    return torch.stack(out)


@pytest.mark.parametrize("segpgd", [True, False])
def test_the_attack_is_what_its_formula_says(segpgd):
    model, (images, labels) = Pixelwise().double(), scene()
    images = images.double()
    expected = by_hand(model, images, labels, eps=0.1, alpha=0.04, steps=4, segpgd=segpgd)
    if segpgd:
        found = perturb_pixels(SegPGD(0.1, 0.04, 4, random_start=False), model, images, labels)
    else:
        found = perturb(
            GradientAttack(0.1, 0.04, 4, random_start=False), model, images, labels, goal=PIXEL_MISCLASSIFICATION
        )
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def test_right_pixels_weigh_one_minus_lambda_and_wrong_ones_lambda():
    logits = torch.tensor([[[[5.0, 0.0]], [[0.0, 2.0]]]])  # 1 2 1 2: the first pixel says 0, the second 1
    labels = torch.tensor([[[0, 0]]])
    each = F.cross_entropy(logits, labels, reduction="none")[0, 0]
    loss = pixel_attack_loss(logits, labels, wrong_weight=0.25)
    torch.testing.assert_close(loss, ((0.75 * each[0] + 0.25 * each[1]) / 2)[None])
    torch.testing.assert_close(pixel_attack_loss(logits, labels, wrong_weight=None), each.mean()[None])
    assert pixel_attack_loss(logits, torch.full_like(labels, 255), wrong_weight=0.25).item() == 0


@pytest.mark.parametrize("name", PIXEL_PRESETS)
def test_every_preset_stays_in_its_ball_hurts_and_leaves_the_model_alone(name):
    attack = PIXEL_PRESETS[name]
    model = from_pixels(holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3))
    images, labels = scene(size=32)
    model.train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = attack(model, images, labels, seed=3, ids=["a", "b"], goal=PIXEL_MISCLASSIFICATION)
    assert (result.images - images).abs().max() <= attack.eps + 1e-6
    assert 0 <= result.images.min() <= result.images.max() <= 1
    assert result.predictions.shape == labels.shape
    model.eval()
    with torch.no_grad():
        clean, hurt = (pixel_attack_loss(model(x), labels, wrong_weight=None).mean() for x in (images, result.images))
    assert hurt > clean
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert result.record["eps"] == attack.eps
    assert result.record["steps"] == attack.steps


def test_starts_belong_to_images_not_to_batches():
    model, (images, labels) = Pixelwise(), scene()
    attack = SegPGD(0.1, 0.04, 2)
    both = perturb_pixels(attack, model, images, labels, seed=1, ids=["a", "b"])
    alone = perturb_pixels(attack, model, images[1:], labels[1:], seed=1, ids=["b"])
    torch.testing.assert_close(both[1:], alone)
    assert not torch.equal(both, perturb_pixels(attack, model, images, labels, seed=2, ids=["a", "b"]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"eps": -1}, "eps must be 0 or more"),
        ({"alpha": 0}, "alpha must be positive"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"norm": "l3"}, "norm must be one of"),
    ],
)
def test_bad_settings_get_one_sentence(settings, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        SegPGD(**{"eps": 0.1, "alpha": 0.1, "steps": 1, **settings})


def test_success_is_the_map_of_labelled_pixels_that_are_wrong():
    model, (images, labels) = Pixelwise(), scene()
    result = SegPGD(0.2, 0.1, 2)(model, images, labels)
    assert torch.equal(result.success, (result.predictions != labels) & (labels != 255))
    assert PIXEL_MISCLASSIFICATION.right(F.one_hot(labels.clamp_max(2), 3).movedim(-1, 1).float(), labels).all()
    assert not PIXEL_MISCLASSIFICATION.right(F.one_hot((labels + 1) % 3, 3).movedim(-1, 1).float(), labels).any()
