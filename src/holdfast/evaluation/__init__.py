"""What is measured: records of what a model said of every image, and pure functions from them to the papers' scores.

``holdfast.evaluate`` makes records; ``summarise``, ``compare``, ``over_runs``, ``export`` read them, without a model.
"""

from holdfast.evaluation.accuracy import accuracy, correct, predicted, ranked, restricted, restricted_classes
from holdfast.evaluation.calibration import (
    calibration_gaps,
    confidence,
    expected_calibration_error,
    gap_of_means,
    negative_log_likelihood,
)
from holdfast.evaluation.comparison import Comparison, Difference, compare, over_runs
from holdfast.evaluation.corruption_metrics import (
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
from holdfast.evaluation.intervals import Interval, Spread, bootstrap_interval, over_seeds, paired_difference
from holdfast.evaluation.papers import paper_says
from holdfast.evaluation.records import CellRecord, Records, load_records
from holdfast.evaluation.sequence_metrics import (
    flip_probability,
    flips,
    mean_over_kinds,
    mean_rate,
    mean_top5_distance,
    top5_distance,
    top5_distances,
)
from holdfast.evaluation.summary import Score, Summary, summarise
from holdfast.evaluation.tables import FORMATS, export

__all__ = [
    "FAN_KINDS",
    "FAN_LABEL",
    "FORMATS",
    "WITHOUT_NOISE",
    "CellRecord",
    "Comparison",
    "Difference",
    "Interval",
    "Records",
    "Score",
    "Spread",
    "Summary",
    "accuracy",
    "alexnet_errors",
    "bootstrap_interval",
    "calibration_gaps",
    "compare",
    "confidence",
    "correct",
    "corruption_errors",
    "expected_calibration_error",
    "export",
    "fan_accuracy",
    "flip_probability",
    "flips",
    "gap_of_means",
    "load_records",
    "mean_corruption_accuracy",
    "mean_corruption_error",
    "mean_over_kinds",
    "mean_rate",
    "mean_top5_distance",
    "negative_log_likelihood",
    "over_runs",
    "over_seeds",
    "paired_difference",
    "paper_says",
    "predicted",
    "ranked",
    "relative_corruption_errors",
    "restricted",
    "restricted_classes",
    "retention",
    "summarise",
    "top5_distance",
    "top5_distances",
]
