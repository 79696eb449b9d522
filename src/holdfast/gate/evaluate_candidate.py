"""A new model measured as the baseline was: its data, suites, protocol and seed, so that the two can be compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.corruptions.sequences import EXTRA_SEQUENCES
from holdfast.corruptions.severities import EXTRA
from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import PairedScores, side_of
from holdfast.reporting.export.tables import clean_elsewhere

OF_BASELINE = ("preset", "extra", "stored_jpeg", "preparation", "exif")  # fields of a protocol; others are the model's

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import Source
    from holdfast.evaluation.config import ComputeConfig, EvalProtocol


def measured_like(
    old: Sequence[PairedScores],
    model: "nn.Module | str | Path",
    *,
    data: "Sequence[Source | str] | None" = None,
    out: Path | str | None = None,
    workers: int | None = None,
    device: str = "auto",
    show: bool | None = None,
    protocol: "EvalProtocol | None" = None,
) -> list[PairedScores]:
    """A side for every one of the baseline's, of another model.

    Args:
        old: the baseline.
        model: as in :func:`holdfast.evaluate`.
        data: where the baseline's data are, one for each of its sets; those that it names, unless given.
        out: the folder that gets the records, as in :func:`holdfast.evaluate`.
        workers: likewise.
        device: likewise.
        show: likewise.
        protocol: how the model wants its images and what it answers with, such as the mean that an ONNX file does not
            tell; everything else is the baseline's.
    """
    from holdfast.evaluation.evaluate import evaluate

    places: Sequence[Source | str] = [side.data for side in old] if data is None else data
    if len(places) != len(old):
        raise HoldfastError(f"data must be one for each of the baseline's {len(old)} data sets, got {len(places)}")
    options: dict[str, Any] = {"out": out, "workers": workers, "device": device, "show": show}
    sets = [
        evaluate(model, place, _suites(side), **_as_measured(side, protocol), **options)
        for side, place in zip(old, places, strict=True)
    ]
    return [side_of(records, clean=clean_elsewhere(records, sets)) for records in sets]


def _suites(side: PairedScores) -> list[str]:
    """The suites of the cells; of a stored set its own, though the clean images of another may stand beside them."""
    stored = [header for header in side.cells.values() if "set" in header]
    suites = [header.get("suite") for header in stored or side.cells.values()]
    if None in suites:
        raise HoldfastError("a baseline must say the suites of its cells to be measured again, got one without")
    return [str(suite) for suite in dict.fromkeys(suites)]


def _as_measured(side: PairedScores, asked: "EvalProtocol | None") -> dict[str, Any]:
    header = side.header
    compute, protocol = _options(side)
    if asked is not None:
        protocol = replace(protocol, **{name: getattr(asked, name) for name in vars(asked) if name not in OF_BASELINE})
    return {"limit": header.get("limit"), "seed": int(header.get("seed", 0)), "protocol": protocol, "compute": compute}


def _options(side: PairedScores) -> "tuple[ComputeConfig, EvalProtocol]":
    from holdfast.evaluation.config import ComputeConfig, EvalProtocol

    header = side.header
    steps = header.get("preprocessing") or {}
    extra = {"corruption": EXTRA, "sequence": EXTRA_SEQUENCES}
    protocol = EvalProtocol(
        preset=str(header["preset"]) if "preset" in header else None,
        extra=any(spec.kind in extra.get(spec.family, ()) for spec in side.specs(list(side.cells))),
        stored_jpeg=str(steps.get("after_corruption", "")).startswith("JPEG"),
        preparation=str(steps.get("preparation", "benchmark")),
        exif=str(header.get("exif", "ignore")),
    )
    return ComputeConfig(attack_batch_size=int(header.get("attack_batch_size", 64))), protocol
