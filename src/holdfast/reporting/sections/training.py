"""Training section: curves and a table from the logs of the runs."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from holdfast.io.validation import file_name
from holdfast.reporting.comparable import MANY
from holdfast.reporting.figures import charts
from holdfast.reporting.figures.charts import ChartLine, ReportFigure, svg_picture
from holdfast.reporting.formatting import NOT_MEASURED, clean_name, number, title_of
from holdfast.reporting.runs import Run
from holdfast.reporting.sections.reproduce import name_run
from holdfast.reporting.sections.section import Section
from holdfast.reporting.table import Column, Row, Table

# suffixes of values of single blocks or for debugging only
SKIPPED = (*"0123456789", "grad_norm", "active_rows")
COLUMNS = ("epochs", "steps", "best in validation, %", "images/s (median)", "parameters, M")
# validation score per task; the first one in a log is used
VALIDATED = {"top1": "accuracy", "miou": "mIoU", "f1": "F1"}


def training_section(runs: Sequence[Run]) -> Section:
    """Build the section from the runs with a log."""
    rows = [Row(run.name, cells, name_run(run)) for run, cells in training_rows(runs)]
    table = Table("Training", [Column(label) for label in COLUMNS], rows)
    trained = [run for run in runs if run.log]
    some = f" Curves of the first {MANY} of {len(trained)} models." if len(trained) > MANY else ""
    return Section("training", "Training", f"From the logs of the runs.{some}", training_figures(trained[:MANY]), table)


def training_figures(runs: Sequence[Run]) -> list[ReportFigure]:
    """Draw loss and validation score of all runs, then further loss terms."""
    wanted = {"loss": ("Training loss", "loss", "step")} | {
        key: (f"{title_of(word)} on the validation images", f"{word}, %", "epoch") for key, word in VALIDATED.items()
    }
    pictures = []
    for key, (title, label, event) in wanted.items():
        lines = [line for run in runs if (line := log_line(run, event=event, key=key)) is not None]
        if lines:
            pictures.append(_curve(key, lines, title=title, label=label))
    for key in _loss_parts(runs):
        lines = [line for run in runs if (line := log_line(run, event="step", key=key)) is not None]
        words = clean_name(key.replace("_", " "))
        pictures.append(_curve(key, lines, title=words, label=words))
    return pictures


def _curve(key: str, lines: Sequence[ChartLine], *, title: str, label: str) -> ReportFigure:
    name = "training-" + file_name(key, allowed="")
    return svg_picture(lambda: charts.curves(lines, x="epoch", y=label), name=name, title=title)


def _loss_parts(runs: Iterable[Run], *, most: int = 4) -> list[str]:
    """Loss terms of robust methods, such as AFAT's alignment, without those of single blocks (``alignment_0``)."""
    common = {"event", "step", "epoch", "lr", "loss", "cross_entropy", "grad_norm", "images_per_s"}
    steps = [line for run in runs for line in run.log if line["event"] == "step"]
    keys = dict.fromkeys(key for line in steps for key in line if key not in common and not key.endswith(SKIPPED))
    return [key for key in keys if any(log_line(run, event="step", key=key) for run in runs)][:most]


def log_line(run: Run, *, event: str, key: str) -> ChartLine | None:
    """Curve of one logged value over epochs, or over steps if the log has no finished epoch."""
    lines = [line for line in run.log if line["event"] == event and _is_number(line.get(key))]
    if not lines:
        return None
    per_epoch = steps_per_epoch(run)
    x = [line["step"] / per_epoch for line in lines]
    return ChartLine(run.name, run.number, x, [float(line[key]) for line in lines])


def steps_per_epoch(run: Run) -> float:
    """Steps per epoch from the last finished epoch; 1 without one."""
    ends = [line for line in run.log if line["event"] == "epoch" and _is_number(line.get("epoch"))]
    ends = [line for line in ends if line["epoch"] >= 0 and line["step"] > 0]
    return ends[-1]["step"] / (ends[-1]["epoch"] + 1) if ends else 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def training_rows(runs: Sequence[Run]) -> list[tuple[Run, list[str]]]:
    """Rows with epochs, steps, best validation score, images per second and parameters."""
    rows = []
    for run in (run for run in runs if run.log):
        speeds = [line["images_per_s"] for line in run.log if _is_number(line.get("images_per_s"))]
        ends = [line for line in run.log if line["event"] == "epoch"]
        score_key = next((key for key in VALIDATED if any(_is_number(line.get(key)) for line in ends)), "top1")
        scores = [line[score_key] for line in ends if _is_number(line.get(score_key))]
        steps = max(line["step"] for line in run.log)
        cells = [
            number(steps / steps_per_epoch(run)) if any(line["event"] == "epoch" for line in run.log) else NOT_MEASURED,
            str(steps),
            number(max(scores)) if scores else NOT_MEASURED,
            number(float(np.median(speeds)), digits=0) if speeds else NOT_MEASURED,
            number(run.parameters / 1e6, digits=2) if run.parameters else NOT_MEASURED,
        ]
        rows.append((run, cells))
    return rows
