"""Patch-Fool changes one patch, the one attended to most, and does more harm there than random pixels do."""

import numpy as np
import pytest
import timm
import torch
from torch import nn

from holdfast import HoldfastError, watch
from holdfast.attacks import PRESETS, PatchFool, PixelModel, from_pixels, rng
from holdfast.attacks.patch_fool import attention_term, pcgrad
from tests.attacks.test_projected_gradient_descent import assert_same, state_of
from tests.attention.test_hooks import brute_force

TOKEN_MODELS = {"fan_nano": {"embed_dim": 32, "num_heads": 2}, "vit_nano": {"embed_dim": 32}}


def build(name: str, count: int = 3) -> tuple[PixelModel, torch.Tensor, torch.Tensor]:
    model = from_pixels(timm.create_model(name, num_classes=7, **TOKEN_MODELS[name]).eval())
    return model, torch.rand(count, 3, 32, 32), torch.arange(count)


class Conv(nn.Module):
    """No attention of any kind."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 64, 7))

    def forward(self, x):
        return self.layers(x)


def maps_by_hand(model: PixelModel, images: torch.Tensor) -> list[torch.Tensor]:
    """Every block's attention, from the weights and the input of its attention module; gradients flow."""
    inputs: dict[str, tuple[nn.Module, torch.Tensor]] = {}
    hooks = [
        module.register_forward_hook(lambda m, args, out, path=path: inputs.update({path: (m, args[0])}))
        for path, module in model.model.named_modules()
        if path.endswith(".attn") and "cls_attn" not in path
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return [brute_force(module, x, None) for module, x in inputs.values()]


def changed(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return (before != after).any(dim=1)  # B H W


def patch_of(cell: tuple[int, int], size: int = 4) -> tuple[slice, slice]:
    row, column = cell
    return slice(row * size, (row + 1) * size), slice(column * size, (column + 1) * size)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_exactly_one_patch_changes_and_it_is_the_most_attended_one(name):
    model, images, labels = build(name)
    result = PatchFool(steps=2)(model, images, labels)
    received = maps_by_hand(model, images)[4].mean(dim=(1, 2))
    patches = received[:, received.shape[1] - 64 :]  # the class token is no patch
    for image, (cell,) in enumerate(result.record["chosen"]):
        assert cell == divmod(int(patches[image].argmax()), 8)
        where = changed(images, result.images)[image]
        assert where[patch_of(cell)].all()
        where[patch_of(cell)] = False
        assert not where.any()
    assert result.images.min() >= 0
    assert result.images.max() <= 1


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_the_attention_term_equals_a_brute_force_computation(name):
    model, images, _ = build(name)
    with torch.no_grad(), watch(model.model) as seen:
        model(images)
    with torch.no_grad():
        by_hand = maps_by_hand(model, images)
    patch = torch.tensor([5, 63, 0])
    for handle, maps in zip(seen.attention, by_hand, strict=True):
        heads, queries, keys = maps.shape[1:]
        expected = [
            np.mean(
                [
                    np.log(np.mean([maps[b, h, q, int(patch[b]) + keys - 64].item() for h in range(heads)]))
                    for q in range(queries)
                ]
            )
            for b in range(3)
        ]
        torch.testing.assert_close(attention_term(handle, patch), torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("surgery", ["as-coded", "orthogonal"])
def test_surgery_removes_only_what_opposes(surgery):
    rng = np.random.default_rng(0)
    gradient, anchor = rng.standard_normal((2, 20, 3, 2, 2))
    expected = []
    for g, a in zip(gradient, anchor, strict=True):
        dot, length = (g * a).sum(), np.sqrt((a * a).sum())
        divisor = length if surgery == "as-coded" else length**2
        expected.append(g - dot / divisor * a if dot < 0 else g)
    ours = pcgrad(torch.tensor(gradient), torch.tensor(anchor), surgery=surgery)
    torch.testing.assert_close(ours, torch.tensor(np.array(expected)))
    if surgery == "orthogonal":
        assert ((ours * torch.tensor(anchor)).sum(dim=(1, 2, 3)) > -1e-12).all()


@pytest.mark.parametrize("units", ["normalised", "pixels"])
@pytest.mark.parametrize("pixels", [None, 7])
@pytest.mark.parametrize("surgery", ["as-coded", "orthogonal"])
def test_a_step_follows_the_sum_of_all_gradients(surgery, pixels, units):
    model, images, labels = build("vit_nano", 2)
    scale = model.std if units == "normalised" else torch.ones(3, 1, 1)
    # a heavy weight, so that the attention terms decide about signs
    attack = PatchFool(
        steps=1, lr=0.05, attention_weight=50.0, surgery=surgery, units=units, pixels=pixels, mask_steps=0
    )
    start = PatchFool(steps=0, pixels=pixels)(model, images, labels)
    after = attack(model, images, labels)
    assert after.record["blocks"] == [1, 2, 3]  # 8 blocks: the first half without the first

    points = start.images.clone().requires_grad_()
    region = changed(images, start.images).unsqueeze(1)  # of the sparse variant, the chosen pixels alone
    maps = maps_by_hand(model, points)
    loss = nn.functional.cross_entropy(model(points), labels, reduction="sum")
    climb = torch.autograd.grad(loss, points)[0] * region * scale
    total = climb.clone()
    for block in (1, 2, 3):
        term = 0
        for b, ((row, column),) in enumerate(start.record["chosen"]):
            term = term + maps[block][b].mean(0)[:, 1 + 8 * row + column].log().mean()
        pull = torch.autograd.grad(term, points, retain_graph=True)[0] * region * scale
        for b in range(2):
            dot, length = (pull[b] * climb[b]).sum(), climb[b].norm()
            if dot < 0:
                pull[b] -= dot / (length if surgery == "as-coded" else length**2) * climb[b]
        total += 50.0 * pull
    expected = (start.images + scale * 0.05 * total / (total.abs() + 1e-8)).clamp(0, 1)  # Adam's first step
    torch.testing.assert_close(after.images, expected, atol=1e-4, rtol=0)


class Sums(nn.Module):
    """The first of two logits is a weighted sum of all values, the second one nothing."""

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, x):
        return torch.stack([(x * self.weights).sum(dim=(1, 2, 3)), x.new_zeros(len(x))], dim=1)


def test_a_step_of_022_is_about_005_in_pixels():
    """0.22 times the deviation 0.229, 0.224, 0.225 is 0.0504, 0.0493, 0.0495."""
    signs = torch.tensor([1.0, -1.0, 1.0]).view(3, 1, 1) * 1e-3
    model = PixelModel(Sums(signs.expand(3, 8, 8)), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    images, labels = torch.full((1, 3, 8, 8), 0.5), torch.tensor([0])
    start = PatchFool(steps=0, patch_size=8)(model, images, labels).images
    for units, steps in [("normalised", (-0.05038, 0.04928, -0.0495)), ("pixels", (-0.22, 0.22, -0.22))]:
        after = PatchFool(steps=1, patch_size=8, units=units)(model, images, labels).images
        for channel, step in enumerate(steps):
            expected = (start[0, channel] + step).clamp(0, 1)
            torch.testing.assert_close(after[0, channel], expected, atol=1e-4, rtol=0)


def test_it_lowers_accuracy_below_random_content_in_the_same_patch(reader, digits):
    data = digits[:64]
    random = PatchFool(steps=0)(reader, data.images, data.labels)
    fooled = PatchFool(steps=15)(reader, data.images, data.labels)
    assert random.record["chosen"] == fooled.record["chosen"]
    assert fooled.record["form"] == "attention"
    assert fooled.accuracy(data.labels) < random.accuracy(data.labels) - 0.1


def test_a_heavier_attention_term_draws_more_attention_to_the_patch(reader, digits):
    data = digits[:16]
    drawn = []
    for weight in (0.0, 1.0):
        result = PatchFool(steps=8, attention_weight=weight)(reader, data.images, data.labels)
        patch = torch.tensor([4 * row + column for ((row, column),) in result.record["chosen"]])
        with torch.no_grad(), watch(reader.model) as seen:
            reader(result.images)
        drawn.append(sum(attention_term(seen.attention[block], patch).mean().item() for block in (1, 2)))
    assert drawn[1] > drawn[0]


def test_the_sparse_variant_changes_so_many_pixels_of_the_patches():
    model, images, labels = build("fan_nano")
    result = PatchFool(steps=4, patches=2, pixels=11, mask_steps=3)(model, images, labels)
    where = changed(images, result.images)
    assert where.flatten(1).sum(dim=1).tolist() == [11, 11, 11]
    for image, cells in enumerate(result.record["chosen"]):
        assert len(set(cells)) == 2
        for cell in cells:
            where[image][patch_of(cell)] = False
    assert not where.any()


def test_the_sparse_mask_is_learned_until_it_is_frozen():
    model, images, labels = build("fan_nano")
    run = {"pixels": 8, "mask_lr": 0.5}

    def mask(steps, mask_steps):
        attack = PatchFool(steps=steps, mask_steps=mask_steps, **run)
        return changed(images, attack(model, images, labels).images)

    first = mask(0, 3)
    assert torch.equal(first, mask(3, 0))
    assert torch.equal(first, mask(3, 1))  # the last update of the schedule finds it frozen
    assert not torch.equal(first, mask(1, 2))
    assert torch.equal(mask(1, 2), mask(5, 2))
    assert not torch.equal(mask(1, 3), mask(2, 3))
    assert torch.equal(mask(2, 3), mask(5, 3))


def test_the_mask_climbs_the_gradient_times_the_content():
    """All gradients are negative, so where the content is above the mean (0.5), a mask of 1 costs, and below it pays.

    What it was before, black here, does not count: content minus image is above 0 everywhere.
    """
    model = PixelModel(Sums(torch.full((3, 4, 4), 0.1)), mean=(0.5,) * 3, std=(0.25,) * 3)
    images, labels = torch.zeros(1, 3, 4, 4), torch.tensor([0])
    content = PatchFool(steps=0, patch_size=4)(model, images, labels).images[0]
    scores = rng.uniform(torch.empty(1, 1, 4, 4), seed=0, ids=[0], purpose="patch mask")[0, 0]
    pays = torch.where(content.mean(dim=0) < 0.5, 0.3, -0.3)  # Adam's first step is as long as its rate
    first, expected = (set(values.flatten().topk(5).indices.tolist()) for values in (scores, scores + pays))
    assert first != expected
    result = PatchFool(steps=1, patch_size=4, pixels=5, mask_steps=2, mask_lr=0.3)(model, images, labels)
    assert set(changed(images, result.images).flatten().nonzero().flatten().tolist()) == expected


def test_the_mask_has_its_own_surgery():
    model, images, labels = build("vit_nano", 2)
    run = {"attention_weight": 50.0, "pixels": 5, "mask_lr": 0.3, "mask_steps": 2}
    first, after = (PatchFool(steps=steps, **run)(model, images, labels) for steps in (0, 1))
    content = PatchFool(steps=0)(model, images, labels).images
    points = first.images.clone().requires_grad_()
    maps, loss = maps_by_hand(model, points), nn.functional.cross_entropy(model(points), labels, reduction="sum")
    values = (content - model.mean) / model.std
    scores = rng.uniform(torch.empty(2, 1, 32, 32), seed=0, ids=[0, 1], purpose="patch mask")[:, 0]
    region = changed(images, content)

    def by_mask(objective):
        (gradient,) = torch.autograd.grad(objective, points, retain_graph=True)
        return (gradient * model.std * values).sum(dim=1) * region  # B H W

    climb = by_mask(loss)
    total = climb.clone()
    for block in (1, 2, 3):
        cells = [1 + 8 * row + column for ((row, column),) in first.record["chosen"]]
        pull = by_mask(sum(maps[block][b].mean(0)[:, cell].log().mean() for b, cell in enumerate(cells)))
        for b in range(2):
            dot = (pull[b] * climb[b]).sum()
            pull[b] -= min(dot.item(), 0) / climb[b].norm() * climb[b]
        total += 50.0 * pull
    best = torch.where(region, scores + 0.3 * total.sign(), -1.0).flatten(1).topk(5, dim=1).indices
    expected = torch.zeros(2, 1024, dtype=torch.bool).scatter(1, best, True).view(2, 32, 32)
    assert torch.equal(changed(images, after.images), expected)
    assert not torch.equal(expected, changed(images, first.images))


def test_the_linf_variant_stays_near_the_image():
    model, images, labels = build("fan_nano")
    result = PatchFool(steps=4, bound="linf", eps=0.1)(model, images, labels)
    size = (result.images - images).flatten(1).abs().amax(dim=1)
    assert (size <= 0.1 + 1e-6).all()
    assert (size > 0.05).all()
    assert (changed(images, result.images).flatten(1).sum(dim=1) <= 16).all()


def test_the_l2_variant_bounds_every_channel_after_a_start_without_bounds():
    model, images, labels = build("fan_nano")
    images = 0.25 + images / 2  # so that [0,1] shortens no perturbation of length 0.1
    start, result = (PatchFool(steps=steps, bound="l2", eps=0.1)(model, images, labels).images for steps in (0, 4))
    assert torch.equal(start, PatchFool(steps=0)(model, images, labels).images)
    delta = (result - images).flatten(2)
    torch.testing.assert_close(delta.norm(dim=2), torch.full((3, 3), 0.1), atol=1e-5, rtol=0)
    torch.testing.assert_close(delta.flatten(1).norm(dim=1), torch.full((3,), 3**0.5 * 0.1), atol=1e-5, rtol=0)
    assert (changed(images, result).flatten(1).sum(dim=1) <= 16).all()


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda: PixelModel(Conv(), mean=(0.5,) * 3, std=(0.2,) * 3), 4),
        (lambda: from_pixels(timm.create_model("xcit_nano_12_p8_224", num_classes=7)), None),
        (lambda: from_pixels(timm.create_model("fan_nano", num_classes=7, **TOKEN_MODELS["fan_nano"])), 8),
    ],
    ids=["a convolution", "channel attention", "patches that are not tokens"],
)
def test_without_token_attention_the_form_is_cross_entropy_only_and_the_record_says_so(model, size):
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 3])
    result = PatchFool(steps=2, patch_size=size)(model(), images, labels)
    assert result.record["form"] == "cross-entropy-only"
    assert not result.record["token_attention"]
    assert (result.record["blocks"], result.record["selected_by"]) == ([], "gradient")
    assert changed(images, result.images).flatten(1).sum(dim=1).tolist() == [(size or 16) ** 2] * 2


