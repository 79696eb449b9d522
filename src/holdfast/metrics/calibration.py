"""Calibration: negative log-likelihood and expected calibration error (ECE) of images and pixels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError
from holdfast.metrics.accuracy import checked_logits, checked_targets
from holdfast.metrics.corruption import Values, plain

PIXEL_BINS = 10


def log_probabilities(logits: ArrayLike) -> NDArray[np.floating]:
    """Log-softmax over the last axis, numerically stable for large logits."""
    array = checked_logits(logits)
    if not np.isfinite(array).all():
        raise HoldfastError("logits must be finite, got an infinite value")
    shifted = array - array.max(axis=-1, keepdims=True)  # largest exponent 0, so exp cannot overflow
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def confidence(logits: ArrayLike) -> NDArray[np.floating]:
    """The probability of the predicted class, one value per image."""
    return np.exp(log_probabilities(logits).max(axis=-1))


def negative_log_likelihood(logits: ArrayLike, targets: ArrayLike) -> NDArray[np.floating]:
    """Minus the log-probability of the target in nats, one value per image; NLL is the mean."""
    log_p = log_probabilities(logits)
    labels = checked_targets(targets, shape=log_p.shape[:-1], classes=log_p.shape[-1])
    return -np.take_along_axis(log_p, labels[..., None], axis=-1)[..., 0]


def calibration_gaps(confidences: ArrayLike, correct: ArrayLike, *, bins: int = 15) -> NDArray[np.float64]:
    """Confidence minus correctness, one row per image with the value in the column of its bin, (N, bins).

    The calibration error is a function of this array's mean over the images (`gap_of_means`), as the
    jackknife requires. Bins are equally wide and include their upper edge (Guo et al. 2017).
    """
    sure, right = _check_inputs(confidences, correct)
    if bins < 1:
        raise HoldfastError(f"bins must be at least 1, got {bins}")
    column = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], sure, side="left")
    gaps = np.zeros((len(sure), bins))
    gaps[np.arange(len(sure)), column] = sure - right
    return gaps


def pixel_calibration(confidences: NDArray[np.floating], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Count, summed confidence and number of correct pixels of one image by confidence bin, (3, bins).

    Ten equally wide bins that include their lower edge. Sums add up over images for `pixel_error`.
    """
    bins = np.minimum((confidences * PIXEL_BINS).astype(np.int64), PIXEL_BINS - 1)  # confidence 1 is in the last bin
    weights = (None, np.asarray(confidences, np.float64), correct.astype(np.float64))
    return np.stack([np.bincount(bins, each, minlength=PIXEL_BINS).astype(np.float64) for each in weights])


def pixel_error(sums: ArrayLike) -> NDArray[np.float64]:
    """ECE of pixels, 0 to 1, from sums or means of `pixel_calibration`, (…, 3, bins)."""
    array = np.asarray(sums, dtype=np.float64)
    count, sure, right = array[..., 0, :], array[..., 1, :], array[..., 2, :]
    total = count.sum(axis=-1)
    gaps = np.abs(sure - right).sum(axis=-1)
    return np.divide(gaps, total, out=np.full(np.shape(total), np.nan), where=total > 0)


def gap_of_means(means: ArrayLike | Sequence[Values]) -> Values:
    """ECE from the means over images of `calibration_gaps`, (bins,) or (bins, replicates)."""
    return plain(np.abs(np.asarray(means)).sum(axis=0))


def expected_calibration_error(confidences: ArrayLike, correct: ArrayLike, *, bins: int = 15) -> Values:
    """ECE, 0 to 1: |accuracy − mean confidence| of a bin, averaged over bins weighted by their images.

    Naeini et al. 2015; 15 equally wide bins as in Guo et al. 2017.
    """
    return gap_of_means(calibration_gaps(confidences, correct, bins=bins).mean(axis=0))


def _check_inputs(confidences: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sure, right = np.asarray(confidences, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != right.shape or not sure.size:
        raise HoldfastError(
            f"confidences and correct must be one value per image, got shapes {sure.shape} and {right.shape}"
        )
    if not ((sure >= 0) & (sure <= 1 + 1e-6)).all():  # a float32 softmax may round to just above 1
        raise HoldfastError("confidences must be probabilities from 0 to 1, got values outside or NaN")
    if not np.isin(right, (0, 1)).all():
        raise HoldfastError("correct must be true or false for every image, got other values")
    return sure, right
