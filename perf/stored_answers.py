"""Per-image answers that the studies store, as populations from which simulations draw images."""

from pathlib import Path

import numpy as np

from holdfast.cells import CellSpec
from holdfast.studies.results import read_result

STUDIES = Path(__file__).parents[1] / "studies"

DIGITS = Path(__file__).parent / "results" / "anytime_digits.safetensors"  # the demo's baseline, on all test digits


def stored_answers(study: str, row: str, seed: int) -> tuple[list[CellSpec], np.ndarray]:
    """Clean cell and corrupted cells of a run, clean first, and whether every answer was right: (cells, images)."""
    path = STUDIES / study / "results" / f"{row}-seed{seed}.safetensors"
    result = read_result(DIGITS if study == "digits" else path)
    families = {"clean": 0, "corruption": 1}
    cells = sorted((cell for cell in result.cells if cell.family in families), key=lambda cell: families[cell.family])
    return cells, np.stack([result.right[cell.name] for cell in cells]).astype(np.float64)