def test_the_gradient_chooses_the_patch_where_its_absolute_sum_is_largest():
    model = PixelModel(Conv(), mean=(0.5,) * 3, std=(0.1, 0.2, 0.4))
    images, labels = torch.rand(2, 3, 32, 32).requires_grad_(), torch.tensor([0, 3])
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(images), labels), images)
    result = PatchFool(steps=0, select="gradient", patch_size=4)(model, images.detach(), labels)
    for image, (cell,) in enumerate(result.record["chosen"]):
        seen = gradient[image].abs() * model.std  # the gradient by normalised values
        sizes = {(r, c): seen[:, *patch_of((r, c))].sum().item() for r in range(8) for c in range(8)}
        assert cell == max(sizes, key=sizes.get)


def test_many_small_gradients_outweigh_a_large_one():
    weights = torch.zeros(3, 8, 8)
    weights[0, 1, 1] = 3.0  # Σ|g| 3, Σg² 9
    weights[1, 4:, 4:] = 0.5  # Σ|g| 8, Σg² 4
    model, images = PixelModel(Sums(weights), mean=(0.5,) * 3, std=(0.2,) * 3), torch.full((1, 3, 8, 8), 0.5)
    result = PatchFool(steps=0, select="gradient", patch_size=4)(model, images, torch.tensor([0]))
    assert result.record["chosen"] == [[(1, 1)]]


