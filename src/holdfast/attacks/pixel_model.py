"""`PixelModel`: a classifier of [0,1] images with the normalisation inside, so that ε is in pixel units."""

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
    """A classifier of images in [0,1] that normalises them itself and raises an error for values out of range.

    For a model of normalised images, ε would be in units of the data set's standard deviation.
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
        """Normalise [0,1] images with the wrapped model's mean and std."""
        return (images - self.mean) / self.std


def from_pixels(model: nn.Module, **overrides: Any) -> PixelModel:
    """Wrap a timm model with the mean and std of its data configuration; ``mean=`` and ``std=`` override them."""
    unknown = set(overrides) - {"mean", "std"}
    if unknown:
        raise HoldfastError(f"from_pixels takes mean and std, got {', '.join(sorted(unknown))}")
    config = {**resolve_model_data_config(unwrap_model(model)), **overrides}
    return PixelModel(model, mean=config["mean"], std=config["std"])


def check_images(images: Tensor) -> None:
    """Raise an error for anything but a batch of floating-point images in [0,1]."""
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
            "pass images before normalisation, and wrap the model with from_pixels"
        )


def check_differentiable(output: Tensor) -> None:
    """Raise an error for a model without a gradient from its logits to its images."""
    if not output.requires_grad:
        raise HoldfastError(
            "the model must be differentiable with respect to its images, got logits without a gradient "
            "(does it run under no_grad, or round its input?)"
        )


def local(model: nn.Module) -> nn.Module:
    """The model without data-parallel wrappers, around it or inside a `PixelModel`.

    Each process attacks its own batch: the forward passes must neither broadcast buffers nor prepare gradient buckets.
    """
    model = unwrap_model(model)
    if isinstance(model, PixelModel) and model.model is not unwrap_model(model.model):
        inner = PixelModel(unwrap_model(model.model), mean=_values(model.mean), std=_values(model.std))
        return inner.to(model.mean.device)
    return model


def backbone(model: nn.Module) -> nn.Module:
    """The wrapped model, which takes normalised images."""
    model = unwrap_model(model)
    return unwrap_model(model.model) if isinstance(model, PixelModel) else model


def _values(statistics: Tensor) -> list[float]:
    return [float(value) for value in statistics.flatten()]
