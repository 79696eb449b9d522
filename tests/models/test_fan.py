"""FAN's equations against brute-force references, and the choices its paper compares."""

import math

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.layers.channel_attention import token_prototype_gate
from holdfast.layers.positional import fourier_code
from holdfast.models.convnext_trunk import ConvNeXtTrunk, SampleVarianceNorm2d


@given(batch=st.integers(1, 3), tokens=st.integers(1, 12), heads=st.integers(1, 3), width=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_channel_gate_equals_the_sums_of_the_equation(batch, tokens, heads, width):
    query, z = torch.randn(2, batch, tokens, heads * width).unbind(0)
    temperature = torch.rand(heads, 1, 1)
    gate = token_prototype_gate(query, z, heads=heads, temperature=temperature)
    for b in range(batch):
        for channel in range(heads * width):
            head = channel // width
            of_head = range(head * width, (head + 1) * width)
            prototype = sum(torch.softmax(z[b, :, c], 0) for c in of_head) / width
            agreement = (torch.softmax(query[b, :, channel], 0) * prototype).sum()
            expected = temperature[head, 0, 0] * torch.sigmoid(agreement)
            assert gate[b, channel].item() == pytest.approx(expected.item(), abs=1e-6)
            assert 0.5 < gate[b, channel] / temperature[head, 0, 0] <= 0.7311


@given(height=st.integers(1, 9), width=st.integers(1, 9), floor=st.booleans())
@settings(max_examples=25, deadline=None)
def test_positional_code_equals_its_definition(height, width, floor):
    code = fourier_code(height, width, floor=floor)
    assert code.shape == (height, width, 64)
    row, column, i = height - 1, width // 2, 7
    half = i // 2 if floor else i / 2
    omega = 10000 ** (2 * half / 32)
    assert code[row, column, i].item() == pytest.approx(
        math.cos(2 * math.pi * (row + 1) / (height + 1e-6) / omega), abs=1e-5
    )
    assert code[row, column, 32].item() == pytest.approx(
        math.sin(2 * math.pi * (column + 1) / (width + 1e-6)), abs=1e-5
    )


def test_trunk_norm_divides_by_the_sample_variance():
    norm = SampleVarianceNorm2d(16, eps=1e-6)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 16, 3, 4)
    variance, mean = torch.var_mean(x, dim=1, keepdim=True)  # unbiased
    expected = (x - mean) / (variance + 1e-6).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
    torch.testing.assert_close(norm(x), expected)


def test_trunk_keeps_channels_last_from_end_to_end():
    maps = ConvNeXtTrunk()(torch.randn(2, 3, 32, 64))
    assert [tuple(m.shape) for m in maps] == [(2, 128, 8, 16), (2, 256, 4, 8)]
    assert all(m.is_contiguous(memory_format=torch.channels_last) for m in maps)


@pytest.mark.parametrize(
    ("name", "third", "blocks"),
    [("fan_tiny_8_p4_hybrid", 7, 8), ("fan_small_12_p4_hybrid", 9, 10), ("fan_large_16_p4_hybrid", 18, 22)],
)
def test_hybrid_features_come_from_the_released_taps_without_a_norm(name, third, blocks):
    model = timm.create_model(name).eval()
    images = torch.randn(1, 3, 32, 48)
    with torch.no_grad(), holdfast.watch(model) as seen:
        maps = model.forward_intermediates(images, intermediates_only=True)
    assert len(seen.features) == blocks
    tokens = seen.features[third].transpose(1, 2).unflatten(2, (2, 3))
    torch.testing.assert_close(maps[2], tokens, atol=0, rtol=0)
    assert [info["reduction"] for info in model.feature_info] == [4, 8, 16, 16]


def test_patch_tokens_are_doubled_by_class_attention():
    model = timm.create_model("fan_nano").eval()
    block = model.cls_attn_blocks[0]
    x = torch.randn(2, 5, 96)
    with torch.no_grad():
        out = block(x)
        patches = x[:, 1:]
        expected = 2 * block.norm2(patches + block.gamma1 * block.norm1(x)[:, 1:])
    torch.testing.assert_close(out[:, 1:], expected)


def test_floorless_positions_change_the_features_but_not_the_weights():
    floored, plain = (timm.create_model("fan_nano", pos_floor=floor).eval() for floor in (True, False))
    plain.load_state_dict(floored.state_dict())
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert (floored(images) - plain(images)).abs().max() > 1e-4


@pytest.mark.parametrize("channel_attention", ["eca", "se", "ca"])
@pytest.mark.parametrize("name", ["fan_nano", "fan_nano_hybrid"])
def test_channel_attentions_of_table_6_train(name, channel_attention):
    model = timm.create_model(name, channel_attention=channel_attention)
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_channel_self_attention_equals_equation_6():
    block = timm.create_model("fan_nano", channel_attention="ca").blocks[0].mlp.eval()
    z = torch.randn(1, 6, 96)
    with torch.no_grad():
        q, k = block.q(z)[0], block.k(z)[0]
        attention = torch.softmax(q.T @ k / math.sqrt(6), dim=-1)
        expected = (attention @ block.norm_v(block.mlp_v(z, 2, 3))[0].T).T
        torch.testing.assert_close(block(z, 2, 3)[0], expected)


def test_number_of_heads_is_an_argument():
    model = timm.create_model("fan_nano", num_heads=8)
    assert model.blocks[0].mlp.temperature.shape == (8, 1, 1)
    with pytest.raises(holdfast.HoldfastError, match="num_heads must divide the width 96, got 7"):
        timm.create_model("fan_nano", num_heads=7)


def test_unknown_channel_attention_is_refused():
    with pytest.raises(holdfast.HoldfastError, match="must be one of eca, se, ca, got 'sa'"):
        timm.create_model("fan_nano", channel_attention="sa")


def test_drop_path_is_constant_over_the_blocks_and_absent_elsewhere():
    model = timm.create_model("fan_nano_hybrid", drop_path_rate=0.3)
    rates = {name: m.drop_prob for name, m in model.named_modules() if type(m).__name__ == "DropPath"}
    assert rates == {f"blocks.{i}.drop_path": 0.3 for i in range(5)}


def test_start_weights_follow_the_release():
    model = timm.create_model("fan_tiny_8_p4_hybrid")
    block = model.blocks[0]
    assert block.mlp.mlp_v.dwconv.conv1.weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.05)
    assert block.attn.q.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert (block.gamma1 == 1).all()
    assert (model.patch_embed.backbone.stages[0].blocks[0].gamma == 1e-6).all()
    large = timm.create_model("fan_large_16_p4_hybrid")
    assert large.head.weight.std().item() == pytest.approx(0.02 * 0.001, rel=0.05)


def test_trunk_computes_the_same_with_and_without_gradients():
    trunk = ConvNeXtTrunk(depths=(1, 1))
    torch.nn.init.ones_(trunk.stages[0].blocks[0].gamma)
    images = torch.randn(3, 3, 32, 64)
    with torch.no_grad():
        without = trunk(images)
    for a, b in zip(trunk(images), without, strict=True):
        torch.testing.assert_close(a, b)
        assert b.is_contiguous(memory_format=torch.channels_last)
