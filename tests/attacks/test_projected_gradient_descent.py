"""FGSM and PGD do what an independent library does, inside the ball, and leave no trace in the model."""

import copy
import os
from functools import partial

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from holdfast import HoldfastError
from holdfast.attacks import PRESETS, GradientAttack, PixelModel, fgsm, from_pixels, perturb, pgd
from tests.attacks import oracle


class Small(nn.Module):
    """Quick, with BatchNorm, smooth enough to have a gradient everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten())
        self.head = nn.Linear(8 * 9, 5)

    def forward(self, x):
        return self.head(self.body(x))


def small() -> PixelModel:
    torch.manual_seed(1)
    return PixelModel(Small(), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)).eval()


def batch(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(count, 3, 8, 8, generator=generator) * 1.4 - 0.2
    return images.clamp(0, 1), torch.randint(5, (count,), generator=generator)


class Listener(nn.Module):
    """Keeps the images a model is asked about."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.heard = model, []

    def forward(self, x):
        self.heard.append(x.detach().clone())
        return self.model(x)


ORACLE = {  # eps, alpha, steps, random start, targeted
    "FGSM": (8 / 255, 8 / 255, 1, False, False),
    "targeted FGSM": (8 / 255, 8 / 255, 1, False, True),
    "RVT's PGD-5": (1 / 255, 0.5 / 255, 5, True, False),
    "RSPC's PGD-5": (8 / 255, 2 / 255, 5, True, False),
    "targeted PGD-10": (8 / 255, 2 / 255, 10, True, True),
    "a step beyond the ball": (0.1, 0.3, 3, True, False),
}


@pytest.mark.parametrize("row", ORACLE)
def test_linf_iterates_equal_an_independent_library(row):
    eps, alpha, steps, random_start, targeted = ORACLE[row]
    model, (images, labels) = small(), batch()
    listener = Listener(model)
    torch.manual_seed(5)
    # it stops before its last iterate is seen: one step more shows it
    oracle.pgd_linf(
        listener, images, labels, eps, targeted, steps=steps + 1, random_init=random_start, absolute_step_size=alpha
    )
    torch.manual_seed(5)
    start = torch.empty_like(images).uniform_(-1, 1) * eps if random_start else torch.zeros_like(images)
    settings = {"eps": eps, "alpha": alpha, "steps": steps, "targeted": targeted}
    ours = pgd(model, images, labels, start=start, random_start=random_start, **settings)
    torch.testing.assert_close(ours, listener.heard[-1], atol=1e-6, rtol=0)


def test_on_a_trained_network_pgd_equals_the_independent_library(reader, digits):
    data = digits[:32]
    listener = Listener(reader)
    oracle.pgd_linf(listener, data.images, data.labels, 4 / 255, steps=4, random_init=False, absolute_step_size=2 / 255)
    ours = pgd(reader, data.images, data.labels, eps=4 / 255, alpha=2 / 255, steps=3, random_start=False)
    # a gradient of nearly 0 may change its sign with the rounding; nothing else may differ
    assert ((ours - listener.heard[-1]).abs() > 1e-6).float().mean() < 1e-3


@pytest.mark.parametrize("targeted", [False, True])
def test_l2_iterates_equal_a_brute_force_loop(targeted):
    rng = np.random.default_rng(0)
    weight, images = rng.standard_normal((4, 12)), rng.uniform(size=(3, 12))
    labels, start = np.array([0, 3, 2]), 0.1 * rng.standard_normal((3, 12))

    def into_ball(x, image, eps):
        delta = x - image
        length = np.sqrt((delta**2).sum())
        return np.clip(image + delta * min(1, eps / length), 0, 1)

    expected = []
    for image, label, delta in zip(images, labels, start, strict=True):
        x = into_ball(image + delta, image, 0.5)
        for _ in range(4):
            exponentials = np.exp(weight @ x)
            gradient = weight.T @ (exponentials / exponentials.sum() - np.eye(4)[label])
            step = 0.2 * gradient / np.linalg.norm(gradient)
            x = into_ball(x - step if targeted else x + step, image, 0.5)
        expected.append(x)

    linear = nn.Sequential(nn.Flatten(), nn.Linear(12, 4, bias=False)).double()
    linear[1].weight.data = torch.tensor(weight)
    as_images = [torch.tensor(values).view(3, 3, 2, 2) for values in (images, start)]
    ours = pgd(
        linear,
        as_images[0],
        torch.tensor(labels),
        start=as_images[1],
        norm="l2",
        eps=0.5,
        alpha=0.2,
        steps=4,
        targeted=targeted,
    )
    torch.testing.assert_close(ours.flatten(1), torch.tensor(np.array(expected)))


