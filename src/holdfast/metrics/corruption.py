"""Corruption benchmark scores: CE, mCE, relative mCE, mean accuracy, retention.

ImageNet-C, Hendrycks & Dietterich 2019. Errors are fractions, five per kind, severity 1 first; scores relative to a
baseline are in percent, as the papers print them: 100 is as good as AlexNet. An error may be a number, or an
array of jackknife replicates: scores and their intervals use the same functions.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast import benchmarks
from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.errors import HoldfastError
from holdfast.published import published

Values = float | NDArray[np.float64]  # one number, or one per jackknife replicate
Errors = Mapping[str, Sequence[Values]]

WITHOUT_NOISE = benchmarks.BENCHMARKS["imagenet-c-without-noise"].kinds
FAN_KINDS, FAN_LABEL = benchmarks.BENCHMARKS["fan-16"].kinds, benchmarks.FAN_LABEL
ROUNDING = 1e-9  # a mean of fractions may round to just above 1


def alexnet_errors(*, extras: bool = False) -> dict[str, float]:
    """AlexNet's mean error per kind over the five severities; the four ``extras`` are quoted, not recomputed."""
    table = published("alexnet")
    means = {kind: float(np.mean(errors)) for kind, errors in table["errors"].items()}
    return means | (table["extra_mean_errors"]["values"] if extras else {})


def kind_errors(errors: Errors, kinds: Iterable[str]) -> dict[str, Values]:
    """Mean error over the severities of each kind; raises an error that names a missing kind or severity."""
    wanted = tuple(kinds)
    missing = [kind for kind in wanted if kind not in errors]
    if missing:
        raise HoldfastError(f"errors must have {len(wanted)} kinds, but these are missing: {', '.join(missing)}")
    return {kind: plain(_five(errors[kind], kind).mean(axis=0)) for kind in wanted}


def corruption_errors(
    errors: Errors, *, kinds: Sequence[str] = STANDARD, baseline: Mapping[str, float] | None = None
) -> dict[str, Values]:
    """CE per kind in percent: the summed error over the severities divided by that of the baseline.

    Hendrycks & Dietterich 2019. ``baseline`` maps kinds to mean errors; by default AlexNet's.
    """
    reference = _baseline(baseline, kinds)
    # the mean over five severities in numerator and denominator: the factor 1/5 of both sums cancels
    return {kind: 100 * error / reference[kind] for kind, error in kind_errors(errors, kinds).items()}


def relative_corruption_errors(
    errors: Errors,
    *,
    clean_error: Values,
    kinds: Sequence[str] = STANDARD,
    baseline: Mapping[str, float] | None = None,
    baseline_clean_error: float | None = None,
) -> dict[str, Values]:
    """Relative CE per kind in percent: increase over the clean error, divided by the baseline's increase.

    Hendrycks & Dietterich 2019. By default AlexNet, whose clean error is 0.4348.
    """
    if (baseline is None) != (baseline_clean_error is None):
        raise HoldfastError("baseline and baseline_clean_error must be given together, got only one")
    reference = _baseline(baseline, kinds)
    clean = published("alexnet")["clean_error"] if baseline_clean_error is None else baseline_clean_error
    added = {kind: reference[kind] - _fraction(clean, "baseline_clean_error") for kind in kinds}
    harmless = [kind for kind, value in added.items() if value <= 0]
    if harmless:
        raise HoldfastError(f"baseline errors must exceed its clean error for every kind, but do not for {harmless[0]}")
    own = _fraction(clean_error, "clean_error")
    return {kind: 100 * (error - own) / added[kind] for kind, error in kind_errors(errors, kinds).items()}


def mean_corruption_error(ces: Mapping[str, Values], *, kinds: Sequence[str] = STANDARD) -> Values:
    """mCE in percent: the plain mean of the CEs of the 15 kinds (relative mCE: of the relative CEs).

    ``kinds=WITHOUT_NOISE`` gives AFAT's "IN-C w/o noise". Extras in ``ces`` do not count.
    """
    missing = [kind for kind in kinds if kind not in ces]
    if missing:
        raise HoldfastError(f"ces must have {len(kinds)} kinds, but these are missing: {', '.join(missing)}")
    return mean_of([ces[kind] for kind in kinds])


def mean_corruption_accuracy(errors: Errors, *, kinds: Sequence[str] = STANDARD) -> Values:
    """Mean accuracy over all cells, 0 to 1, the score of CIFAR-10-C and CIFAR-100-C."""
    return 1.0 - mean_of(list(kind_errors(errors, kinds).values()))


def fan_accuracy(errors: Errors) -> Values:
    """Mean accuracy over the 16 kinds of FAN's Table 12; report it with `FAN_LABEL`.

    The printed columns average to 57.25, 64.22 and 66.21 where 57.5, 64.5 and 66.4 are printed.
    """
    return mean_corruption_accuracy(errors, kinds=FAN_KINDS)


def retention(corrupted_accuracy: Values, clean_accuracy: Values) -> Values:
    """Retention in percent: corrupted accuracy divided by clean accuracy (FAN, Figure 1); see `percent_of_clean`.

    Both are fractions; NaN stands for a score that is undefined, such as the AP of images without objects.
    """
    _fraction(np.nan_to_num(corrupted_accuracy), "corrupted_accuracy")
    _fraction(np.nan_to_num(clean_accuracy), "clean_accuracy")
    return percent_of_clean(corrupted_accuracy, clean_accuracy)


def percent_of_clean(corrupted: Values, clean: Values) -> Values:
    """A score under corruption in percent of the clean score, elementwise for arrays of replicates.

    NaN for a clean score of 0: nothing can be retained of nothing, and neither 0 nor 100 % nor infinity would tell the
    truth. Tables show it as a dash, and an interval with such a replicate has no bounds.
    """
    whole = np.asarray(clean, dtype=np.float64)
    return plain(100 * np.asarray(corrupted) / np.where(whole > 0, whole, np.nan))


def mean_of(values: Sequence[Values]) -> Values:
    """Unweighted mean of some scores, elementwise for arrays of replicates."""
    return plain(np.mean(np.stack([np.asarray(value, dtype=np.float64) for value in values]), axis=0))


def plain(values: Values) -> Values:
    """Convert 0-dimensional arrays to float; leave others as arrays."""
    array = np.asarray(values, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def _baseline(baseline: Mapping[str, float] | None, kinds: Sequence[str]) -> Mapping[str, float]:
    reference = alexnet_errors(extras=True) if baseline is None else baseline
    useless = [kind for kind in kinds if not reference.get(kind, 0) > 0]
    if useless:
        raise HoldfastError(
            f"baseline must have an error above 0 for every kind, but has none for {', '.join(useless)}"
        )
    return reference


def _five(values: Sequence[Values], kind: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < 1 or len(array) != len(SEVERITIES):
        raise HoldfastError(f"errors of {kind} must be {len(SEVERITIES)}, one per severity, got shape {array.shape}")
    if not _all_fractions(array):
        for severity, error in zip(SEVERITIES, array, strict=True):
            _fraction(error, f"error of {kind} at severity {severity}")
    return array


def _all_fractions(values: Values) -> bool:
    """Whether all values are in [0, 1], up to rounding; false for NaN, because comparisons with NaN are false."""
    return bool(np.min(values) >= -ROUNDING and np.max(values) <= 1 + ROUNDING)


def _fraction(value: Values, name: str) -> Values:
    if not _all_fractions(value):
        given = value if np.ndim(value) == 0 else f"{np.min(value)} to {np.max(value)}"
        raise HoldfastError(f"{name} must be a fraction from 0 to 1, got {given}")
    return value
