"""Machine-readable exports: CSV with one line per score, and JSON in RobustBench's format."""

import csv
import io
import json
from collections.abc import Sequence
from math import isnan
from typing import Any

from holdfast._version import __version__
from holdfast.io.markdown import printable
from holdfast.metrics.summary import Score, Summary
from holdfast.published.paper_scores import PaperScore, architecture_of
from holdfast.records.class_map import class_map_words

COLUMNS = (
    *(
        "model",
        "view",
        "data",
        "label",
        "source",
        "score",
        "value",
        "low",
        "high",
        "unit",
        "better",
        "images",
        "passes",
    ),
    *("missing", "note", "definition", "classes"),
)


def comma_separated(rows: Sequence[tuple[str, Summary | None, PaperScore | None]]) -> str:
    """Write one line per model, view and score; published scores have the paper as their source."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for _, summary, printed in rows:
        if printed is not None:
            writer.writerows(_printed_lines(printed))
        elif summary is not None:
            writer.writerows(_line(summary, score) for score in summary)
    return file.getvalue()


def robustbench(rows: Sequence[tuple[str, Summary]]) -> str:
    """Write one object per model: RobustBench's keys with numbers as text, as in its model files, and all our scores.

    RobustBench, Croce et al. 2021. Partial scores are never stored under its keys.
    """
    return json.dumps([_entry(name, summary) for name, summary in rows], indent=2, ensure_ascii=False) + "\n"


def _line(summary: Summary, score: Score) -> dict[str, Any]:
    header = summary.header
    return {
        "model": _text(header.get("model", "")),
        "view": _text(summary.view),
        "data": _text(header.get("data", "")),
        "label": _text(header.get("label", "")),
        "source": "measured",
        "score": score.name,
        **{key: _number(getattr(score, key)) for key in ("value", "low", "high")},
        "unit": _text(score.unit),
        "better": score.better,
        "images": summary.images,
        "passes": str(summary.passes) if summary.passes is not None else "",
        "missing": " ".join(score.missing),
        "note": _text(score.note),
        "definition": _text(score.definition),
        "classes": _text(class_map_words(header)),
    }


def _printed_lines(printed: PaperScore) -> list[dict[str, Any]]:
    source = f"{printed.where}{f', {printed.how}' if printed.how else ''}"
    return [
        {"model": printed.model, "source": source, "score": name, "value": _number(value)}
        for name, value in printed.values.items()
    ]


def _entry(name: str, summary: Summary) -> dict[str, Any]:
    header = summary.header
    attacked = [score for score in summary if score.family == "attack" and "autoattack" in score.kind]
    entry = {
        "link": None,
        "name": printable(name),
        "authors": None,
        "additional_data": None,
        "number_forward_passes": 1,
        "dataset": _dataset(summary),
        "venue": None,
        "architecture": printable(architecture_of(header)),
        "eps": None,
        "clean_acc": _as_text(summary, "clean"),
        "reported": "",
        "corruptions_acc": _as_text(summary, "mean_corruption_accuracy"),
        "corruptions_mce": _as_text(summary, "mce"),
        "autoattack_acc": _as_text(summary, attacked[0].name) if attacked else None,
        "footnote": _footnote(summary),
    }
    optional = ("corruptions_acc", "corruptions_mce", "autoattack_acc")
    kept = {key: value for key, value in entry.items() if value is not None or key not in optional}
    return kept | {"holdfast": {score.name: _details(score) for score in summary}}


def _details(score: Score) -> dict[str, Any]:
    numbers = {key: _number(getattr(score, key)) for key in ("value", "low", "high")}
    details = {**numbers, "unit": score.unit, "better": score.better, "definition": score.definition}
    return (
        details
        | ({"missing": list(score.missing)} if score.partial else {})
        | ({"note": score.note} if score.note else {})
    )


def _dataset(summary: Summary) -> str:
    header = summary.header
    data = str(header.get("data", "")).partition(":")[0]
    if data.startswith(("cifar100", "cifar10")):
        return "cifar100" if data.startswith("cifar100") else "cifar10"
    return "imagenet" if header.get("preset") == "imagenet" and header.get("classes") == 1000 else printable(data)


def _footnote(summary: Summary) -> str:
    header = summary.header
    made = {"on-the-fly": "corrupted on the fly, not the stored set", "official": "stored set"}
    parts = [
        f"Holdfast {__version__}",
        made.get(str(header.get("label", "")), str(header.get("label", ""))),
        f"{summary.images} images",
        str(summary.passes) if summary.passes is not None else "",
        class_map_words(header),
        "partial: " + ", ".join(score.name for score in summary if score.partial),
    ]
    return printable("; ".join(part for part in parts if part and part != "partial: "))


def _as_text(summary: Summary, name: str) -> str | None:
    score = summary.scores.get(name)
    return f"{score.value:.2f}" if score is not None and not isnan(score.value) else None


def _number(value: float) -> float | None:
    return None if isnan(value) else round(value, 4)


def _text(value: object) -> str:
    """Quote text that a spreadsheet would run as a formula (CSV injection)."""
    text = printable(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
