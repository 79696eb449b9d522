"""What intervals of AP cost: the jackknife replicates of one cell as large as COCO's, from constructed records.

    python perf/detection.py

5,000 images, 80 classes, 7 objects and 40 detections per image on average. Processor seconds of one thread, so that
other work on the machine counts little. Writes perf/results/detection.json and detection.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from environment import as_line, describe
from holdfast.metrics.ap_jackknife import replicated_precision
from holdfast.metrics.average_precision import record_scores
from holdfast.metrics.jackknife import image_groups

RESULTS = Path(__file__).parent / "results"
IMAGES, CLASSES, OBJECTS, DETECTIONS, BAR = 5000, 80, 7, 40, 90.0


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    fields = constructed(np.random.default_rng(0))
    groups = image_groups([f"{number:06d}" for number in range(IMAGES)])
    rows = [
        {"what": "COCO's scores of one cell", "seconds": seconds(lambda: record_scores(fields))},
        {
            "what": f"AP, AP50 and AP75 of the cell and without each of {groups.count} groups of images",
            "seconds": seconds(lambda: replicated_precision(fields, groups)),
            "bar": BAR,
        },
    ]
    environment = describe("numpy", "faster-coco-eval")
    stored = {"environment": environment, "images": IMAGES, "groups": groups.count, "rows": rows}
    (RESULTS / "detection.json").write_text(json.dumps(stored, indent=1) + "\n")
    (RESULTS / "detection.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "detection.md").read_text())


def seconds(run: Any) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def constructed(rng: np.random.Generator) -> dict[str, Any]:
    """Records of a detector that finds most objects several times, near where they are."""
    rows: dict[str, list[Any]] = {}
    for _ in range(IMAGES):
        for name, value in _image(rng).items():
            rows.setdefault(name, []).append(value)
    return {name: np.array(values) if name in ("size", "masked") else tuple(values) for name, values in rows.items()}


def _image(rng: np.random.Generator) -> dict[str, Any]:
    count = 1 + rng.poisson(OBJECTS - 1)
    corners, sides = rng.uniform(0, 400, (count, 2)), rng.uniform(10, 200, (count, 2))
    truth, labels = np.concatenate([corners, corners + sides], axis=1), rng.integers(CLASSES, size=count)
    chosen = rng.integers(count, size=DETECTIONS)
    found = truth[chosen] + rng.normal(0, 8, (DETECTIONS, 4))
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
    guessed = np.where(rng.random(DETECTIONS) < 0.8, labels[chosen], rng.integers(CLASSES, size=DETECTIONS))
    return {
        "size": (600, 600),
        "masked": False,
        "boxes": found.astype(np.float32),
        "labels": guessed.astype(np.int32),
        "scores": rng.random(DETECTIONS).astype(np.float32),
        "true_boxes": truth,
        "true_labels": labels.astype(np.int32),
        "true_areas": sides.prod(axis=1),
        "true_crowds": np.zeros(count, np.uint8),
    }


def as_markdown(rows: list[dict[str, Any]], environment: str) -> str:
    lines = [
        "# Intervals of average precision\n",
        f"{IMAGES} constructed images of {CLASSES} classes, boxes, all sizes, 100 detections; processor seconds. "
        f"{environment}\n",
        "| what | CPU s | at most |",
        "|---|---|---|",
    ]
    lines += [f"| {row['what']} | {row['seconds']:.1f} | {row.get('bar', '')} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
