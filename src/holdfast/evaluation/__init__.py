"""What is measured: pure functions from logits, predictions and errors to the scores that papers print."""

from holdfast.evaluation.accuracy import accuracy, correct, predicted, ranked, restricted, restricted_classes
from holdfast.evaluation.calibration import (
    calibration_gaps,
    confidence,
    expected_calibration_error,
    gap_of_means,
    negative_log_likelihood,
)
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
from holdfast.evaluation.sequence_metrics import (
    flip_probability,
    flips,
    mean_over_kinds,
    mean_rate,
    mean_top5_distance,
    top5_distance,
    top5_distances,
)

__all__ = [
    "FAN_KINDS",
    "FAN_LABEL",
    "WITHOUT_NOISE",
    "Interval",
    "Spread",
    "accuracy",
    "alexnet_errors",
    "bootstrap_interval",
    "calibration_gaps",
    "confidence",
    "correct",
    "corruption_errors",
    "expected_calibration_error",
    "fan_accuracy",
    "flip_probability",
    "flips",
    "gap_of_means",
    "mean_corruption_accuracy",
    "mean_corruption_error",
    "mean_over_kinds",
    "mean_rate",
    "mean_top5_distance",
    "negative_log_likelihood",
    "over_seeds",
    "paired_difference",
    "predicted",
    "ranked",
    "relative_corruption_errors",
    "restricted",
    "restricted_classes",
    "retention",
    "top5_distance",
    "top5_distances",
]
