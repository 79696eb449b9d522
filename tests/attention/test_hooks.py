"""``watch`` sees what the model computes, and leaves no trace."""

import copy
import os

import pytest
import timm
import torch
from torch import nn

import holdfast
from holdfast.attention import AttentionHandle

FAMILIES = {  # model, keyword arguments, image size, kind, blocks
    "fan_nano": ({}, (32, 48), "token", 6),
    "fan_nano_hybrid": ({}, (32, 48), "token", 5),
    "fan_swin_tiny_patch4_window7_224": ({"img_size": (64, 96), "drop_path_rate": 0.0}, (64, 96), "window", 12),
    "rvt_nano": ({}, (32, 48), "token", 7),
    "tap_rvt_tiny_plus": ({}, (64, 96), "token", 12),
    "vit_nano": ({"img_size": (32, 48)}, (32, 48), "token", 8),
    "vit_tiny_patch16_224": ({"dynamic_img_size": True}, (48, 64), "token", 12),
    "deit_tiny_distilled_patch16_224": ({"img_size": (48, 64)}, (48, 64), "token", 12),
    "swin_tiny_patch4_window7_224": ({"img_size": (56, 112), "drop_path_rate": 0.0}, (56, 112), "window", 12),
    "xcit_nano_12_p16_224": ({}, (48, 64), "channel", 12),
}


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    kwargs, size, _, _ = FAMILIES[name]
    return timm.create_model(name, num_classes=3, **kwargs).eval(), torch.randn(2, 3, *size)


