"""FAN's channel attention, which replaces the MLP of a transformer block."""

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.layers.channel_attention import EfficientChannelAttention, token_prototype_gate
from tests.models.test_fan_swin import NAME


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


def test_the_last_stage_keeps_a_plain_mlp_and_the_others_have_no_residual_around_their_convolutions():
    with torch.device("meta"):
        model = timm.create_model(NAME)
    for stage, layer in enumerate(model.layers):
        for block in layer.blocks:
            assert isinstance(block.mlp, EfficientChannelAttention) == (stage < 3)
            assert stage == 3 or not block.mlp.mlp_v.residual
