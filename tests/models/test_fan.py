"""FAN's equations against brute-force references, and the choices its paper compares."""

import math

import pytest
import timm
import torch

import holdfast


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
