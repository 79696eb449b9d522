"""Evaluation of a candidate model with the data, suites, protocol and seed of a baseline."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.corruptions.sequences import EXTRA_SEQUENCES
from holdfast.corruptions.severities import EXTRA
from holdfast.errors import HoldfastError
from holdfast.gate.compatibility import check_comparable
from holdfast.gate.paired_scores import PairedScores, make_paired_scores
from holdfast.records.class_map import answer_protocol, answer_protocol_words
from holdfast.reporting.export.tables import clean_elsewhere

# fields of a protocol; others are the model's
OF_BASELINE = ("preset", "extra", "stored_jpeg", "preparation", "exif")
OF_CLASSES = ("class_map", "classes")  # the baseline's unless given

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import Source
    from holdfast.evaluation.config import ComputeConfig, EvalProtocol
    from holdfast.evaluation.setup import EvaluationRequest
    from holdfast.runtime.ray import Cluster


def evaluate_like_baseline(
    old: Sequence[PairedScores],
    model: "nn.Module | str | Path",
    *,
    data: "Sequence[Source | str] | None" = None,
    out: Path | str | None = None,
    workers: int | None = None,
    device: str = "auto",
    show: bool | None = None,
    protocol: "EvalProtocol | None" = None,
    keep_examples: int = 0,
    cluster: "Cluster | None" = None,
) -> list[PairedScores]:
    """Evaluate a model as the baseline was, and return its paired scores for every data set of the baseline.

    Args:
        old: paired scores of the baseline.
        model: as in `holdfast.evaluate`.
        data: one source or spec for each data set of the baseline; by default the specs that it names.
        out: folder of the records, as in `holdfast.evaluate`.
        workers: likewise.
        device: likewise.
        show: likewise.
        protocol: how the model wants its images and what it answers with, such as the mean that an ONNX file does not
            tell; everything else is the baseline's. A class map is the baseline's unless given; one that gives other
            answers than the baseline's is refused before anything is measured.
        keep_examples: number of failures stored as thumbnails, as in `holdfast.ComputeConfig`.
        cluster: Ray cluster, likewise.
    """
    from holdfast.evaluation.evaluate import evaluate_request
    from holdfast.evaluation.setup import prepare_evaluation

    options: dict[str, Any] = {"workers": workers, "device": device, "protocol": protocol, "out": out, "data": data}
    requests = requests_like_baseline(old, model, keep_examples=keep_examples, cluster=cluster, **options)
    for request in requests[1:]:  # refused before the first is measured
        with prepare_evaluation(request):
            pass
    sets = [evaluate_request(request, show=show) for request in requests]
    return [make_paired_scores(records, clean=clean_elsewhere(records, sets)) for records in sets]


def requests_like_baseline(
    old: Sequence[PairedScores],
    model: "nn.Module | str | Path",
    *,
    data: "Sequence[Source | str] | None" = None,
    out: Path | str | None = None,
    workers: int | None = None,
    device: str = "auto",
    protocol: "EvalProtocol | None" = None,
    keep_examples: int = 0,
    cluster: "Cluster | None" = None,
) -> "list[EvaluationRequest]":
    """Evaluations of a model on every data set of the baseline; arguments as in `evaluate_like_baseline`."""
    from holdfast.evaluation.setup import EvaluationRequest

    places: Sequence[Source | str] = [each.data for each in old] if data is None else data
    if len(places) != len(old):
        raise HoldfastError(
            f"data must have one entry for each of the baseline's {len(old)} data sets, got {len(places)}"
        )
    options: dict[str, Any] = {"out": out, "workers": workers, "device": device}
    requests = [
        EvaluationRequest(model, place, _suites(each), **_settings(each, protocol, keep_examples), **options)
        for each, place in zip(old, places, strict=True)
    ]
    return [
        replace(request, compute=replace(request.compute, cluster=cluster), check=partial(_check_header, each))
        for each, request in zip(old, requests, strict=True)
    ]


def requests_of_old(old: Sequence[PairedScores], against: Any, **options: Any) -> "list[EvaluationRequest | None]":
    """How to measure the baseline's missing cells: only a run's folder has the model; options as above."""
    if not isinstance(against, Path | str) or not (Path(against) / "config.json").is_file():
        return [None] * len(old)
    return [*requests_like_baseline(old, f"run:{against}", **options)]


def _check_header(baseline: PairedScores, header: Mapping[str, Any]) -> None:
    """Raise an error for an evaluation that cannot be compared with the baseline, before anything is measured."""
    if answer_protocol(header) != answer_protocol(baseline.header):  # a class map is known only with the outputs
        ours, theirs = answer_protocol_words(header), answer_protocol_words(baseline.header)
        raise HoldfastError(
            f"the new model's answers must be the baseline's ({baseline.data!r}), got {ours}, not {theirs}; "
            "omit --class-map and --classes, or save the baseline again"
        )
    check_comparable(json.loads(json.dumps(header)), baseline)


def _suites(baseline: PairedScores) -> list[str]:
    """Suites of the baseline's cells; for a stored set its own, even if clean images of another set are included."""
    stored = [header for header in baseline.cells.values() if "set" in header]
    suites = [header.get("suite") for header in stored or baseline.cells.values()]
    if None in suites:
        raise HoldfastError("a baseline must name the suite of every cell, but one has none: save it again")
    found = [str(suite) for suite in dict.fromkeys(suites)]
    _check_registered(found, baseline)
    return found


