"""What a model costs: parameters and multiply-accumulates of one image, counted without computing anything."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from holdfast.models import create_model


@dataclass(frozen=True)
class Cost:
    """Parameters and GMACs (= FLOPs / 2, fused attention included) at one image size."""

    parameters: int
    gmacs: float
    image_size: tuple[int, int]


def measure_cost(name: str, **kwargs: Any) -> Cost:
    """Count a model at its default image size, on the meta device: no memory, no arithmetic."""
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = create_model(name, **kwargs).eval()
        channels, height, width = model.default_cfg["input_size"]
        model(torch.empty(1, channels, height, width))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(parameters, counter.get_total_flops() / 2e9, (height, width))
