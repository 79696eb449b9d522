"""How the kinds of C-bar draw: as published from a literal source, by the same laws from any other."""

from collections.abc import Sequence
from typing import TypeVar

from holdfast.corruptions.rng import Draws, LegacyDraws

T = TypeVar("T")


def inner_draws(draws: Draws) -> Draws:
    """The published code seeds a second generator with a draw of the first; others go on with the same source."""
    return LegacyDraws(int(draws.integers(0, 2**32))) if draws.literal else draws


def permuted(draws: Draws, items: Sequence[T]) -> list[T]:
    """The items in random order, shuffled as NumPy shuffles."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = int(draws.integers(0, last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def signs(draws: Draws, count: int) -> list[int]:
    """1 or −1, each drawn alone."""
    return [(1, -1)[int(draws.integers(0, 2))] for _ in range(count)]