@settings(deadline=None, max_examples=60)
@given(
    norm=st.sampled_from(["linf", "l2"]),
    eps=st.floats(0, 2),
    alpha=st.floats(1e-4, 3),
    steps=st.integers(1, 4),
    restarts=st.integers(1, 3),
    targeted=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_no_attack_leaves_its_ball_or_the_range_of_images(norm, eps, alpha, steps, restarts, targeted, seed):
    model, (images, labels) = small(), batch(3)
    attack = GradientAttack(eps, alpha, steps, norm=norm, restarts=restarts, targeted=targeted)
    adversarial = perturb(attack, model, images, labels, seed=seed)
    assert adversarial.min() >= 0
    assert adversarial.max() <= 1
    delta = (adversarial - images).flatten(1)
    size = delta.abs().amax(dim=1) if norm == "linf" else delta.norm(dim=1)
    assert (size <= eps * (1 + 1e-5) + 1e-6).all()


def test_ten_steps_of_pgd_are_at_least_as_strong_as_fgsm(reader, digits):
    data, gains = digits[:100], []
    for eps in (2 / 255, 4 / 255, 8 / 255):
        one = GradientAttack(eps=eps, alpha=eps, steps=1, random_start=False)(reader, data.images, data.labels)
        ten = GradientAttack(eps=eps, alpha=eps / 4, steps=10)(reader, data.images, data.labels)
        gains.append(one.accuracy(data.labels) - ten.accuracy(data.labels))
    assert min(gains) >= 0
    assert sum(gains) > 0.1


def test_more_restarts_are_never_weaker(reader, digits):
    data = digits[:100]
    settings = {"eps": 6 / 255, "alpha": 3 / 255, "steps": 2}
    once = GradientAttack(**settings)(reader, data.images, data.labels)
    often = GradientAttack(**settings, restarts=4)(reader, data.images, data.labels)
    assert not (once.success & ~often.success).any()
    assert often.success.sum() > once.success.sum()


def test_a_targeted_attack_reaches_its_target(reader, digits):
    data = digits[:64]
    target = (data.labels + 1) % 10
    attack = GradientAttack(eps=32 / 255, alpha=4 / 255, steps=10, targeted=True)
    result = attack(reader, data.images, target)
    assert torch.equal(result.success, result.predictions == target)
    assert result.success.float().mean() > 0.5


def test_the_margin_loss_is_the_distance_to_the_best_wrong_class(reader, digits):
    from holdfast.attacks.criteria import margin

    logits, labels = torch.randn(7, 5), torch.randint(5, (7,))
    expected = [
        max(row[j] for j in range(5) if j != label) - row[label] for row, label in zip(logits, labels, strict=True)
    ]
    torch.testing.assert_close(margin(logits, labels), torch.stack(expected))
    data = digits[:50]
    strong = GradientAttack(eps=16 / 255, alpha=4 / 255, steps=10, loss="margin")(reader, data.images, data.labels)
    assert strong.success.float().mean() > 0.5


# -------------------------------------------------------------------------------------------- no trace in the model


def state_of(model: nn.Module) -> dict:
    return {
        "modes": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "state": copy.deepcopy(model.state_dict()),
        "buffers": [id(buffer) for buffer in model.buffers()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()],
    }


def assert_same(before: dict, after: dict) -> None:
    for name in ("modes", "requires_grad", "buffers", "hooks"):
        assert before[name] == after[name], name
    for name in ("gradients",):
        assert [g is None for g in before[name]] == [g is None for g in after[name]]
        assert all(torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True) if a is not None)
    assert all(torch.equal(before["state"][key], after["state"][key]) for key in before["state"])


