"""Random tensors of attacks belong to images, not to batches."""

import pytest
import torch

from holdfast.attacks.rng import image_ids, normal, uniform
from holdfast.errors import HoldfastError


def test_without_ids_images_are_numbered_and_too_few_ids_are_refused():
    assert image_ids(None, 3) == [0, 1, 2]
    assert image_ids(torch.tensor([7, 5]), 2) == [7, 5]
    with pytest.raises(HoldfastError, match="ids must name every image, expected 3, got 2"):
        image_ids(["a", "b"], 3)


@pytest.mark.parametrize("draw", [uniform, normal])
def test_an_image_draws_the_same_wherever_it_stands(draw):
    like = torch.zeros(3, 3, 4, 4)
    drawn = draw(like, seed=1, ids=["a", "b", "c"], purpose="start")
    assert torch.equal(draw(like, seed=1, ids=["c", "a", "b"], purpose="start"), drawn[[2, 0, 1]])
    for changed in ({"seed": 2}, {"purpose": "mask"}):
        assert not torch.equal(draw(like, **{"seed": 1, "ids": ["a", "b", "c"], "purpose": "start", **changed}), drawn)
    assert draw(like[:0], seed=1, ids=[], purpose="start").shape == (0, 3, 4, 4)


def test_the_laws_are_uniform_and_normal():
    like = torch.zeros(50, 1, 20, 20)
    flat = uniform(like, seed=0, ids=range(50), purpose="law")
    assert 0 <= flat.min() <= flat.max() < 1
    assert flat.mean().item() == pytest.approx(0.5, abs=0.01)
    bell = normal(like, seed=0, ids=range(50), purpose="law")
    assert (bell.mean().item(), bell.std().item()) == pytest.approx((0, 1), abs=0.03)
