"""Set-up of Hugging Face accelerate, for one process or many, on CPU or CUDA."""

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, is_initialized
from accelerate.utils import DistributedType, LoggerType

from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.runtime.distributed import process_count
from holdfast.runtime.signals import exit_at_once
from holdfast.training.recipe import TrainRecipe


@contextlib.contextmanager
def engine(recipe: TrainRecipe, *, folder: Path) -> Iterator[Accelerator]:
    """The `Accelerator` of this process: device, precision, processes, trackers. Released when the run ends."""
    somebody_elses = is_initialized()
    accelerator = _start_accelerator(recipe, folder=folder)
    try:
        yield accelerator
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        if not somebody_elses:  # so that the next run in this process may use another device or precision
            accelerator.state.destroy_process_group()
            AcceleratorState._reset_state(reset_partial_state=True)
            GradientState._reset_state()


def _start_accelerator(recipe: TrainRecipe, *, folder: Path) -> Accelerator:
    cuda = torch.cuda.is_available()
    if recipe.device == "cuda" and not cuda:
        raise HoldfastError("train.device is 'cuda', but torch sees no CUDA device; use 'cpu' or 'auto'")
    on_cpu = recipe.device == "cpu" or not cuda
    precision = recipe.precision
    if precision == "auto":  # half precision is slower than fp32 on common CPUs
        precision = "no" if on_cpu else "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    if precision == "fp16" and on_cpu:
        raise HoldfastError("train.precision must be 'no' or 'bf16' on a CPU, got 'fp16'")
    _check_trackers(recipe.trackers)
    _check_group()
    wanted = process_count()
    try:
        with (
            exit_at_once() if wanted > 1 else contextlib.nullcontext()
        ):  # it would wait half an hour for the other processes
            accelerator = Accelerator(
                cpu=on_cpu, mixed_precision=precision, log_with=recipe.trackers or None, project_dir=folder
            )
    except (RuntimeError, ValueError, OSError) as error:  # a port in use, a missing process or backend
        if "WORLD_SIZE" not in os.environ:
            raise
        reason = first_line(error)
        raise HoldfastError(
            f"this process cannot join the group of {os.environ['WORLD_SIZE']} processes ({reason})"
        ) from error
    if accelerator.num_processes != wanted:  # otherwise each would train its own model into the same folder
        raise HoldfastError(
            f"{wanted} processes were started, but this one is in a group of {accelerator.num_processes}"
        )
    if accelerator.distributed_type not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
        raise HoldfastError(f"training runs as one process or with DDP, got {accelerator.distributed_type.value}")
    return accelerator


def _check_group() -> None:
    """``accelerate launch --cpu --num_processes N`` prepares a group but, without MPI, starts a single process."""
    lonely = "MASTER_PORT" in os.environ and not {"RANK", "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"} & {
        *os.environ
    }
    if lonely and os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
        raise HoldfastError(
            "accelerate launch --cpu started only one of several processes; "
            "start them with: torchrun --nproc-per-node N -m holdfast train …"
        )


def _check_trackers(names: list[str]) -> None:
    known = [str(kind) for kind in LoggerType if kind != LoggerType.ALL]
    for name in names:
        if name not in known:
            raise HoldfastError(f"unknown tracker {name!r}{nearest(name, known) or f'; known are {known}'}")
        if importlib.util.find_spec(name) is None:
            raise HoldfastError(f"train.trackers names {name}, which is not installed: pip install {name}")


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Handles signals during a run: the first saves and stops, the second stops at once."""

    def __init__(self) -> None:
        self.signal: int = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers only there
            self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    def signal_on_any_process(self, accelerator: Accelerator) -> int:
        """The highest signal that any process has received, or 0. All processes must call it at the same step."""
        if accelerator.num_processes == 1:
            return self.signal
        seen = accelerator.gather(torch.tensor([self.signal], device=accelerator.device))
        return int(seen.max())
