"""Seeding of the global random generators by keys."""

import random

import numpy as np
import pytest
import torch

from holdfast.training.seeding import seeded


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002


def test_a_key_decides_what_is_drawn_and_the_callers_generators_are_left_alone():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    undisturbed = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    with seeded(3, 5):
        first = draws()
    assert draws() == undisturbed
    with seeded(3, 5):
        assert draws() == first
    with seeded(5, 3):
        assert not set(draws()) & set(first)


def test_the_generators_are_put_back_after_an_exception():
    torch.manual_seed(1)
    undisturbed = torch.rand(1)
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError), seeded(1):
        1 / 0  # noqa: B018
    assert torch.equal(torch.rand(1), undisturbed)