@pytest.mark.parametrize("mode", ["eval", "keep"])
@pytest.mark.parametrize("training", [False, True])
def test_mode_gradients_and_batchnorm_are_untouched(mode, training):
    model, (images, labels) = small().train(training), batch()
    model.model.body[0].eval()  # somebody froze a part
    model.model.head.bias.requires_grad_(False)
    nn.functional.cross_entropy(model(images), labels).backward()
    before = state_of(model)
    pgd(model, images, labels, restarts=2, mode=mode)
    assert_same(before, state_of(model))


def test_nothing_has_changed_after_an_exception_either():
    model, (images, labels) = small().train(), batch()
    before = state_of(model)
    with pytest.raises(HoldfastError):
        pgd(model, images, labels + 7)
    assert_same(before, state_of(model))


def test_keep_attacks_the_network_in_training_mode():
    model, (images, labels) = small().train(), batch()
    model.model.body[1].running_mean += 3.0
    attack = {"eps": 0.1, "alpha": 0.05, "steps": 3}
    kept = pgd(model, images, labels, mode="keep", **attack)
    assert not torch.equal(kept, pgd(model, images, labels, mode="eval", **attack))
    without_statistics = copy.deepcopy(model)
    without_statistics.model.body[1].track_running_stats = False
    torch.testing.assert_close(kept, pgd(without_statistics, images, labels, mode="keep", **attack))


def adversarial_step(
    model: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, attack: bool
) -> list[torch.Tensor]:
    """The gradients of a step on clean and adversarial images; the clean graph is alive while the attack runs."""
    model.zero_grad()
    clean = nn.functional.cross_entropy(model(images).float(), labels)
    noisy = pgd(model, images, labels, eps=0.1, alpha=0.05) if attack else images
    (clean + 0 * nn.functional.cross_entropy(model(noisy).float(), labels)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("autocast", [False, True])
def test_inside_a_training_step_the_attack_changes_no_gradient_of_the_step(autocast):
    images, labels = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        plain = adversarial_step(small().train(), images, labels, attack=False)
        attacked = adversarial_step(small().train(), images, labels, attack=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, attacked, strict=True))


def test_scoring_under_autocast_does_not_cut_the_gradient_of_the_step():
    model, (images, labels) = small().train(), batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = GradientAttack(eps=0.1, alpha=0.05, steps=2, restarts=2)(model, images, labels)
        assert result.images.dtype == torch.float32
        nn.functional.cross_entropy(model(result.images).float(), labels).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("outside", [torch.no_grad, torch.inference_mode])
def test_it_runs_where_gradients_are_off(outside):
    model, (images, labels) = small(), batch()
    with outside():
        inside = pgd(model, images + 0, labels + 0)
    assert torch.equal(inside, pgd(model, images, labels))
    assert not inside.requires_grad