def _check_registered(suites: Sequence[str], baseline: PairedScores) -> None:
    """Raise an error for suites of a plug-in that is not loaded."""
    from holdfast.evaluation.suites import parse_suites

    for suite in suites:
        try:
            parse_suites(suite)
        except HoldfastError as error:
            plugins = baseline.header.get("plugins")
            name = f" ({', '.join(map(str, plugins))})" if isinstance(plugins, dict) and plugins else ""
            raise HoldfastError(
                f"the baseline was measured on {suite!r}, which is not registered here: load the plug-in{name} that "
                "registers it with --plugin FILE"
            ) from error


def _settings(baseline: PairedScores, requested: "EvalProtocol | None", keep_examples: int) -> dict[str, Any]:
    header = baseline.header
    compute, protocol = _options(baseline)
    compute = replace(compute, keep_examples=keep_examples)
    if requested is not None:
        own = {name: getattr(requested, name) for name in vars(requested) if name not in OF_BASELINE}
        own = {name: value for name, value in own.items() if name not in OF_CLASSES or value is not None}
        protocol = replace(protocol, **own)
    return {"limit": header.get("limit"), "seed": int(header.get("seed", 0)), "protocol": protocol, "compute": compute}


def _options(baseline: PairedScores) -> "tuple[ComputeConfig, EvalProtocol]":
    from holdfast.evaluation.config import ComputeConfig, EvalProtocol

    header = baseline.header
    steps = header.get("preprocessing") or {}
    extra = {"corruption": EXTRA, "sequence": EXTRA_SEQUENCES}
    protocol = EvalProtocol(
        preset=str(header["preset"]) if "preset" in header else None,
        extra=any(spec.kind in extra.get(spec.family, ()) for spec in baseline.specs(list(baseline.cells))),
        stored_jpeg=str(steps.get("after_corruption", "")).startswith("JPEG"),
        preparation=str(steps.get("preparation", "benchmark")),
        exif=str(header.get("exif", "ignore")),
        **_class_map(header),
    )
    return ComputeConfig(attack_batch_size=int(header.get("attack_batch_size", 64))), protocol


def _class_map(header: Mapping[str, Any]) -> dict[str, Any]:
    """The baseline's choice of answers; a map that was given by hand is in its header."""
    found = header.get("class_map")
    if not isinstance(found, Mapping):
        return {}
    told = {"aggregation": found["aggregation"]} if found.get("aggregation") != "none" else {}
    given = {**told, "classes": found["members"]} if header.get("labels") == "map" else None
    return {"classes": found.get("classes"), "class_map": given}
