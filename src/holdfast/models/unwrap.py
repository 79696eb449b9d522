"""What stands around a model."""

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model itself, outside of data-parallel wrappers."""
    while isinstance(model, DistributedDataParallel | DataParallel):
        model = model.module
    return model
