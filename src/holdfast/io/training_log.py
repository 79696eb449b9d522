"""Is it alive? Which parts of an objective did nothing in a training, read from its log alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# what every log holds, whatever is trained
_COMMON = frozenset({"event", "step", "epoch", "lr", "loss", "cross_entropy", "grad_norm", "images_per_s"})
LEAST_MOVE = 1e-3  # of a module's norm, over a whole run


def idle_parts(log: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for every part that did nothing: always 0 in the log, or a module whose weights did not move."""
    lines = list(log)
    steps = [line for line in lines if line.get("event") == "step"]
    moved = next((line.get("moved") for line in reversed(lines) if line.get("event") == "end"), None)
    return [*_always_zero(steps), *_constant_parts(moved if isinstance(moved, Mapping) else {})]


def _always_zero(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for line in steps for name in line if name not in _COMMON)
    found = [name for name in names if all(line.get(name, 0) == 0 for line in steps)]
    lines = f"all {len(steps)} lines" if len(steps) > 1 else "the only line"
    return [f"{name} was 0 in {lines} of the log: this part of the objective did nothing" for name in found]


def _constant_parts(moved: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} moved by {100 * share:.2g} % of its norm over the whole run: it has learned nothing"
        for name, share in moved.items()
        if isinstance(share, int | float) and share < LEAST_MOVE
    ]
