"""Device, precision, number of workers, data-parallel wrappers, and process group of an evaluation."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.runtime.cores import core_count
from holdfast.runtime.distributed import process_count

PATIENCE = timedelta(days=7)  # timeout of barriers: a process may wait that long for the slowest


@dataclass(frozen=True)
class Processes:
    """Rank of this process and size of its group."""

    rank: int = 0
    count: int = 1
    group: Any = None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which prepares and reports."""
        return self.rank == 0

    def meet(self) -> None:
        """Wait for all other processes at a barrier."""
        if self.count > 1:
            distributed.monitored_barrier(self.group, timeout=PATIENCE)

    def agree(self, answer: bool) -> bool:
        """The first process's answer, in all processes."""
        if self.count == 1:
            return answer
        answers = [answer]
        distributed.broadcast_object_list(answers, src=0, group=self.group)
        return answers[0]

    def share(self, total: int) -> range:
        """This process's contiguous share of ``total`` items."""
        return range(total * self.rank // self.count, total * (self.rank + 1) // self.count)


@contextmanager
def process_group() -> Iterator[Processes]:
    """Join the processes that torchrun or accelerate started; a single process needs no group."""
    ours = False
    if not (distributed.is_available() and distributed.is_initialized()):
        if process_count() < 2 or "RANK" not in os.environ:
            yield Processes()
            return
        distributed.init_process_group("gloo", timeout=PATIENCE)
        ours = True
    group = distributed.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size(), group)
    finally:
        distributed.destroy_process_group(None if ours else group)


DEVICES = ("auto", "cpu", "cuda", "cuda:1", "mps")


def choose_device(asked: str, model: nn.Module, *, fixed: bool) -> torch.device:
    """Choose the device; ``auto`` leaves a given module where it is, unless ``fixed`` allows to move it."""
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
            raise RuntimeError("meta tensors have no data")
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        if reason.startswith("Expected one of"):  # torch lists eighteen kinds, most of which hardly anybody has
            hint = "; did you mean 'cuda'?" if asked.lower() == "gpu" else nearest(asked, DEVICES)
            raise HoldfastError(
                f"device must be {', '.join(DEVICES)} or another of torch, got {asked!r}{hint}"
            ) from error
        raise HoldfastError(
            f"device must be one that torch can use on this machine, got {asked!r} ({reason})"
        ) from error
    return device


def choose_precision(amp: bool, device: torch.device) -> str:
    """Name of the device's half precision, or ``no``."""
    if not amp:
        return "no"
    return "float16" if device.type == "cuda" and not torch.cuda.is_bf16_supported() else "bfloat16"


def choose_workers(asked: int | None, device: torch.device, processes: Processes) -> int:
    """Number of worker processes: as requested, at most one per core; by default chosen from the number of cores."""
    if asked is not None:
        return min(check_workers(asked), core_count())
    mine = max(1, core_count() // processes.count)
    return min(8, mine) if device.type != "cpu" else max(1, mine // 2)


def check_workers(asked: int | None) -> int:
    """Return the number of workers, 0 for None; raises an error for a negative one."""
    if asked is not None and asked < 0:
        raise HoldfastError(f"workers must be 0 or more, got {asked}")
    return asked or 0


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model without data-parallel wrappers."""
    # accelerate's extract_model_from_parallel is no substitute: of a compiled model around a data-parallel one it
    # replaces the inner model in place, so the caller's model would no longer exchange its gradients
    while isinstance(model, DistributedDataParallel | DataParallel):
        model = model.module
    return model


@contextmanager
def training_modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore afterwards which modules were in training mode."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
