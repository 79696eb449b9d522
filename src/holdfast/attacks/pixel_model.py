"""Models of [0,1] images: normalisation is part of the model, so that ε means what it says."""

from collections.abc import Sequence
from typing import Any

import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models.outputs import logits_of
from holdfast.runtime.device import unwrap_model

TOLERANCE = 1e-6  # image + (1 − image) may round to a little above 1


class PixelModel(nn.Module):
    """A classifier of images in [0,1]; it normalises them itself and refuses others.

    An attack on a model that is fed normalised images would measure ε in units of the data set's deviation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std) <= 0:
            raise HoldfastError(f"mean and std must have one value per channel, std positive; got {mean} and {std}")
        self.model = model
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images in [0,1]."""
        check_images(images)
        return logits_of(self.model(self.normalise(images)))

    def normalise(self, images: Tensor) -> Tensor:
        """[0,1] to the values the inner model was trained on."""
        return (images - self.mean) / self.std


def from_pixels(model: nn.Module, **overrides: Any) -> PixelModel:
    """Wrap a timm model with the mean and std of its data configuration; ``mean=`` and ``std=`` override them."""
    unknown = set(overrides) - {"mean", "std"}
    if unknown:
        raise HoldfastError(f"from_pixels takes mean and std, got {', '.join(sorted(unknown))}")
    config = {**resolve_model_data_config(unwrap_model(model)), **overrides}
    return PixelModel(model, mean=config["mean"], std=config["std"])


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of floating-point images in [0,1]."""
    if images.ndim != 4 or not images.is_floating_point():
        raise HoldfastError(
            f"images must be floating-point, of shape (batch, channels, height, width), "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    if images.numel() == 0:
        return
    low, high = (float(value) for value in images.detach().aminmax())
    if not (low >= -TOLERANCE and high <= 1 + TOLERANCE):  # also true of NaN
        raise HoldfastError(
            f"images must lie in [0, 1], got values from {low:.4g} to {high:.4g}: "
            "give attacks the images before normalisation, and the model through from_pixels"
        )


def check_differentiable(output: Tensor) -> None:
    """Refuse a model that cuts the graph between its images and its logits."""
    if not output.requires_grad:
        raise HoldfastError(
            "the model must be differentiable with respect to its images, got logits without a gradient "
            "(does it run under no_grad, or round its input?)"
        )


def local(model: nn.Module) -> nn.Module:
    """The same model without data-parallel wrappers around it or right inside a `PixelModel`.

    An attack is one process's own affair: its passes must neither broadcast buffers nor arm gradient buckets.
    """
    model = unwrap_model(model)
    if isinstance(model, PixelModel) and model.model is not unwrap_model(model.model):
        inner = PixelModel(unwrap_model(model.model), mean=_values(model.mean), std=_values(model.std))
        return inner.to(model.mean.device)
    return model


def backbone(model: nn.Module) -> nn.Module:
    """The model that sees normalised images."""
    model = unwrap_model(model)
    return unwrap_model(model.model) if isinstance(model, PixelModel) else model


def _values(statistics: Tensor) -> list[float]:
    return [float(value) for value in statistics.flatten()]
