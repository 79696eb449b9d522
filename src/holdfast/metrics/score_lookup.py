"""Lookup of scores by label or key, and the reason why a score is missing."""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.errors import nearest

ERRORS = "errors, and AlexNet's published ones belong to ImageNet's 1000 classes at 224 px"
FLIPS = "flips, and AlexNet's published ones belong to ImageNet-P as distributed"
DIVIDED = {  # scores relative to a baseline: label, what they divide by, and similar scores that need none
    "mce": ("mCE", ERRORS, "mean_corruption_accuracy", "retention"),
    "relative_mce": ("relative mCE", ERRORS, "retention", "mean_corruption_accuracy"),
    "mfr": ("mFR", FLIPS, "mfp"),
    "mt5d": ("mT5D", FLIPS, "t5d"),
}


def key_of(name: str, labels: Mapping[str, str]) -> str | None:
    """Key of the only score with this label, key or last part of its key, ignoring case; None if not unique."""
    wanted = name.lower()
    found = {key for key, label in labels.items() if label.lower() == wanted}
    found = found or {key for key in labels if key.lower() == wanted or key.lower().rpartition("/")[2] == wanted}
    return found.pop() if len(found) == 1 else None


def why_not(name: str, known: Iterable[str], header: Mapping[str, Any]) -> str:
    """The end of an error message about a missing score: the reason, and alternatives."""
    keys = list(known)
    divided = DIVIDED.get(name.lower())
    if divided is None:
        return nearest(name, keys)
    label, by, *others = divided
    instead = [repr(other) for other in others if other in keys]
    reason = (
        f": {label} divides by a baseline's {by}, not to {header.get('data', 'these data')!r}; "
        "give summary(baseline=records of another model)"
    )
    return reason + (f", or use {' or '.join(instead)}" if instead else "")
