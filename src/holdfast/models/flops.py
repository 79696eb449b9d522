"""Cost of a model: parameters and multiply-accumulates for one image, counted on the meta device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models import create_model
from holdfast.models.tora import tora


@dataclass(frozen=True)
class ModelCost:
    """Parameters and GMACs (= FLOPs / 2, fused attention included) at one image size."""

    parameters: int
    gmacs: float
    image_size: tuple[int, int]


def measure_cost(name: str, **kwargs: Any) -> ModelCost:
    """Count a model at its default image size on the meta device, without memory or computation."""
    return _count(lambda: create_model(name, **kwargs))


def measure_tora(name: str, *, model: dict[str, Any] | None = None, **settings: Any) -> ModelCost:
    """Count a ViT with adapters; ``settings`` are those of `holdfast.tora`, ``model`` the ViT's arguments."""
    return _count(lambda: tora(create_model(name, **(model or {})), **settings))


def count_model(model: nn.Module, size: tuple[int, int] | None = None) -> ModelCost:
    """Count a given model with one zero image on its device, by default of its own size."""
    described: Any = model
    height, width = size or described.default_cfg["input_size"][1:]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.requires_grad_(False)  # the counter fails on parameters that are passed as arguments
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, 3, height, width, device=device))
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return ModelCost(parameters, counter.get_total_flops() / 2e9, (height, width))


def _count(build: Callable[[], nn.Module]) -> ModelCost:
    with torch.device("meta"):
        return count_model(build().eval())
