"""Metrics: the papers' scores as pure functions of records, confidence intervals, summaries and comparisons."""

from holdfast._deprecated import renamed
from holdfast.metrics.accuracy import accuracy, correct, predicted, ranked, restricted, restricted_classes
from holdfast.metrics.calibration import (
    calibration_gaps,
    confidence,
    expected_calibration_error,
    gap_of_means,
    negative_log_likelihood,
)
from holdfast.metrics.carry_over import CarryOver, carry_over_verdict
from holdfast.metrics.comparison import Comparison, Difference, compare, over_runs
from holdfast.metrics.consistency import error_consistency
from holdfast.metrics.corruption import (
    FAN_KINDS,
    FAN_LABEL,
    WITHOUT_NOISE,
    alexnet_errors,
    corruption_errors,
    fan_accuracy,
    mean_corruption_accuracy,
    mean_corruption_error,
    relative_corruption_errors,
    retention,
)
from holdfast.metrics.custom import METRICS, Metric, register_metric
from holdfast.metrics.flip_rate import (
    flip_probability,
    flips,
    mean_flip_rate,
    mean_over_kinds,
    mean_top5_distance,
    top5_distance,
    top5_distances,
)
from holdfast.metrics.intervals import Interval, Spread, jackknife_interval, over_seeds, paired_difference
from holdfast.metrics.scoring.base import ScoreDefinition, column
from holdfast.metrics.summary import Score, Summary, summarise
from holdfast.published.paper_scores import paper_says

__all__ = [
    "FAN_KINDS",
    "FAN_LABEL",
    "METRICS",
    "WITHOUT_NOISE",
    "CarryOver",
    "Comparison",
    "Difference",
    "Interval",
    "Metric",
    "Score",
    "ScoreDefinition",
    "Spread",
    "Summary",
    "accuracy",
    "alexnet_errors",
    "calibration_gaps",
    "carry_over_verdict",
    "column",
    "compare",
    "confidence",
    "correct",
    "corruption_errors",
    "error_consistency",
    "expected_calibration_error",
    "fan_accuracy",
    "flip_probability",
    "flips",
    "gap_of_means",
    "jackknife_interval",
    "mean_corruption_accuracy",
    "mean_corruption_error",
    "mean_flip_rate",
    "mean_over_kinds",
    "mean_top5_distance",
    "negative_log_likelihood",
    "over_runs",
    "over_seeds",
    "paired_difference",
    "paper_says",
    "predicted",
    "ranked",
    "register_metric",
    "relative_corruption_errors",
    "restricted",
    "restricted_classes",
    "retention",
    "summarise",
    "top5_distance",
    "top5_distances",
]

__getattr__ = renamed(__name__)
