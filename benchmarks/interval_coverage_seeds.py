"""How often the intervals of a study hold the truth: 2, 3 and 5 seeds, alone and with rows that tell the seed variance.

    python benchmarks/interval_coverage_seeds.py [--simulations 10000]

Every simulated study has rows that are equal in truth and 400 images. A difference of two rows has a standard deviation
of 2 between seeds and a standard error of 0.5 over images; what a seed brings to all rows alike has a deviation of 3.
*Alone* means that the study has the two rows that are compared, and nothing to pool. The ideal width is that of a
normal interval with the true deviation. Writes benchmarks/results/interval_coverage_seeds.json and .md.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from environment import as_line, describe
from holdfast.studies.columns import columns
from holdfast.studies.differences import difference
from holdfast.studies.results import RunResult

RESULTS = Path(__file__).parent / "results"
SEEDS, ROWS = (2, 3, 5), (2, 6)
SEED_DEVIATION, IMAGE_ERROR, SHARED = 2.0, 0.5, 3.0
IMAGES, COLUMN = 400, "stability"  # a mean over images that needs no other cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=10_000)
    simulations = parser.parse_args().simulations
    rows = [measured(seeds, rows, simulations=simulations) for rows in ROWS for seeds in SEEDS]
    content = {"environment": describe("numpy", "scipy"), "simulations": simulations, "seeds": rows}
    (RESULTS / "interval_coverage_seeds.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "interval_coverage_seeds.md").write_text(as_markdown(content))
    print(as_markdown(content))


def measured(seeds: int, rows: int, *, simulations: int) -> dict[str, Any]:
    """Coverage and width of the difference between the first two rows."""
    rng, column = np.random.default_rng([seeds, rows]), columns()[COLUMN]
    found = [difference(column, study(rng, rows=rows, seeds=seeds), "row 1", "row 0") for _ in range(simulations)]
    ideal = 2 * norm.ppf(0.975) * np.sqrt(SEED_DEVIATION**2 / seeds + IMAGE_ERROR**2)
    return {
        "seeds": seeds,
        "rows": rows,
        "coverage": round(100 * float(np.mean([not one.excludes_zero for one in found])), 2),
        "width_by_ideal": round(float(np.mean([one.high - one.low for one in found])) / ideal, 3),
    }


def study(rng: np.random.Generator, *, rows: int, seeds: int) -> dict[str, list[RunResult]]:
    """Results of a study whose rows differ by nothing but chance."""
    hard = rng.normal(size=(rows, 1, IMAGES)) * IMAGE_ERROR * np.sqrt(IMAGES / 2)  # images are alike in all seeds
    luck = rng.normal(size=(rows, seeds, 1)) * SEED_DEVIATION / np.sqrt(2) + SHARED * rng.normal(size=(1, seeds, 1))
    return {
        f"row {place}": [_run(seed, values) for seed, values in enumerate(row)] for place, row in enumerate(hard + luck)
    }


def _run(seed: int, values: np.ndarray) -> RunResult:
    return RunResult("", seed, {}, {COLUMN: values}, {})


def as_markdown(content: dict[str, Any]) -> str:
    lines = [
        "# Coverage of 95 % intervals over seeds\n",
        f"{content['simulations']:,} simulated studies a line; seed deviation {SEED_DEVIATION:g}, image error "
        f"{IMAGE_ERROR:g}, {IMAGES} images. {as_line(content['environment'])}\n",
        "| seeds | seed variance from | covers, % | width by ideal |",
        "|---|---|---|---|",
    ]
    for row in content["seeds"]:
        told = "the two rows alone" if row["rows"] == min(ROWS) else f"{row['rows']} rows"
        lines.append(f"| {row['seeds']} | {told} | {row['coverage']:.1f} | {row['width_by_ideal']:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
