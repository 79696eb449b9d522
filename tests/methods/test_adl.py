"""Attention diversification: the published values, both forms, and two implementations that agree."""

import json
from pathlib import Path

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.attention import AttentionHandle
from holdfast.methods.adl import AttentionDiversification, layer_diversification
from tests.golden_weights import normal

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "methods.json").read_text())["adl"]


def handle_of(logits: torch.Tensor, prefix: int = 0) -> AttentionHandle:
    """A handle whose maps are softmax(logits)."""
    return AttentionHandle("x", "token", logits, torch.eye(logits.shape[-1]).to(logits), scale=1.0, prefix=prefix)


def golden_logits() -> list[torch.Tensor]:
    layers = []
    for layer, strength in enumerate((1, 3, 6)):
        noise = normal(f"golden/adl/{layer}", (2, 4, 49, 49)) + strength * normal(
            f"golden/adl/col/{layer}", (2, 4, 1, 49)
        )
        layers.append(torch.from_numpy(noise).float())
    return layers


def test_released_form_equals_the_published_values_and_gradients():
    maps = [logits.softmax(-1).requires_grad_() for logits in golden_logits()]
    handles = [handle_of(layer.log()) for layer in maps]
    loss, _ = AttentionDiversification()(handles)
    assert loss.item() == pytest.approx(GOLDEN["loss_as_released"], rel=1e-5)

    # gradients with respect to the maps themselves: feed them as rows that need no softmax
    class Given(AttentionHandle):
        def rows_of(self, rows):
            return self.q[..., rows, :]

    given_handles = [Given("x", "token", layer, layer, scale=1.0) for layer in maps]
    loss, _ = AttentionDiversification()(given_handles)
    gradients = torch.autograd.grad(loss, maps)
    assert [g.norm().item() for g in gradients] == pytest.approx(GOLDEN["grad_l2_as_released"], rel=1e-4)


def test_paper_form_equals_the_published_value():
    loss, _ = AttentionDiversification(variant="paper")([handle_of(logits) for logits in golden_logits()])
    assert loss.item() == pytest.approx(GOLDEN["loss_as_in_the_paper"], rel=1e-5)


def brute_force(maps: torch.Tensor, tau: float, variant: str) -> float:
    """Image by image, row by row."""
    total, count = 0.0, 0
    for image in maps.mean(dim=1):
        tokens = len(image)
        kept = [row * ((row > tau / tokens) if variant == "released" else (row >= tau / tokens)) for row in image]
        if variant == "released":
            mean = image.mean(dim=0)
            mean = mean * (mean > tau / tokens)
        else:
            mean = torch.stack(kept).mean(dim=0)
        for row in kept:
            norms = max(mean.norm().item(), 1e-8) * max(row.norm().item(), 1e-8)
            total, count = total + (mean @ row).item() / norms, count + 1
    return total / count


@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    tokens=st.integers(2, 12),
    chunk=st.integers(1, 13),
    variant=st.sampled_from(["released", "paper"]),
    double=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_chunked_equals_explicit_equals_brute_force(batch, heads, tokens, chunk, variant, double, seed):
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float64 if double else torch.float32
    q = torch.randn(batch, heads, tokens, 5, generator=generator, dtype=dtype).requires_grad_()
    k = (3 * torch.randn(batch, heads, tokens, 5, generator=generator, dtype=dtype)).requires_grad_()
    handle = AttentionHandle("x", "token", q, k, scale=0.7)
    results = []
    for size in (None, chunk):
        loss, active = layer_diversification(handle, variant=variant, chunk=size)
        results.append((loss, active, *torch.autograd.grad(loss, (q, k))))
    for explicit, chunked in zip(*results, strict=True):
        torch.testing.assert_close(explicit, chunked)
    assert results[0][0].item() == pytest.approx(brute_force(handle.maps().detach(), 2.0, variant), abs=1e-5)


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_chunks_give_multipliers_biases_and_class_tokens_the_same_gradients(variant):
    """RVT's masks and Swin's positions are learned through the loss, too."""
    q, k = (torch.randn(2, 2, 9, 4, dtype=torch.float64, requires_grad=True) for _ in "qk")
    multiplier, bias = (3 * torch.rand(2, 9, 9, dtype=torch.float64) for _ in "mb")
    inputs = [q, k, multiplier.requires_grad_(), bias.requires_grad_()]
    handle = AttentionHandle("x", "token", q, k, scale=2.0, prefix=1, multiplier=multiplier, bias=bias)
    gradients = []
    for chunk in (None, 3):
        loss, _ = layer_diversification(handle, variant=variant, tau=1.2, chunk=chunk)
        assert loss > 0
        gradients.append(torch.autograd.grad(loss, inputs))
    for explicit, chunked in zip(*gradients, strict=True):
        torch.testing.assert_close(explicit, chunked)


