"""Steps, projections and starts of the threat models, against their definitions."""

import pytest
import torch

from holdfast.attacks.norms import NORMS

SHAPE = (64, 3, 5, 5)


def lengths(delta, norm):
    return delta.abs().amax(dim=(1, 2, 3)) if norm == "linf" else delta.flatten(1).norm(dim=1)


@pytest.mark.parametrize("norm", NORMS)
def test_a_projection_is_in_the_ball_and_leaves_what_is_there(norm):
    delta = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 1, 64).view(-1, 1, 1, 1)
    inside = lengths(delta, norm) <= 0.5
    projected = NORMS[norm].project(delta, 0.5)
    assert inside.any()
    assert (lengths(projected, norm) <= 0.5 * (1 + 1e-6)).all()
    assert torch.equal(projected[inside], delta[inside])
    torch.testing.assert_close(lengths(projected[~inside], norm), torch.full((int((~inside).sum()),), 0.5))


@pytest.mark.parametrize("norm", NORMS)
def test_of_all_steps_of_its_length_a_step_has_the_largest_product_with_the_gradient(norm):
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(SHAPE, generator=generator)
    step = NORMS[norm].step(gradient)
    torch.testing.assert_close(lengths(step, norm), torch.ones(64))
    other = torch.randn(SHAPE, generator=generator)
    other = other / lengths(other, norm).view(-1, 1, 1, 1)
    assert ((step * gradient).sum((1, 2, 3)) >= (other * gradient).sum((1, 2, 3))).all()


def test_tiny_and_zero_gradients_have_an_l2_step_too():
    gradient = torch.zeros(2, 3, 4, 4)
    gradient[0] = 1e-30
    step = NORMS["l2"].step(gradient)
    assert step[0].norm().item() == pytest.approx(1)
    assert not step[1].any()


@pytest.mark.parametrize("norm", NORMS)
def test_a_start_is_in_the_ball_and_an_images_own(norm):
    images, start = torch.zeros(SHAPE), NORMS[norm].start
    all_of_them = start(images, 0.1, seed=3, ids=range(64), purpose="start")
    assert (lengths(all_of_them, norm) <= 0.1 * (1 + 1e-6)).all()
    assert torch.equal(start(images[5:7], 0.1, seed=3, ids=[5, 6], purpose="start"), all_of_them[5:7])
    assert not torch.equal(start(images, 0.1, seed=4, ids=range(64), purpose="start"), all_of_them)


def test_l2_starts_fill_the_ball_rather_than_its_centre():
    starts = NORMS["l2"].start(torch.zeros(400, 1, 1, 2), 1.0, seed=0, ids=range(400), purpose="start")
    inner = (starts.flatten(1).norm(dim=1) < 0.5).double().mean().item()
    assert inner == pytest.approx(0.25, abs=0.08)  # in two dimensions a quarter of the area
