"""What of the machine an evaluation uses: the device, its precision, and worker processes."""

import os

import torch
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.evaluation.processes import Processes


def choose_device(asked: str, model: nn.Module, *, fixed: bool) -> torch.device:
    """Where to run: what was asked for; ``auto`` leaves a module where it is, unless it is ``fixed`` to be moved."""
    own = next((parameter.device for parameter in model.parameters()), None)
    if asked == "auto" and not fixed and own is not None:
        return own
    if asked in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if asked == "auto":
        return torch.device("cpu")
    try:
        device = torch.device(asked)
        torch.empty(1, device=device)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise HoldfastError(f"device must be one that torch can use here, got {asked!r} ({reason})") from error
    return device


def choose_precision(amp: bool, device: torch.device) -> str:
    """The name of the half precision that the device has, or ``no``."""
    if not amp:
        return "no"
    return "float16" if device.type == "cuda" and not torch.cuda.is_bf16_supported() else "bfloat16"


def choose_workers(asked: int | None, device: torch.device, processes: Processes) -> int:
    """How many processes read images: as asked for, at most one per core; else what the machine can use."""
    if asked is not None:
        return min(check_workers(asked), cores())
    mine = max(1, cores() // processes.count)
    return min(8, mine) if device.type != "cpu" else max(1, mine // 2)


def check_workers(asked: int | None) -> int:
    """The number itself, or one sentence."""
    if asked is not None and asked < 0:
        raise HoldfastError(f"workers must be 0 or more, got {asked}")
    return asked or 0


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
