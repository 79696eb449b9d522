"""Tables of detection and segmentation studies: corruptions, error types, classes, cost."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.io.markdown import table
from holdfast.metrics.detection_errors import OBJECTS
from holdfast.studies.figures import Results
from holdfast.studies.results import RunResult

QUANTITIES = {"box_ap": "box AP", "mask_ap": "mask AP", "miou": "mIoU"}


def kinds_table(results: Results) -> str:
    """Scores per corruption, mean over severities and seeds, in percent."""
    runs = [run for held in results.values() for run in held]
    quantity = next(name for name in QUANTITIES if name in runs[0].draws)
    kinds = list(dict.fromkeys(cell.kind for cell in runs[0].cells if cell.family == "corruption"))

    def score(run: RunResult, kind: str) -> float:
        values = np.asarray(run.draws[quantity])[:, 0]
        return 100 * float(np.mean([v for cell, v in zip(run.cells, values, strict=True) if cell.kind == kind]))

    body = [[kind, *(_mean([score(run, kind) for run in held]) for held in results.values())] for kind in kinds]
    return _table([QUANTITIES[quantity], *results], body)


def breaks_table(results: Results) -> str:
    """Error types in percent of all objects, on clean and corrupted images, mean over seeds."""
    columns = [f"{outcome}, {where}" for where in ("clean", "corrupted") for outcome in OBJECTS]
    body = []
    for row, runs in results.items():
        shares = [_shares(run, "clean") + _shares(run, "corruption") for run in runs]
        calibration = [_figure(run, "calibration", family) for family in ("clean", "corruption") for run in runs]
        halves = calibration[: len(runs)], calibration[len(runs) :]
        body.append([row, *(_mean(values) for values in zip(*shares, strict=True)), *map(_mean, halves)])
    return _table(["", *columns, "calibration, clean", "calibration, corrupted"], body)


def classes_table(results: Results, *, names: Sequence[str]) -> str:
    """IoU per class on clean and corrupted images, mean over seeds, in percent."""
    body = []
    for place, name in enumerate(names):
        cells = [
            _mean([_class_iou(run, family)[place] for run in runs])
            for family in ("clean", "corruption")
            for runs in results.values()
        ]
        body.append([name, *cells])
    return _table(["", *(f"{row}, {where}" for where in ("clean", "corrupted") for row in results)], body)


ALIVE = {
    "adl_active_rows": "ADL: rows of attention that it pushes down, %",
    "alignment": "AFAT: alignment error × 100",
    "selection_change": "AFAT: patches chosen anew per step, %",
    "adversarial_cross_entropy": "cross-entropy of the attacked images × 100",
}


def alive_table(results: Results) -> str:
    """Logged loss terms, to check that methods were active: means over the second half of training, per seed."""

    def later(run: RunResult, name: str) -> float:
        values = np.asarray(run.traces[name])[:, 1]
        return 100 * float(np.mean(values[len(values) // 2 :]))

    body = [
        [row, what, ", ".join(f"{later(run, name):.2f}" for run in runs)]
        for row, runs in results.items()
        for name, what in ALIVE.items()
        if all(name in run.traces for run in runs)
    ]
    return _table(["", "logged", "every seed's mean over the second half of training"], body)


def cost_table(results: Results) -> str:
    """CPU minutes of training and evaluating a run, mean over seeds."""
    spent: Callable[[RunResult, str], float] = lambda run, what: (  # noqa: E731
        run.header.get("processor_seconds", {}).get(what, float("nan")) / 60
    )
    body = [
        [row, *(_mean([spent(run, what) for run in runs]) for what in ("train", "measure"))]
        for row, runs in results.items()
    ]
    return _table(["processor minutes per run", "training", "measuring"], body)


def _cell_indices(run: RunResult, family: str) -> list[int]:
    return [place for place, cell in enumerate(run.cells) if cell.family == family]


def _shares(run: RunResult, family: str) -> list[float]:
    counts = np.asarray(run.figures["objects"])[_cell_indices(run, family), 0].sum(axis=0)
    return (100 * counts / max(counts.sum(), 1)).tolist()


def _figure(run: RunResult, name: str, family: str) -> float:
    values = np.asarray(run.figures[name])[_cell_indices(run, family)]
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _class_iou(run: RunResult, family: str) -> NDArray[np.float64]:
    return 100 * np.asarray(run.figures["class_iou"], np.float64)[_cell_indices(run, family)].mean(axis=0)


def _mean(values: Sequence[float]) -> str:
    known = [value for value in values if np.isfinite(value)]
    return f"{np.mean(known):.1f}" if known else "–"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return table(head, body, numbers=range(1, len(head)))
