"""AutoAttack goes on where it was stopped, and ends as if nothing had happened."""

import pytest
import torch
from torch import nn

from holdfast import HoldfastError
from holdfast.attacks import AutoAttack
from tests.attacks.test_projected_gradient_descent import batch, small


class Killed(Exception):
    """Stands for a lost machine."""


class Dies(nn.Module):
    """A model that is killed at a given forward pass."""

    def __init__(self, model: nn.Module, at: int) -> None:
        super().__init__()
        self.model, self.left = model, at

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self.model(x)


@pytest.mark.parametrize("at", [5, 20, 45, 70, 95])
def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, at):
    images, _ = batch(9)
    labels = small()(images).argmax(dim=1)
    attack = AutoAttack(0.01, members=("apgd-ce", "square", "apgd-dlr"), iterations=5, queries=10, batch_size=4)
    whole = attack(Dies(small(), 10**9), images, labels, seed=1)
    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        attack(Dies(small(), at), images, labels, seed=1, state=path)
    resumed = attack(Dies(small(), 10**9), images, labels, seed=1, state=path)
    assert torch.equal(resumed.images, whole.images)
    assert resumed.record == whole.record
    if at > 20:
        assert [file.name for file in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_resumed_run_does_not_repeat_what_is_done(tmp_path):
    model, (images, labels) = Dies(small(), 10**9), batch(6)
    attack = AutoAttack(0.01, members=("apgd-ce",), iterations=5, batch_size=3)
    attack(model, images, labels, state=tmp_path / "state")
    model.left = 3  # the class count, and one scoring pass per batch
    assert attack(model, images, labels, state=tmp_path / "state").record["accuracy_after"].keys() == {
        "clean",
        "apgd-ce",
    }
    assert model.left == 0


def test_the_state_of_another_run_is_refused(tmp_path):
    model, (images, labels) = small(), batch(4)
    attack = AutoAttack(0.01, members=("apgd-ce",), iterations=2)
    path = tmp_path / "state"
    attack(model, images, labels, state=path)
    other = small()
    with torch.no_grad():
        other.model.head.bias += 1
    for call in (
        lambda: attack(model, images * 0.5, labels, state=path),
        lambda: attack(model, images, labels, state=path, seed=1),
        lambda: attack(other, images, labels, state=path),
        lambda: AutoAttack(0.02, members=("apgd-ce",), iterations=2)(model, images, labels, state=path),
    ):
        with pytest.raises(HoldfastError, match="belongs to another run"):
            call()
    path.write_bytes(b"not a state")
    with pytest.raises(HoldfastError, match="cannot be read as an AutoAttack state file"):
        attack(model, images, labels, state=path)
