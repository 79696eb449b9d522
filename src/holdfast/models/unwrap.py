"""`unwrap_model`: removes data-parallel wrappers."""

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model without data-parallel wrappers."""
    while isinstance(model, DistributedDataParallel | DataParallel):
        model = model.module
    return model
