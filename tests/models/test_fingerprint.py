"""Fingerprints of models change with weights and settings, and with nothing that a forward pass leaves behind."""

import torch
from torch import nn

from holdfast.models.fingerprint import first_fingerprint, has_own_code, model_fingerprint, weights_fingerprint


class Counting(nn.Module):
    """Counts its passes, in a number and in a buffer that no state dictionary holds."""

    def __init__(self, scale=2.0):
        super().__init__()
        self.layer, self.scale, self.passes = nn.Linear(3, 2), scale, 0
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, values):
        self.passes += 1
        self.seen += len(values)
        return self.scale * self.layer(values)


def counting(**options):
    torch.manual_seed(0)
    return Counting(**options)


def fingerprint(model, views=("",)):
    return model_fingerprint(model, views, exercise=lambda: model(torch.ones(2, 3)))


def test_equal_models_have_equal_fingerprints_also_after_some_passes():
    used = counting()
    used(torch.ones(5, 3))
    assert fingerprint(counting()) == fingerprint(used)


def test_weights_settings_and_views_change_it():
    other = counting()
    with torch.no_grad():
        other.layer.bias[1] += 1e-6
    known = {fingerprint(counting()), fingerprint(other), fingerprint(counting(scale=2.5))}
    assert len(known | {fingerprint(counting(), views=("joint", "rob"))}) == 4


def test_the_order_of_tensors_does_not_count_and_their_names_do():
    a, b = torch.ones(2), torch.zeros(2)
    assert weights_fingerprint({"a": a, "b": b}) == weights_fingerprint({"b": b, "a": a})
    assert weights_fingerprint({"a": a, "b": b}) != weights_fingerprint({"a": b, "b": a})


def test_code_of_ones_own_is_told_from_that_of_packages():
    assert has_own_code(counting())
    assert not has_own_code(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))


def test_the_first_fingerprint_knew_plain_settings_and_weights_alone():
    used = counting()
    assert first_fingerprint(used, [""]) != first_fingerprint(counting(scale=3.0), [""])
    with torch.no_grad():
        used.layer.weight.zero_()
    assert first_fingerprint(used, [""]) != first_fingerprint(counting(), [""])
