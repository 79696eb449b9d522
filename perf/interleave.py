"""Time several things in turn, round after round, so that a noisy machine is unfair to all of them alike."""

import statistics
import time
from collections.abc import Callable


def interleave(
    cases: dict[str, Callable[[], object]],
    *,
    rounds: int = 9,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds per case; the order rotates, and the first rounds do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for turn in range(warmup + rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = clock()
            cases[name]()
            if turn >= warmup:
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
