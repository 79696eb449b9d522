"""How often the intervals of a study hold the truth: 2, 3 and 5 seeds, alone and with rows that tell the seed variance.

    python perf/interval_coverage_seeds.py [--simulations 10000]

Every simulated study has rows that are equal in truth and 400 images. A difference of two rows has a standard deviation
of 2 between seeds and a standard error of 0.5 over images; what a seed brings to all rows alike has a deviation of 3.
*Alone* means that the study has the two rows that are compared, and nothing to pool. *Calmer* rows vary half as much as
the two that are compared, which the pooled variance does not know. The ideal width is that of a normal interval with
the true deviation. Writes perf/results/interval_coverage_seeds.json and .md.
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
SEEDS = (2, 3, 5)
STUDIES = {"the two rows alone": (2, 1.0), "6 rows": (6, 1.0), "6 rows, the others calmer": (6, 0.5)}
SEED_DEVIATION, IMAGE_ERROR, SHARED = 2.0, 0.5, 3.0
IMAGES, COLUMN = 400, "stability"  # a mean over images that needs no other cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=10_000)
    simulations = parser.parse_args().simulations
    rows = [measured(seeds, told, simulations=simulations) for told in STUDIES for seeds in SEEDS]
    content = {"environment": describe("numpy", "scipy"), "simulations": simulations, "seeds": rows}
    (RESULTS / "interval_coverage_seeds.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "interval_coverage_seeds.md").write_text(as_markdown(content))
    print(as_markdown(content))


def measured(seeds: int, told: str, *, simulations: int) -> dict[str, Any]:
    """Coverage and width of the difference between the first two rows."""
    rng, column = np.random.default_rng([seeds, *told.encode()]), columns()[COLUMN]
    found = [difference(column, study(rng, seeds, *STUDIES[told]), "row 1", "row 0") for _ in range(simulations)]
    ideal = 2 * norm.ppf(0.975) * np.sqrt(SEED_DEVIATION**2 / seeds + IMAGE_ERROR**2)
    return {
        "seeds": seeds,
        "seed_variance_from": told,
        "coverage": round(100 * float(np.mean([not one.excludes_zero for one in found])), 2),
        "width_by_ideal": round(float(np.mean([one.high - one.low for one in found])) / ideal, 3),
    }


def study(rng: np.random.Generator, seeds: int, rows: int, others: float) -> dict[str, list[RunResult]]:
    """Results of a study whose rows differ by nothing but chance; from the third on they vary ``others`` times that."""
    spread = np.where(np.arange(rows) < 2, 1.0, others).reshape(-1, 1, 1) * SEED_DEVIATION / np.sqrt(2)
    hard = rng.normal(size=(rows, 1, IMAGES)) * IMAGE_ERROR * np.sqrt(IMAGES / 2)  # images are alike in all seeds
    luck = rng.normal(size=(rows, seeds, 1)) * spread + SHARED * rng.normal(size=(1, seeds, 1))
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
        lines.append(
            f"| {row['seeds']} | {row['seed_variance_from']} | {row['coverage']:.1f} | {row['width_by_ideal']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
