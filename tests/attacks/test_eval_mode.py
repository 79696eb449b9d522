"""An attack leaves no trace in the model that it attacks."""

import pytest
import torch
from torch import nn

from holdfast.attacks.eval_mode import attack_mode, own_copies, predict, single_or_double
from holdfast.errors import HoldfastError


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    model.train()
    model[3].eval()
    return model


@pytest.mark.parametrize("mode", ["eval", "keep"])
def test_modes_and_statistics_are_as_before(mode):
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    buffer = model[1].running_mean
    with torch.no_grad(), attack_mode(model, mode=mode) as attacked:
        assert torch.is_grad_enabled()
        assert attacked[1].training == (mode == "keep")
        images = torch.rand(2, 3, 4, 4, requires_grad=True)
        attacked(images).sum().backward()
        assert images.grad.any()
    assert [module.training for module in model] == [True, True, True, False]
    assert model[1].running_mean is buffer
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_modes_are_restored_after_an_error_and_other_words_are_refused():
    model = network()
    with pytest.raises(RuntimeError), attack_mode(model):
        raise RuntimeError
    assert model[1].training
    with (
        pytest.raises(HoldfastError, match="mode must be one of eval, keep, got 'train'"),
        attack_mode(model, mode="train"),
    ):
        pass


def test_images_of_inference_mode_can_be_differentiated():
    with torch.inference_mode():
        images, labels = torch.rand(1, 3, 2, 2), torch.tensor([1])
    copy, _ = own_copies(images, labels)
    copy.requires_grad_().sum().backward()
    assert copy.grad.all()


def test_half_precision_becomes_single_and_predictions_need_finite_logits():
    assert single_or_double(torch.zeros(2, dtype=torch.bfloat16)).dtype == torch.float32
    assert single_or_double(torch.zeros(2, dtype=torch.float64)).dtype == torch.float64
    images, labels = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 0])
    assert predict(nn.Identity(), images, labels).tolist() == [1, 0]
    with pytest.raises(HoldfastError, match="finite"):
        predict(nn.Identity(), images * torch.nan, labels)
