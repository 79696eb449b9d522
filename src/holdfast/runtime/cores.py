"""The number of processor cores that this process may use."""

import os


def core_count() -> int:
    """Number of processor cores that this process may use; a container or ``taskset`` may allow fewer than exist."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