def test_results_belong_to_images_not_to_batches():
    model, images, labels = build("fan_nano", 4)
    for attack in (PatchFool(steps=2), PatchFool(steps=2, pixels=5), PatchFool(steps=2, select="random")):
        whole = attack(model, images, labels, seed=1, ids=["a", "b", "c", "d"])
        parts = [attack(model, images[i : i + 1], labels[i : i + 1], seed=1, ids=["abcd"[i]]) for i in (3, 1)]
        for part, i in zip(parts, (3, 1), strict=True):
            assert part.record["chosen"][0] == whole.record["chosen"][i]
            torch.testing.assert_close(part.images[0], whole.images[i], atol=1e-2, rtol=0)


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_untouched(training):
    model, images, labels = build("fan_nano")
    model.train(training)
    before = state_of(model)
    PatchFool(steps=2)(model, images, labels)
    assert_same(before, state_of(model))


def test_the_defaults_are_the_published_ones():
    attack = PRESETS["patch-fool"]
    assert (attack.steps, attack.lr, attack.decay, attack.decay_every) == (250, 0.22, 0.95, 10)
    assert (attack.attention_weight, attack.select, attack.patches) == (0.002, "attention", 1)
    assert attack.units == "normalised"
    sparse = PRESETS["patch-fool-sparse"]
    assert (sparse.pixels, sparse.mask_steps, sparse.mask_lr) == (250, 200, 1e-2)