def test_a_training_step_under_ddp_attacks_the_network_inside():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        images, labels = batch()
        # torch 2.9 sends buffers in place before every forward pass, which breaks two passes before one backward pass
        ddp = partial(nn.parallel.DistributedDataParallel, broadcast_buffers=False)
        wrapped = ddp(small().train(), find_unused_parameters=True)
        inner = PixelModel(ddp(Small()), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
        inner.model.module.load_state_dict(wrapped.module.model.state_dict())
        expected = adversarial_step(small().train(), images, labels, attack=True)
        for model in (wrapped, inner.train()):
            before = state_of(model)
            adversarial = pgd(model, images, labels)
            assert_same(before, state_of(model))
            assert torch.equal(adversarial, pgd(small(), images, labels))
            got = adversarial_step(model, images, labels, attack=True)
            assert all(torch.allclose(a, b) for a, b in zip(expected, got, strict=True))
    finally:
        torch.distributed.destroy_process_group()


def test_gradient_checkpointing_changes_nothing():
    model = from_pixels(timm.create_model("fan_nano", embed_dim=32, num_heads=2))
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([1, 2])
    plain = pgd(model, images, labels, mode="keep", eps=0.1, alpha=0.05, steps=2)
    model.model.set_grad_checkpointing(True)
    saving = pgd(model, images, labels, mode="keep", eps=0.1, alpha=0.05, steps=2)
    assert ((plain - saving).abs() > 1e-6).float().mean() < 1e-2


# ------------------------------------------------------------------------------------------------- random starts


def test_random_starts_belong_to_images_not_to_batches():
    model, (images, labels) = small(), batch(6)
    ids = [f"n01440764_{i}" for i in range(6)]
    for geometry in ({"norm": "linf"}, {"norm": "l2", "restarts": 3}):
        run = {"eps": 0.2, "alpha": 1e-6, "steps": 1, "seed": 3, **geometry}
        whole = pgd(model, images, labels, ids=ids, **run)
        order = [4, 0, 5, 2, 1, 3]
        parts = [
            pgd(model, images[part], labels[part], ids=[ids[i] for i in part], **run)
            for part in ([4], order[1:4], order[4:])
        ]
        torch.testing.assert_close(torch.cat(parts), whole[order], atol=1e-5, rtol=0)
        assert not torch.allclose(pgd(model, images, labels, ids=ids, **{**run, "seed": 4}), whole, atol=1e-3)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_starts_are_bit_identical_for_any_batch(norm):
    from holdfast.attacks.norms import NORMS

    images, ids = torch.rand(7, 3, 8, 8), list("abcdefg")
    whole = NORMS[norm].start(images, 0.3, seed=1, ids=ids, purpose="start/0")
    for rows in ([6], [2, 0], [5, 4, 3, 1]):
        part = NORMS[norm].start(images[rows], 0.3, seed=1, ids=[ids[row] for row in rows], purpose="start/0")
        assert torch.equal(part, whole[rows])


def test_accuracy_under_attack_does_not_depend_on_the_batch_size(reader, digits):
    data = digits[:90]
    attack = GradientAttack(eps=4 / 255, alpha=1 / 255, steps=5)
    whole = attack(reader, data.images, data.labels, ids=range(90))
    parts = [
        attack(reader, data.images[rows], data.labels[rows], ids=rows).predictions for rows in torch.arange(90).split(7)
    ]
    assert torch.equal(torch.cat(parts), whole.predictions)


def test_the_global_random_state_is_neither_read_nor_moved():
    model, (images, labels) = small(), batch()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = pgd(model, images, labels)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, pgd(model, images, labels))


def test_starts_are_uniform_in_the_ball():
    from holdfast.attacks.norms import NORMS

    images, ids = torch.zeros(4000, 1, 1, 2), range(4000)
    cube = NORMS["linf"].start(images, 0.5, seed=0, ids=ids, purpose="test").flatten(1)
    disc = NORMS["l2"].start(images, 0.5, seed=0, ids=ids, purpose="test").flatten(1).norm(dim=1)
    assert cube.abs().max() <= 0.5
    assert cube.mean().abs() < 0.02
    assert cube.std().item() == pytest.approx(1 / 12**0.5, rel=0.03)
    assert disc.max() <= 0.5
    assert (disc < 0.25).float().mean().item() == pytest.approx(0.25, abs=0.03)  # a quarter of the area


# ------------------------------------------------------------------------------------------- presets and bad input


def test_presets_are_the_published_protocols():
    published = {  # eps, alpha, steps, random start
        "fgsm": (1 / 255, 1 / 255, 1, False),
        "pgd5": (1 / 255, 0.5 / 255, 5, True),
        "pgd3-rvt-adv": (4 / 255, 8 / 255 / 3, 3, True),
        "pgd5-rspc": (8 / 255, 2 / 255, 5, True),
    }
    for name, values in published.items():
        attack = PRESETS[name]
        assert (attack.eps, attack.alpha, attack.steps, attack.random_start) == pytest.approx(values)
        assert (attack.norm, attack.restarts, attack.targeted, attack.loss) == ("linf", 1, False, "cross_entropy")


