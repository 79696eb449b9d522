"""What a model costs: parameters and multiply-accumulates of one image, counted without computing anything."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models import create_model
from holdfast.models.tora import tora


@dataclass(frozen=True)
class Cost:
    """Parameters and GMACs (= FLOPs / 2, fused attention included) at one image size."""

    parameters: int
    gmacs: float
    image_size: tuple[int, int]


def measure_cost(name: str, **kwargs: Any) -> Cost:
    """Count a model at its default image size, on the meta device: no memory, no arithmetic."""
    return _count(lambda: create_model(name, **kwargs))


def measure_tora(name: str, *, model: dict[str, Any] | None = None, **settings: Any) -> Cost:
    """The same of a ViT with adapters: ``settings`` are those of `holdfast.tora`, ``model`` the ViT's arguments."""
    return _count(lambda: tora(create_model(name, **(model or {})), **settings))


def _count(build: Callable[[], nn.Module]) -> Cost:
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        built: Any = build().eval().requires_grad_(False)
        channels, height, width = built.default_cfg["input_size"]
        built(torch.empty(1, channels, height, width))
    parameters = sum(parameter.numel() for parameter in built.parameters())
    return Cost(parameters, counter.get_total_flops() / 2e9, (height, width))
