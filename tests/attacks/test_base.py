"""Robust accuracy of an attack's result."""

import pytest
import torch

from holdfast.attacks.base import AttackResult
from holdfast.errors import HoldfastError


def test_robust_accuracy_is_the_share_of_right_predictions():
    found = AttackResult(torch.zeros(4, 3, 2, 2), torch.tensor([0, 1, 2, 3]), torch.zeros(4, dtype=torch.bool))
    assert found.accuracy(torch.tensor([0, 1, 0, 0])) == 0.5
    with pytest.raises(HoldfastError, match=r"labels must have shape \(4,\), got \(1,\)"):
        found.accuracy(torch.tensor([0]))
