"""Cost of a pass in an evaluation that stops early, against a full one; writes results/anytime_passes.{json,md}.

    python perf/anytime_passes.py [--rounds 5] [--dry]

A full evaluation decodes an image once for all its cells; one that stops early decodes it for one corrupted cell and
the clean one. Both are timed in turns in one process without workers, by processor time, so a busy machine slows both:
twelve photographs in 76 cells, and about as many passes of photographs in one cell and clean; of the slow model one
photograph, and as few parts. Files are JPEGs of 500×375.
"""

# ruff: noqa: E402 - threads are pinned before NumPy loads
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import timm
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

from environment import as_line, describe
from holdfast import ComputeConfig, Until
from holdfast.evaluation.anytime import make_search
from holdfast.evaluation.progress import ProgressDisplay
from holdfast.evaluation.record_set import prepare_folder
from holdfast.evaluation.round_runner import run_parts
from holdfast.evaluation.runner import run_units
from holdfast.evaluation.setup import EvaluationRequest, PreparedEvaluation, prepare_evaluation
from holdfast.records.round_files import Measured
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
CELLS, IMAGES, FIRST = 76, 2400, 32
SHARD = {"next to free, 224 px": 12, "ViT-S, 224 px": 1}  # images in all cells
BARS = {"next to free, 224 px": 1.5, "ViT-S, 224 px": 1.1}


class Free(nn.Module):
    """Ten classes from the mean colour."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(images.mean(dim=(2, 3)))


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    vit = timm.create_model("vit_small_patch16_224", num_classes=10)
    return {"next to free, 224 px": Free().eval(), "ViT-S, 224 px": vit.eval()}


def photographs(folder: Path) -> None:
    """Crops of two photographs as JPEG files, in ten classes."""
    draws, pictures = np.random.default_rng(0), load_sample_images().images
    for number in range(IMAGES):
        picture = pictures[number % 2]
        top, left = draws.integers(0, picture.shape[0] - 375), draws.integers(0, picture.shape[1] - 500)
        path = folder / f"class{number % 10}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[top : top + 375, left : left + 500]).save(path, quality=90)


def cases(
    prepared: PreparedEvaluation, shard_size: int
) -> tuple[dict[str, Callable[[], object]], dict[str, list[int]]]:
    """A shard in all cells, and as many passes of a round; and how many passes each call made."""
    work, steps, model = prepared.work, prepared.steps, prepared.normalized_model
    found = make_search(prepared, Until(0.5)).rounds
    rounds = replace(found, first=FIRST, passes=found.passes if shard_size > 1 else CELLS)
    done = np.zeros((len(work.plan.cells), len(work.plan.ids)), dtype=bool)
    parts, shards = rounds.parts([rounds.cells], done), itertools.count()
    measured = Measured(work.folder, work.fingerprint, model.views)
    passes: dict[str, list[int]] = {"full": [], "rounds": []}
    silent = ProgressDisplay(total=0, imagenet=False, show=False)

    def full() -> None:
        shard = next(shards)
        run_units(work, [(shard, cell) for cell in range(CELLS)], normalized_model=model, steps=steps, progress=silent)
        passes["full"].append(shard_size * CELLS)

    def in_rounds() -> None:
        mine = [next(parts)]
        for _, cells in run_parts(work, mine, rounds.clean, normalized_model=model, steps=steps, progress=silent):
            measured.write(cells)
        passes["rounds"].append(sum(part.passes for part in mine))

    return {"full": full, "rounds": in_rounds}, passes


def measure(name: str, model: nn.Module, images: Path, *, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as out:
        compute = ComputeConfig(shard_size=SHARD[name], batch_size=32)
        request = EvaluationRequest(model, f"folder:{images}", "clean,corruptions", out, workers=0, compute=compute)
        with prepare_evaluation(request) as prepared:
            prepare_folder(prepared.work.folder, prepared.header, prepared.work.plan, tolerance=1e-3, fresh=False)
            found, passes = cases(prepared, SHARD[name])
            seconds = interleave(found, rounds=rounds, clock=time.process_time)
    each = {case: 1e3 * seconds[case] / float(np.median(passes[case])) for case in seconds}
    return {"full_ms": each["full"], "rounds_ms": each["rounds"], "ratio": each["rounds"] / each["full"]}


def table(results: dict) -> str:
    lines = ["| model | full, ms per pass | in rounds | ratio | bar |", "|---|--:|--:|--:|--:|"]
    lines += [
        f"| {name} | {row['full_ms']:.2f} | {row['rounds_ms']:.2f} | {row['ratio']:.2f} | {BARS[name]:g} |"
        for name, row in results["models"].items()
    ]
    about = (
        "Processor time of a pass on one core without workers, in turns; JPEG files of 500×375, every image of a round "
        "in one corrupted cell and clean. The machine was busy."
    )
    return "\n".join([about, "", *lines, "", as_line(results["environment"]), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    parser.add_argument("--only", default="", help="a part of a model's name")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    stored = RESULTS / "anytime_passes.json"
    rows = json.loads(stored.read_text(encoding="utf-8"))["models"] if arguments.only and stored.exists() else {}
    with tempfile.TemporaryDirectory() as images:
        photographs(Path(images))
        for name, model in models().items():
            if arguments.only in name:
                rows[name] = measure(name, model, Path(images), rounds=arguments.rounds if "free" in name else 1)
    results = {"environment": describe("numpy", "torch", "timm", "pillow"), "bars": BARS, "models": rows}
    print(table(results))
    if not arguments.dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "anytime_passes.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "anytime_passes.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
