"""The few numbers that results come down to, for a table. Computed from what is stored; no torch."""

from collections.abc import Callable, Sequence

import numpy as np

from holdfast.analysis.results import Result

Numbers = dict[str, float]


def headlines(results: Sequence[Result]) -> Numbers:
    """Named numbers of one model's results, in the order of the analyses."""
    return {name: value for result in results for name, value in _OF.get(result.kind, _none)(result).items()}


def _none(result: Result) -> Numbers:
    return {}


def _stability(result: Result) -> Numbers:
    return {
        f"stability, {cell}": float(np.nanmean(cosines, axis=(1, 2)).mean())
        for cell, cosines in zip(result.header["cells"], result.arrays["flattened"], strict=True)
    }


def _occlusion(result: Result) -> Numbers:
    of_masks = 100 * result.arrays["right"].mean(axis=0, dtype=np.float64)
    known = {"stability, occluded": float(result.arrays["scores"].mean())}
    if result.header.get("answers", True):
        known |= {"occluded accuracy, %": float(of_masks.mean()), "… lowest mask, %": float(of_masks.min())}
    return known


def _overfocus(result: Result) -> Numbers:
    last = {name: float(np.nanmean(result.arrays[name][:, -1])) for name in result.arrays}
    return {
        "effective tokens, last layer": last["effective_tokens"],
        f"share of top {result.header['top']}, last layer": last["top_share"],
        "column concentration, last layer": last["column_concentration"],
    }


def _diversity(result: Result) -> Numbers:
    return {"cosine between heads": float(np.nanmean(result.arrays["similarity"]))}


def _noise_decay(result: Result) -> Numbers:
    return {
        "noise left, last block": float(result.arrays["change"][:, -1].mean()),
        "significant eigenvalues, last block": float(result.arrays["eigenvalues"][:, -1].mean()),
    }


def _patches(result: Result) -> Numbers:
    clean, occluded = result.arrays["confidence"].mean(axis=0)
    return {"confidence lost to chosen patches": float(clean - occluded)}


_OF: dict[str, Callable[[Result], Numbers]] = {
    "stability": _stability,
    "occlusion": _occlusion,
    "overfocus": _overfocus,
    "diversity": _diversity,
    "noise-decay": _noise_decay,
    "patches": _patches,
}