def heads_apart(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


def brute_force(attention: nn.Module, x: torch.Tensor, *rest) -> torch.Tensor:
    """softmax(QKᵀ) from the module's own weights and input, one family at a time, without its forward pass."""
    family, heads = type(attention).__name__, attention.num_heads
    if family == "TokenAttention":
        q = heads_apart(attention.q(x), heads)
        k = heads_apart(attention.kv(x).chunk(2, dim=-1)[0], heads)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    q, k, _ = (heads_apart(part, heads) for part in attention.qkv(x).chunk(3, dim=-1))
    if family == "XCA":
        q, k = (nn.functional.normalize(part.mT, dim=-1) for part in (q, k))
        return (q @ k.mT * attention.temperature).softmax(-1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if family == "RVTAttention" and attention.att_mask is not None:
        scores = scores * attention.multiplier(tuple(rest))
    if family == "WindowAttention":
        area = x.shape[1]
        table = attention.relative_position_bias_table[attention.relative_position_index.reshape(-1)]
        scores = scores + table.reshape(area, area, heads).permute(2, 0, 1)
        mask = rest[0] if rest else None
        if mask is not None:
            scores = torch.stack([s + mask[i % len(mask)] for i, s in enumerate(scores)])
    return scores.softmax(-1)


@pytest.mark.parametrize("name", FAMILIES)
def test_maps_equal_brute_force(name):
    model, images = build(name)
    calls: dict[str, tuple] = {}
    for path, module in model.named_modules():
        if path.endswith(".attn") and "cls_attn" not in path:
            module.register_forward_hook(
                lambda m, args, kwargs, out, path=path: calls.update({path: (m, *args, *kwargs.values())}),
                with_kwargs=True,
            )
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
    _, _, kind, blocks = FAMILIES[name]
    assert [handle.kind for handle in seen.attention] == [kind] * blocks
    assert [handle.name for handle in seen.attention] == list(calls)
    for handle in seen.attention:
        expected = brute_force(*calls[handle.name])
        torch.testing.assert_close(handle.maps(), expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(torch.cat(list(handle.rows(chunk=5)), dim=-2), handle.maps(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_handles_know_their_tokens(name):
    model, images = build(name)
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
    for handle in seen.attention:
        if handle.kind == "channel":
            assert handle.maps().shape[-2:] == (32, 32)  # channels of a head, not tokens
            continue
        height, width = handle.grid
        assert handle.maps().shape[-1] == handle.prefix + height * width
        if handle.kind == "window":
            assert len(handle.q) == 2 * handle.windows[0] * handle.windows[1]
    assert seen.attention[0].prefix == {
        "vit_nano": 1,
        "vit_tiny_patch16_224": 1,
        "deit_tiny_distilled_patch16_224": 2,
    }.get(name, 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_features_are_the_blocks_outputs(name):
    model, images = build(name)
    outputs = []
    blocks = [
        m for path, m in model.named_modules() if hasattr(m, "attn") and hasattr(m, "norm1") and "cls_attn" not in path
    ]
    for block in blocks:
        block.register_forward_hook(lambda m, args, out: outputs.append(out))
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
    assert len(seen.features) == len(blocks) == FAMILIES[name][3]
    assert all(a is b for a, b in zip(seen.features, outputs, strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_watching_changes_no_output_and_leaves_no_hook(name):
    model, images = build(name)

    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    fused = [m.fused_attn for m in model.modules() if hasattr(m, "fused_attn")]
    with torch.no_grad():
        plain = model(images)
        before = hooks()
        with holdfast.watch(model):
            torch.testing.assert_close(model(images), plain, atol=0, rtol=0)
            assert [m.fused_attn for m in model.modules() if hasattr(m, "fused_attn")] == fused
        assert hooks() == before
        with pytest.raises(TypeError), holdfast.watch(model):
            model(images, "no such argument", 1, 2)
        assert hooks() == before


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_flow_through_maps_and_features(name):
    model, images = build(name)
    with holdfast.watch(model) as seen:
        model(images)
    (seen.attention[-1].maps().square().sum() + seen.features[-1].square().mean()).backward()
    first = next(p for key, p in model.named_parameters() if "patch_embed" in key)
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "name", ["fan_nano", "vit_nano", "swin_tiny_patch4_window7_224", "xcit_nano_12_p16_224", "tap_rvt_tiny_plus"]
)
def test_gradient_checkpointing_is_recorded_once_with_the_same_gradients(name):
    plain, images = build(name)
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing(True)
    for model in (plain, saving):
        model.train()
        with holdfast.watch(model) as seen:
            loss = model(images).square().sum() + sum(handle.maps().square().sum() for handle in seen.attention)
            loss = loss + sum(feature.square().mean() for feature in seen.features)
            loss.backward()
        assert len(seen.attention) == len(seen.features) == FAMILIES[name][3]
    for (key, a), b in zip(plain.named_parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


def test_the_last_forward_pass_is_kept():
    model, images = build("fan_nano")
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(torch.zeros_like(images))
        model.forward_features(images)
        assert len(seen.attention) == len(seen.features) == 6
    with torch.no_grad(), holdfast.watch(model) as once:
        model(images)
    torch.testing.assert_close(seen.attention[0].maps(), once.attention[0].maps(), atol=0, rtol=0)


def test_channel_gates_and_class_attention_are_never_token_attention():
    model, images = build("fan_nano")
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
    gates = seen.channel_gates()
    assert [tuple(gate.shape) for gate in gates] == [(2, 96)] * 6
    assert all(((gate > 0.5) & (gate < 0.732)).all() for gate in gates)
    assert [handle.kind for handle in seen.class_attention] == ["class"]
    attention = model.cls_attn_blocks[0].attn
    assert seen.class_attention[0].maps().shape == (2, attention.num_heads, 1, 97)
    assert {handle.kind for handle in seen.attention} == {"token"}


def test_tap_weights_can_be_read_for_every_token():
    model, images = build("tap_rvt_tiny_plus")
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(torch.zeros_like(images))
        model(images)
    weights = seen.tap_weights()
    assert [tuple(w.shape) for w in weights] == [(2, 4, 4, 6)] * 10 + [(2, 4, 2, 3)] * 2
    assert all(torch.allclose(w.sum(dim=1), torch.ones(())) for w in weights)


def test_multiplier_and_bias_act_before_the_softmax():
    q, k = torch.randn(2, 1, 2, 4, 3).unbind(0)
    multiplier, bias = torch.rand(2, 4, 4), torch.randn(2, 4, 4)
    handle = AttentionHandle("x", "token", q, k, scale=0.5, multiplier=multiplier, bias=bias)
    expected = ((q @ k.mT * 0.5) * multiplier + bias).softmax(-1)
    torch.testing.assert_close(handle.maps(), expected)
    torch.testing.assert_close(torch.cat(list(handle.rows(chunk=3)), dim=-2), expected)


def test_a_ddp_wrapped_model_is_watched_inside():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        model, images = build("fan_nano")
        wrapped = nn.parallel.DistributedDataParallel(model.train())
        with holdfast.watch(wrapped) as seen:
            wrapped(images).sum().backward()
        assert [handle.name for handle in seen.attention] == [f"blocks.{i}.attn" for i in range(6)]
    finally:
        torch.distributed.destroy_process_group()


def test_models_that_cannot_be_watched_are_refused_in_one_sentence():
    with (
        pytest.raises(holdfast.HoldfastError, match="Linear has no attention that Holdfast can read"),
        holdfast.watch(nn.Linear(2, 2)),
    ):
        pass
    compiled = torch.compile(timm.create_model("fan_nano"))
    with pytest.raises(holdfast.HoldfastError, match="compiled model"), holdfast.watch(compiled):
        pass
    in_place = timm.create_model("fan_nano")
    in_place.compile()
    with pytest.raises(holdfast.HoldfastError, match="compiled model"), holdfast.watch(in_place):
        pass


def test_chunks_must_be_positive():
    handle = AttentionHandle("x", "token", torch.randn(1, 1, 2, 2), torch.randn(1, 1, 2, 2), scale=1.0)
    with pytest.raises(holdfast.HoldfastError, match="chunk must be at least 1, got 0"):
        next(handle.rows(chunk=0))