def test_fgsm_is_one_signed_step_clipped_to_the_image_range():
    model, (images, labels) = small(), batch()
    points = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(points), labels), points)
    expected = (images + 8 / 255 * gradient.sign()).clamp(0, 1)
    torch.testing.assert_close(fgsm(model, images, labels, eps=8 / 255), expected, atol=1e-6, rtol=0)
    assert torch.equal(fgsm(model, images, labels, eps=0.0), images)


def test_a_result_says_what_was_run():
    model, (images, labels) = small(), batch()
    result = PRESETS["pgd5"](model, images, labels, seed=9)
    assert result.record["attack"] == "gradient"
    assert (result.record["eps"], result.record["steps"], result.record["seed"]) == (1 / 255, 5, 9)
    assert torch.equal(result.predictions, model(result.images).argmax(1))
    assert torch.equal(result.success, result.predictions != labels)
    assert result.accuracy(labels) == pytest.approx(1 - result.success.float().mean().item())


def test_soft_labels_are_climbed_too():
    model, (images, labels) = small(), batch()
    soft = nn.functional.one_hot(labels, 5).float()
    assert torch.equal(pgd(model, images, soft), pgd(model, images, labels))


class Rounds(nn.Module):
    def forward(self, x):
        return x.detach().mean((2, 3))


class Breaks(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) / 0


class Several(nn.Module):
    def forward(self, x):
        return x, x


IMAGES, LABELS = torch.rand(2, 3, 8, 8), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: pgd(small(), IMAGES, LABELS, eps=-0.1), "eps must be 0 or more, got -0.1"),
        (lambda: pgd(small(), IMAGES, LABELS, eps=float("nan")), "eps must be 0 or more, got nan"),
        (lambda: pgd(small(), IMAGES, LABELS, alpha=0), "alpha must be positive, got 0"),
        (lambda: pgd(small(), IMAGES, LABELS, steps=0), "steps must be at least 1, got 0"),
        (lambda: pgd(small(), IMAGES, LABELS, restarts=2, random_start=False), "restarts must be 1 without a random"),
        (lambda: pgd(small(), IMAGES, LABELS, norm="l1"), "norm must be one of linf, l2, got 'l1'"),
        (lambda: pgd(small(), IMAGES, LABELS, loss="margn"), "did you mean 'margin'"),
        (lambda: pgd(small(), IMAGES, LABELS + 4), "labels must lie in 0…4 for a model of 5 classes, got 4…5"),
        (lambda: pgd(small(), IMAGES, LABELS - 1), "labels must lie in 0…4 .* got -1…0"),
        (lambda: pgd(small(), IMAGES, LABELS[:1]), r"labels must have shape \(2,\), one per image"),
        (lambda: pgd(small(), IMAGES, torch.rand(2, 3)), r"soft labels must have shape \(2, 5\)"),
        (lambda: pgd(small(), IMAGES * 2 - 1, LABELS), r"images must lie in \[0, 1\], got values from -"),
        (lambda: pgd(small(), IMAGES * torch.nan, LABELS), r"images must lie in \[0, 1\], got values from nan"),
        (lambda: pgd(small(), (IMAGES * 255).byte(), LABELS), "images must be floating-point"),
        (lambda: pgd(Rounds(), IMAGES, LABELS), "the model must be differentiable with respect to its images"),
        (lambda: pgd(Breaks(), IMAGES, LABELS), "finite logits, got NaN or infinity for 2 of 2 images"),
        (lambda: pgd(nn.Identity(), IMAGES, LABELS), r"logits of shape \(images, classes\), got \(2, 3, 8, 8\)"),
        (lambda: pgd(Several(), IMAGES, LABELS), r"logits of shape \(images, classes\), got tuple"),
        (lambda: pgd(small(), IMAGES, LABELS, ids=["a"]), "ids must name every image, expected 2, got 1"),
        (lambda: pgd(small(), IMAGES, LABELS, start=IMAGES[:1]), "start must have the images' shape"),
        (lambda: pgd(small(), IMAGES, LABELS, mode="train"), "mode must be one of eval, keep, got 'train'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(HoldfastError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
