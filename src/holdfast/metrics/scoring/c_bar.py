"""The mean accuracy over ImageNet-C-bar or CIFAR-10-C-bar: 100 minus the error that Mintun et al. 2021 print.

A plain mean over ten kinds and five severities; no reference model divides it.
"""

from collections.abc import Sequence

from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.metrics.corruption import mean_corruption_accuracy
from holdfast.metrics.scoring.base import Benchmark, CellScore, Compute, ScoreDefinition
from holdfast.records.cells import CellSpec

TITLES = {"imagenet-c-bar": "ImageNet-C-bar", "cifar-c-bar": "CIFAR-10-C-bar"}


def c_bar_scores(cells: Sequence[CellSpec], measure: CellScore) -> list[ScoreDefinition]:
    """The mean over the ten kinds of the benchmark that the cells are of; partial where kinds are missing."""
    benchmark = Benchmark(tuple(cells), measure, None)
    suite = max(C_BAR_SUITES, key=lambda name: sum(kind in C_BAR_SUITES[name] for kind in benchmark.kinds()))

    def mean(benchmark: Benchmark, kinds: Sequence[str]) -> ScoreDefinition:
        errors: Compute = lambda m: 100 * mean_corruption_accuracy(benchmark.errors(m, kinds), kinds=kinds)  # noqa: E731
        text = f"mean {measure.label} over the 10 kinds of {TITLES[suite]} × 5 severities"
        name, label = f"mean_c_bar_{measure.name}", f"C-bar {measure.mean_label}"
        return ScoreDefinition(name, label, "%", "high", text, errors, family="corruption")

    return benchmark.over(C_BAR_SUITES[suite], mean)