def test_one_image_alone_has_the_loss_it_has_in_a_batch():
    logits = torch.randn(1, 2, 9, 9) + 5 * torch.randn(1, 2, 1, 9)
    alone, _ = layer_diversification(handle_of(logits))
    twice, _ = layer_diversification(handle_of(logits.repeat(2, 1, 1, 1)))
    assert alone.item() > 0.1
    assert alone.item() == pytest.approx(twice.item(), rel=1e-6)


def test_class_tokens_are_dropped_and_rows_renormalised():
    logits = torch.randn(2, 2, 10, 10) + 3 * torch.randn(2, 2, 1, 10)
    with_class, _ = layer_diversification(handle_of(logits, prefix=1))
    without, _ = layer_diversification(handle_of(logits[..., 1:, 1:]))
    assert with_class.item() == pytest.approx(without.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "kwargs", "size"),
    [
        ("fan_nano", {}, 32),
        ("deit_tiny_patch16_224", {"img_size": 48}, 48),
        ("swin_tiny_patch4_window7_224", {"img_size": 56}, 56),
    ],
)
def test_it_reaches_the_weights_of_every_family(name, kwargs, size):
    model = timm.create_model(name, **kwargs)
    with torch.no_grad():  # start weights attend to everything alike: sharpen them
        for key, parameter in model.named_parameters():
            if "attn.q" in key:
                parameter.mul_(20)
    with holdfast.watch(model) as seen:
        model(torch.randn(2, 3, size, size))
    loss, figures = AttentionDiversification(variant="paper")(seen.attention)
    loss.backward()
    assert 0 < loss.item() <= 1
    assert 0 < figures["adl_active_rows"] <= 1
    touched = [key for key, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert any("attn" in key for key in touched)


def test_overfocused_maps_cost_more_than_diverse_ones():
    focused = torch.zeros(1, 1, 16, 16)
    focused[..., 3] = 8
    diverse = 8 * torch.eye(16)[None, None]
    assert layer_diversification(handle_of(focused))[0] > 0.99
    assert layer_diversification(handle_of(diverse), variant="paper")[0] < 0.3
    assert layer_diversification(handle_of(diverse))[0] == 0  # released: no column collects more than τ/N


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"weight": -1}, "weight of ADL must not be negative, got -1"),
        ({"tau": 0}, "tau of ADL must be positive, got 0"),
        ({"variant": "code"}, "variant of ADL must be 'released' or 'paper', got 'code'"),
    ],
)
def test_bad_settings_get_one_sentence(kwargs, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence):
        AttentionDiversification(**kwargs)


def test_channel_attention_is_refused():
    model = timm.create_model("xcit_nano_12_p16_224")
    with holdfast.watch(model) as seen:
        model(torch.randn(1, 3, 32, 32))
    with pytest.raises(holdfast.HoldfastError, match="ADL needs a model with token or window attention"):
        AttentionDiversification()(seen.attention)


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_pooled_queries_and_talking_heads_count_with_and_without_chunks(variant):
    """Fewer queries than keys (Hiera): the threshold is τ by the keys. Mixed scores (CaiT) are never read unmixed."""
    generator = torch.Generator().manual_seed(3)
    q, k = (2 * torch.randn(2, 3, n, 8, generator=generator) for n in (4, 16))
    mixing = torch.randn(3, 3, generator=generator)
    for options in ({}, {"mixing": mixing}):
        values, gradients = [], []
        for chunk in (None, 3):
            queries = q.clone().requires_grad_()
            handle = AttentionHandle("x", "token", queries, k, scale=1.0, **options)
            loss, _ = layer_diversification(handle, variant=variant, chunk=chunk)
            values.append(loss.item())
            gradients.append(torch.autograd.grad(loss, queries)[0])
        scores = q @ k.mT if not options else torch.einsum("gh,bhnm->bgnm", mixing, q @ k.mT)
        rows = scores.softmax(-1).mean(dim=1)
        kept = rows * (rows > 2 / 16 if variant == "released" else rows >= 2 / 16)
        mean = rows.mean(1) if variant == "released" else kept.mean(1)
        mean = mean * (mean > 2 / 16) if variant == "released" else mean
        expected = torch.cosine_similarity(mean.unsqueeze(1), kept, dim=-1).mean().item()
        assert values == pytest.approx([expected, expected], rel=1e-4)
        torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-4)
