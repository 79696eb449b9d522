"""Checks of a training log for loss terms and modules that had no effect."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# keys of every log, whatever the objective
_COMMON = frozenset({"event", "step", "epoch", "lr", "loss", "cross_entropy", "grad_norm", "images_per_s"})
MIN_CHANGE = 1e-3  # relative change of a module's weights over a whole run below which it has not learned


def idle_parts(log: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence per idle part: a loss term that was always 0, or a module whose weights did not change."""
    lines = list(log)
    steps = [line for line in lines if line.get("event") == "step"]
    moved = next((line.get("moved") for line in reversed(lines) if line.get("event") == "end"), None)
    return [*_always_zero(steps), *_constant_parts(moved if isinstance(moved, Mapping) else {})]


def _always_zero(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(steps) < 2:  # many terms are 0 at the first step, such as the alignment of a model with itself
        return []
    names = dict.fromkeys(name for line in steps for name in line if name not in _COMMON)
    found = [name for name in names if all(line.get(name, 0) == 0 for line in steps)]
    return [f"{name} was 0 in all {len(steps)} lines of the log: this term had no effect" for name in found]


def _constant_parts(moved: Mapping[str, Any]) -> list[str]:
    return [
        f"the weights of {name} changed by only {100 * share:.2g} % over the whole run: it has learned nothing"
        for name, share in moved.items()
        if isinstance(share, int | float) and share < MIN_CHANGE
    ]
