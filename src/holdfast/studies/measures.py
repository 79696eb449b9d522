"""Measures one trained run of a study, through ``holdfast.evaluate`` and ``holdfast.analyze``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.analysis.analyze import analyze
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import Result
from holdfast.analysis.settings import Settings
from holdfast.evaluation.evaluate import evaluate
from holdfast.studies.plan import Study
from holdfast.training.journal import read_log

ANALYSED = 256  # images that are looked at for attention: enough for a mean, and attention maps are slow
SETTINGS = Settings(masks=4, occlusion_images=ANALYSED)

# what a study keeps of a training's log, where there is such a figure
TRACED = ("cross_entropy", "grad_norm", "alignment", "selection_change", "corruptor_grad_norm", "adl_active_rows")


def measure(
    study: Study, folder: Path, *, show: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, Any]]:
    """What one run says of every test image: shares of right answers per cell, measures, and facts for the header."""
    spec = f"run:{folder}"
    records = evaluate(spec, study.test, study.suites, limit=study.limit, workers=0, show=show)
    right = {name: cell.right for name, cell in records.cells.items()}
    limit = min(study.limit or ANALYSED, ANALYSED)
    analysed: Mapping[str, Result] = {}
    if study.analyses:
        analysed = analyze(spec, study.test, study.analyses, settings=SETTINGS, limit=limit, show=show).results
    measures = {
        column.name: column.per_image(found) for name, found in analysed.items() for column in ANALYSES[name].columns
    }
    kept = ("preset", "frost", "versions", "data_fingerprint", "seed")
    facts = {"evaluation": {name: records.header[name] for name in kept}, "analysed": limit, "task": records.task}
    facts["cells"] = {name: cell.spec.plain() for name, cell in records.cells.items()}
    facts["revisions"] = {
        name: cell.header["revision"] for name, cell in records.cells.items() if "revision" in cell.header
    }
    return right, measures, facts


def traces(folder: Path) -> dict[str, np.ndarray]:
    """What the training logged over its steps, (T, 2) by name: whether a method was at work at all."""
    steps = [line for line in read_log(folder / "log.jsonl") if line["event"] == "step"]
    found = {name: [(line["step"], line[name]) for line in steps if name in line] for name in TRACED}
    return {name: np.array(points, dtype=np.float64) for name, points in found.items() if points}