def test_block_4_chooses_or_the_last_of_a_shallower_model():
    model, images, labels = build("fan_nano")
    chosen = PatchFool(steps=0)(model, images, labels).record["chosen"]
    each = [PatchFool(steps=0, select_block=b)(model, images, labels).record["chosen"] for b in range(6)]
    assert chosen == each[4]
    assert chosen != each[1]
    model.model.blocks = model.model.blocks[:2]
    assert PatchFool(steps=0)(model, images, labels).record["chosen"] == each[1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": -1}, "steps must be 0 or more, got -1"),
        ({"lr": 0}, "lr must be positive, got 0"),
        ({"units": "bytes"}, "units must be one of normalised, pixels, got 'bytes'"),
        ({"surgery": "none"}, "surgery must be one of as-coded, orthogonal, got 'none'"),
        ({"select": "best"}, "select must be one of attention, gradient, random, got 'best'"),
        ({"pixels": 0}, "pixels must be at least 1, got 0"),
        ({"pixels": 17}, "pixels must be at most the 16 of the chosen patches, got 17"),
        ({"bound": "l1", "eps": 0.1}, "bound must be one of linf, l2, got 'l1'"),
        ({"bound": "linf"}, "bound and eps .* belong together, got bound='linf' and eps=None"),
        ({"eps": 0.1}, "bound and eps"),
        ({"patch_size": 5}, "patch_size must divide the image, got 5 for 32×32"),
        ({"patches": 65}, "patches must be at most 64, got 65"),
        ({"select_block": 6}, "select_block must be below the model's 6 blocks, got 6"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    model, images, labels = build("fan_nano")
    with pytest.raises(HoldfastError, match=sentence):
        PatchFool(**settings)(model, images, labels)
