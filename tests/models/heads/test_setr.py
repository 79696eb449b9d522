"""SETR's head: sixteen times the last map, from that map alone."""

import torch

from holdfast.models.heads.setr import SETRHead


def head():
    torch.manual_seed(0)
    return SETRHead([4, 8], 5, width=6).eval()


def test_logits_are_sixteen_times_the_last_map_which_alone_counts():
    fine, coarse = torch.randn(2, 4, 6, 4), torch.randn(2, 8, 3, 2)
    model = head()
    logits = model([fine, coarse])
    assert logits.shape == (2, 5, 48, 32)
    assert torch.equal(model([fine + 1, coarse]), logits)
    assert not torch.equal(model([fine, coarse + torch.randn_like(coarse)]), logits)


def test_it_has_four_convolutions_and_starts_without_preferring_a_class():
    model = head()
    assert [stage[0].conv.in_channels for stage in model.up_convs] == [8, 6, 6, 6]
    assert not model.conv_seg.bias.any()
    assert {name.split(".")[0] for name in model.state_dict()} == {"norm", "up_convs", "conv_seg"}
