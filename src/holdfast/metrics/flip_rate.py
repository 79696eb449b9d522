"""Stability under perturbation sequences: flip probability, mFR, top-5 distance.

ImageNet-P and CIFAR-P, Hendrycks & Dietterich 2019. Per-sequence values come first, because intervals need them;
a score is their mean. Means over kinds take numbers, or arrays of jackknife replicates.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.corruptions.sequences import NOISE_SEQUENCES, SEQUENCES, TEST_SEQUENCES
from holdfast.errors import HoldfastError, nearest
from holdfast.metrics.corruption import Values, plain

Pair = tuple[NDArray[np.int64], NDArray[np.int64]]


def compared_frames(kind: str, *, frames: int, difficulty: int = 1) -> Pair:
    """Indices of the compared frames: the earlier ones and the later ones.

    Noise frames are independent samples around frame 0 and are compared with it; their difficulty is another data set.
    All other kinds change from frame to frame and are compared ``difficulty`` frames apart, at every offset.
    """
    if kind not in SEQUENCES:
        raise HoldfastError(f"kind must be a perturbation sequence, got {kind!r}{nearest(kind, SEQUENCES)}")
    apart = 1 if kind in NOISE_SEQUENCES else difficulty
    if difficulty < 1 or frames <= apart:
        raise HoldfastError(f"difficulty must be from 1 to {frames - 1} for {frames} frames, got {difficulty}")
    later = np.arange(apart, frames)
    return (np.zeros_like(later) if kind in NOISE_SEQUENCES else later - apart), later


def flips(predictions: ArrayLike, *, kind: str, difficulty: int = 1) -> NDArray[np.float64]:
    """Fraction of compared frames at which the predicted class changes, one value per sequence.

    Args:
        predictions: the predicted class of every frame, (sequences, frames).
        kind: perturbation, which determines the frame to compare with.
        difficulty: distance of compared frames, for kinds other than noise.
    """
    array = np.asarray(predictions)
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise HoldfastError(f"predictions must be integers (sequences, frames), got {array.dtype} {array.shape}")
    earlier, later = compared_frames(kind, frames=array.shape[1], difficulty=difficulty)
    return (array[:, later] != array[:, earlier]).mean(axis=1)


def flip_probability(predictions: ArrayLike, *, kind: str, difficulty: int = 1) -> float:
    """FP: the mean of `flips` over the sequences, 0 to 1."""
    return float(flips(predictions, kind=kind, difficulty=difficulty).mean())


def top5_distance(first: ArrayLike, second: ArrayLike) -> NDArray[np.int64]:
    """Top-5 distance between two frames: 0 (same order) to 18; 15 if none of the five remains.

    Hendrycks & Dietterich 2019: ``Σ |k − min(r(k), 5)|`` over k = 0 … 4, where r(k) is the rank in ``second`` of
    the class at rank k in ``first``. Ranks from 5 on count alike, so five classes per frame are all it needs.

    Args:
        first: the five best classes of a frame, best first (…, 5); see `holdfast.metrics.ranked`.
        second: likewise, of the other frame.
    """
    before, after = _five_classes(first, "first"), _five_classes(second, "second")
    same = before[..., :, None] == after[..., None, :]  # … 5 5
    ranks = np.where(same.any(axis=-1), same.argmax(axis=-1), 5)  # min(r, 5): classes outside the top five get rank 5
    return np.abs(np.arange(5) - ranks).sum(axis=-1)


def top5_distances(top_five: ArrayLike, *, kind: str, difficulty: int = 1) -> NDArray[np.float64]:
    """Mean top-5 distance of the compared frames, one value per sequence.

    ``top_five`` holds the five best classes of every frame, best first, (sequences, frames, 5).
    """
    array = _five_classes(top_five, "top_five")
    if array.ndim != 3 or not array.size:
        raise HoldfastError(f"top_five must be (sequences, frames, 5), got shape {array.shape}")
    earlier, later = compared_frames(kind, frames=array.shape[1], difficulty=difficulty)
    return top5_distance(array[:, earlier], array[:, later]).mean(axis=1)


def mean_top5_distance(top_five: ArrayLike, *, kind: str, difficulty: int = 1) -> float:
    """T5D: the mean of `top5_distances` over the sequences, 0 to 18."""
    return float(top5_distances(top_five, kind=kind, difficulty=difficulty).mean())


def mean_over_kinds(values: Mapping[str, Values], *, kinds: Sequence[str] = TEST_SEQUENCES) -> Values:
    """Unnormalised mFP (or T5D) over the kinds, as reported for CIFAR-P.

    The ten test kinds include snow; the authors' CIFAR-P script averages spatter instead. Report which were used.
    """
    return plain(np.mean(_choose_kinds(values, kinds, "values"), axis=0))


def mean_flip_rate(
    values: Mapping[str, Values], *, baseline: Mapping[str, float], kinds: Sequence[str] = TEST_SEQUENCES
) -> Values:
    """mFR in percent: the mean over the kinds of FP divided by the baseline's FP; of T5D values it is mT5D.

    Hendrycks & Dietterich 2019. ``published("alexnet")["flip_probabilities"]["values"]`` is AlexNet as usually
    quoted for the stored, lossy videos. For frames generated on the fly, measure the baseline on the same frames.
    """
    reference = _choose_kinds(baseline, kinds, "baseline")
    if not (reference > 0).all():
        still = [kind for kind, value in zip(kinds, reference, strict=True) if not value > 0]
        raise HoldfastError(f"baseline must be above 0 for every kind, but is not for {', '.join(still)}")
    chosen = _choose_kinds(values, kinds, "values")
    return plain(100 * np.mean(chosen / reference.reshape(-1, *(1,) * (chosen.ndim - 1)), axis=0))


def _choose_kinds(values: Mapping[str, Values], kinds: Sequence[str], name: str) -> NDArray[np.float64]:
    missing = [kind for kind in kinds if kind not in values]
    if missing:
        raise HoldfastError(f"{name} must have {len(kinds)} kinds, but these are missing: {', '.join(missing)}")
    chosen = np.stack([np.asarray(values[kind], dtype=np.float64) for kind in kinds])
    if not (np.isfinite(chosen) & (chosen >= 0)).all():
        raise HoldfastError(f"{name} must be finite and at least 0, got {chosen.tolist()}")
    return chosen


def _five_classes(classes: ArrayLike, name: str) -> NDArray[np.int64]:
    array = np.asarray(classes)
    if array.dtype.kind not in "iu" or array.ndim < 1 or array.shape[-1] != 5:
        raise HoldfastError(f"{name} must hold five class indices in its last axis, got {array.dtype} {array.shape}")
    return array.astype(np.int64)
