"""The few numbers that results come down to, for a table. Computed from what is stored; no torch."""

from collections.abc import Sequence

from holdfast.analysis.plugin import Numbers
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import Result


def headlines(results: Sequence[Result]) -> Numbers:
    """Named numbers of one model's results, in the order of the analyses."""
    known = [result for result in results if result.kind in ANALYSES]
    return {name: value for result in known for name, value in ANALYSES[result.kind].headline(result).items()}
