"""Speed of the kinds of C-bar on one core, against the published code; writes results/c_bar.{json,md}.

    python perf/c_bar.py [--rounds 9] [--dry]

The published code is not run: its cost is kept as a ratio to one 11×11 Gaussian blur (OpenCV) of the same 224×224×3
image, one thread, middle magnitude, without its draws. Ours is timed in turns with that blur in one process, draws
included, by processor time, so a busy machine slows both.
"""

# ruff: noqa: E402 - threads are pinned before NumPy loads
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from sklearn.datasets import load_sample_image

from environment import as_line, describe
from holdfast.corruptions import C_BAR_SUITES, corrupt_batch
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
SIDE, BATCH, BLURS = 224, 4, 40
PUBLISHED = {  # times the blur, to about 20 %
    "blue_noise_sample": 288,
    "plasma_noise": 2773,
    "checkerboard_cutout": 215,
    "cocentric_sine_waves": 228,
    "single_frequency_greyscale": 58,
    "brownish_noise": 937,
    "perlin_noise": 2708,
    "sparkles": 6951,
    "inverse_sparkles": 1248,
    "caustic_refraction": 8554,
    "circular_motion_blur": 584,
    "lines": 27,
    "pinch_and_twirl": 2018,
    "ripple": 1333,
    "transverse_chromatic_abberation": 25,
}
BARS = {"sum": 50.0, "lowest": 1.0}


def cases(image: np.ndarray) -> dict[str, Callable[[], object]]:
    """The blur, and every kind at severity 3 on some images with new draws each time."""
    turns = itertools.count()

    def corrupt(kind: str) -> object:
        ids = [f"{next(turns)}" for _ in range(BATCH)]
        return corrupt_batch([image] * BATCH, kind, ids=ids, severity=3, preset="imagenet")

    found: dict[str, Callable[[], object]] = {kind: lambda kind=kind: corrupt(kind) for kind in PUBLISHED}
    return {"blur": lambda: [cv2.GaussianBlur(image, (11, 11), 0) for _ in range(BLURS)], **found}


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds per image, how many blurs that is, how many the published code takes, and the gain."""
    image = cv2.resize(load_sample_image("china.jpg"), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    seconds = interleave(cases(image), rounds=rounds, clock=time.process_time)
    blur = seconds.pop("blur") / BLURS
    return {
        kind: {
            "ms": 1e3 * total / BATCH,
            "blurs": total / BATCH / blur,
            "published": PUBLISHED[kind],
            "gain": PUBLISHED[kind] / (total / BATCH / blur),
        }
        for kind, total in seconds.items()
    }


def summary(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    ten = [rows[kind] for kind in C_BAR_SUITES["imagenet-c-bar"]]
    blurs, published = (sum(row[name] for row in ten) for name in ("blurs", "published"))
    return {
        "blurs": blurs,
        "published": published,
        "sum": published / blurs,
        "lowest": min(r["gain"] for r in rows.values()),
    }


def table(results: dict) -> str:
    total = results["summary"]
    lines = ["| kind | ms | in blurs | published | gain |", "|---|--:|--:|--:|--:|"]
    lines += [
        f"| {kind} | {row['ms']:.2f} | {row['blurs']:.1f} | {row['published']} | {row['gain']:.1f} × |"
        for kind, row in results["kinds"].items()
    ]
    bold = (f"**{value:.0f}**" for value in (total["blurs"], total["published"]))
    lines.append(f"| **ten kinds of ImageNet-C-bar** | | {' | '.join(bold)} | **{total['sum']:.0f} ×** |")
    about = "One 224×224 image at severity 3 on one core, draws included; a blur is OpenCV's 11×11 Gaussian, in turns."
    about += " The published code's figures are ratios of a run of its own, to about 20 %."
    lowest = f"no kind slower (lowest {total['lowest']:.1f} ×)"
    bars = f"Bars: the ten together {BARS['sum']:g} × (measured {total['sum']:.0f}), {lowest}."
    return "\n".join([about, "", *lines, "", bars, "", as_line(results["environment"]), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    rows = measure(arguments.rounds)
    environment = describe("numpy", "scipy", "opencv-python-headless")
    results = {"environment": environment, "bars": BARS, "kinds": rows, "summary": summary(rows)}
    print(table(results))
    if not arguments.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "c_bar.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "c_bar.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
