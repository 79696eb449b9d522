"""Scores of domains: of each, their mean and worst, and the gap between the domains of training and the others.

The images of all domains are one cell. The score of a domain is the mean of a quantity over its images: the mean of the
quantity times a 0/1 column, by the mean of that column, so intervals and paired differences need nothing of their own.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.cells import CellSpec
from holdfast.metrics.corruption import Values
from holdfast.metrics.scoring.base import Key, Means, ScoreDefinition, column
from holdfast.records.records import CellRecord

IN, RIGHT_IN = "in domain ", "right in domain "
POINTS = "% points"


def domain_columns(cell: CellRecord, right: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Per-image columns of every domain that has an image: whether it is in the domain, and right there."""
    found: dict[str, NDArray[np.float64]] = {}
    names = cell.header.get("domains") or ()
    of_image = np.array([str(id).partition("/")[0] for id in cell.ids]) if names else np.empty(0)
    for name in names:
        inside = (of_image == name).astype(np.float64)
        if inside.any():
            found |= {IN + name: inside, RIGHT_IN + name: inside * right}
    return found


def domain_scores(
    cells: Sequence[CellSpec], *, columns: Collection[Key], header: Mapping[str, Any], name: str, label: str
) -> list[ScoreDefinition]:
    """Scores over domains, then of every domain; ``name`` and ``label`` are those of the score of a cell."""
    clean = next((cell.name for cell in cells if cell.family == "clean"), "")
    there = [quantity.removeprefix(IN) for cell, quantity in columns if cell == clean and quantity.startswith(IN)]
    if not there:
        return []
    of = partial(_over, clean=clean)
    count = f"{len(there)} domains"
    about: dict[str, Any] = {"family": "domain", "cells": (clean,), "reads": _reads(clean, there)}
    percent: dict[str, Any] = {"unit": "%", "better": "high", **about}
    first = {**percent, "headline": True}
    scores = [
        _score(f"mean_domain_{name}", "mean domain", f"mean {label} over {count}", of(there, np.mean), **first),
        _score(f"worst_domain_{name}", "worst domain", f"lowest {label} of {count}", of(there, np.min), **first),
    ]
    trained = [each for each in header.get("train_domains") or () if each in there]
    unseen = [each for each in there if each not in trained]
    if trained and unseen:
        seen, others = of(trained, np.mean), of(unseen, np.mean)
        text = f"mean {label} over the domains without training images: {', '.join(unseen)}"
        scores.append(_score(f"unseen_domain_{name}", "unseen domains", text, others, **percent))
        text = f"mean {label} over the domains of training ({', '.join(trained)}) minus that over the others"
        gap = {"unit": POINTS, "better": "low", "scale": "plain", "headline": True, **about}
        scores.append(_score("domain_gap", "domain gap", text, lambda means: seen(means) - others(means), **gap))
    for each in there:
        about = {**percent, "reads": _reads(clean, [each]), "among": column(clean, IN + each)}
        text = f"{label} in the domain {each}"
        scores.append(_score(f"domain/{each}", each, text, of([each], np.mean), table="domain", kind=each, **about))
    return scores


def _score(name: str, label: str, text: str, compute: Any, **about: Any) -> ScoreDefinition:
    return ScoreDefinition(name=name, label=label, definition=text, compute=compute, **about)


def _reads(clean: str, domains: Sequence[str]) -> tuple[Key, ...]:
    return tuple(column(clean, kind + name) for name in domains for kind in (IN, RIGHT_IN))


def _over(domains: Sequence[str], how: Any, *, clean: str) -> Any:
    """Computes the mean or minimum of some domains' scores, in percent."""

    def compute(means: Means) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):  # a paired subset may lack a domain
            values = [
                np.asarray(means[clean, RIGHT_IN + each]) / np.asarray(means[clean, IN + each]) for each in domains
            ]
        return 100 * how(np.stack(values), axis=0)

    return compute
