"""How much memory something takes, by the process's own high-water mark (Linux)."""

from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def extra_peak_megabytes(run: Callable[[], object]) -> float:
    """What ``run`` adds to the memory in use, at its highest.

    The mark is reset first: ``ru_maxrss`` survives exec, so a child process would start at its parent's peak.
    """
    CLEAR.write_text("5")
    before = _megabytes("VmRSS")
    run()
    return _megabytes("VmHWM") - before


def _megabytes(name: str) -> float:
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(name)) / 1024
