"""How long an on-the-fly 15×5 evaluation takes; writes results/evaluation.{json,md}.

    python perf/evaluation.py [--only fan_nano] [--rounds 3] [--quick]

Wall time of `holdfast.evaluate(model, data, "clean,corruptions")` beside what cannot be avoided: the bare forward
passes of the same images (same batch size, one thread, measured on some batches and scaled), the bare corruption (one
process) by the number of workers, and reading the images once. These are measured before and after each run and
averaged. Then the obvious loop, with the fork `imagecorruptions-imaug` and a DataLoader per cell, on the 15 cells of
severity 3, times five.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import timm
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn
from torch.utils.data import DataLoader, Dataset

import holdfast
from environment import as_line, describe
from holdfast.corruptions import SEVERITIES, STANDARD, corrupt_batch
from holdfast.data import Source, open_data
from holdfast.evaluation.model_input import model_input
from holdfast.evaluation.preprocessing import Preprocessing, preprocessing

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "evaluation.json"
BAR, STRETCH = 1.3, 1.1
CELLS = 1 + len(STANDARD) * len(SEVERITIES)
BATCH = 32
FREE = "next to free, 224 px"


@dataclass(frozen=True)
class Case:
    model: nn.Module
    data: str
    source: Source
    steps: Preprocessing
    workers: int

    @property
    def images(self) -> int:
        return len(self.source)


def photographs(root: Path, count: int) -> Path:
    """Crops of two photographs as JPEG files of ImageNet's usual size, in ten class folders."""
    rng = np.random.default_rng(0)
    for number in range(10):
        (root / f"class{number}").mkdir(parents=True)
    for number in range(count):
        picture = load_sample_images().images[number % 2]
        top, left = (
            int(rng.integers(side - length)) for side, length in zip(picture.shape[:2], (375, 500), strict=True)
        )
        path = root / f"class{number % 10}" / f"{number:04d}.jpg"
        Image.fromarray(picture[top : top + 375, left : left + 500]).save(path, quality=90)
    return root


def free_model() -> nn.Module:
    """A model of 224-px images that costs next to nothing, as one on a fast GPU does beside the corruptions."""
    return nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(147, 10)).eval()


def case(name: str, folder: Path, *, count: int) -> Case:
    torch.manual_seed(0)
    model = free_model() if name == FREE else timm.create_model(name, num_classes=10).eval()
    small = name == "fan_nano"
    data = f"digits:test[0:{count}]" if small else f"folder:{photographs(folder / 'images', count)}"
    steps = preprocessing("cifar" if small else "imagenet", model_input(model))
    return Case(model, data, open_data(data), steps, workers=max(1, (os.cpu_count() or 1) // 2))


class Seconds(NamedTuple):
    """Time by the clock, and that the processor spent on this process and on workers that have ended."""

    wall: float
    processor: float

    def __mul__(self, times: float) -> "Seconds":  # type: ignore[override]
        return Seconds(self.wall * times, self.processor * times)


def spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds(run: Callable[[], object]) -> Seconds:
    start, before = time.perf_counter(), spent()
    run()
    return Seconds(time.perf_counter() - start, spent() - before)


def forward_seconds(held: Case, *, batches: int) -> Seconds:
    """The bare model on all images of all cells, from a few batches."""
    images = torch.rand(BATCH, 3, *held.steps.size)
    with torch.inference_mode():
        held.model(images)
        each = [seconds(lambda: held.model(images)) for _ in range(batches)]
    median = Seconds(*(statistics.median(column) for column in zip(*each, strict=True)))
    return median * (held.images * CELLS / BATCH)


def decode_seconds(held: Case) -> tuple[Seconds, list[np.ndarray]]:
    images: list[np.ndarray] = []
    read = lambda: images.extend(held.steps.to_protocol(held.source.image(i)) for i in range(held.images))  # noqa: E731
    return seconds(read), images


def corruption_seconds(held: Case, images: list[np.ndarray]) -> Seconds:
    """All 75 cells, one thread, through the batch API in batches as workers make them."""
    ids = [held.source.id(index) for index in range(held.images)]
    preset = held.steps.preset

    def all_cells() -> None:
        for kind in STANDARD:
            for severity in SEVERITIES:
                for start in range(0, len(images), 32):
                    part = slice(start, start + 32)
                    corrupt_batch(images[part], kind, ids=ids[part], severity=severity, preset=preset, seed=0)

    return seconds(all_cells)


def parts(held: Case, *, batches: int) -> dict[str, Seconds]:
    forward = forward_seconds(held, batches=batches)
    decode, images = decode_seconds(held)
    return {"forward": forward, "decode": decode, "corruption": corruption_seconds(held, images)}


def evaluation_seconds(held: Case, folder: Path) -> Seconds:
    def run() -> None:
        holdfast.evaluate(
            held.model, held.data, "clean,corruptions", out=folder, workers=held.workers, fresh=True, show=False,
            protocol=holdfast.EvalProtocol(preset=held.steps.preset), compute=holdfast.ComputeConfig(batch_size=BATCH),
        )  # fmt: skip

    with redirect_stderr(StringIO()):
        return seconds(run)


class Obvious(Dataset):
    """What one writes on an afternoon: decode, crop, corrupt with the fork, normalise, for every cell anew."""

    def __init__(self, held: Case, kind: str, severity: int) -> None:
        self.held, self.kind, self.severity = held, kind, severity

    def __len__(self) -> int:
        return self.held.images

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import imagecorruptions

        steps = self.held.steps
        image = steps.to_protocol(self.held.source.image(index))
        image = steps.to_model(imagecorruptions.corrupt(image, self.severity, self.kind), corrupted=False)
        tensor = torch.from_numpy(image.transpose(2, 0, 1)).float() / 255
        normalised = (tensor - torch.tensor(steps.mean)[:, None, None]) / torch.tensor(steps.std)[:, None, None]
        return normalised, int(self.held.source.targets[index])


def obvious_seconds(held: Case, *, severity: int = 3) -> Seconds:
    """The obvious loop over the 15 cells of one severity, with as many workers as ours."""
    import imagecorruptions

    warm = held.steps.to_protocol(held.source.image(0))
    for kind in STANDARD:  # compiles what the fork compiles, once, before workers are forked
        imagecorruptions.corrupt(warm, severity, kind)

    def loop() -> None:
        for kind in STANDARD:
            right = 0
            loader = DataLoader(Obvious(held, kind, severity), batch_size=BATCH, num_workers=held.workers)
            with torch.inference_mode():
                for images, targets in loader:
                    right += int((held.model(images).argmax(1) == targets).sum())

    return seconds(loop)


def measure(held: Case, folder: Path, *, rounds: int, batches: int) -> dict[str, object]:
    runs, bounds, load = [], [parts(held, batches=batches)], os.getloadavg()[0]
    for _ in range(rounds):
        runs.append(evaluation_seconds(held, folder / "out"))
        bounds.append(parts(held, batches=batches))
    wall = {name: statistics.fmean(bound[name].wall for bound in bounds) for name in bounds[0]}
    busy = {name: statistics.fmean(bound[name].processor for bound in bounds) for name in bounds[0]}
    least = wall["forward"] + wall["corruption"] / held.workers + wall["decode"]
    ours = Seconds(*(statistics.median(column) for column in zip(*runs, strict=True)))
    obvious = obvious_seconds(held) * len(SEVERITIES)
    return {
        "images": held.images,
        "size": held.steps.size[0],
        "workers": held.workers,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        **wall,
        "unavoidable": least,
        "wall": ours.wall,
        "walls": [run.wall for run in runs],
        "ratio": ours.wall / least,
        "processor": ours.processor,
        "processor_unavoidable": sum(busy.values()),
        "processor_ratio": ours.processor / sum(busy.values()),
        "obvious_75_cells": obvious.wall,
        "obvious_75_cells_processor": obvious.processor,
        "factor": obvious.wall / ours.wall,
        "processor_factor": obvious.processor / ours.processor,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }


def page(result: dict) -> str:
    lines = [
        "# An on-the-fly evaluation: 15 kinds × 5 severities, and the clean images",
        "",
        as_line(result["environment"]),
        "",
        f"Bar: wall time at most {BAR} × (forward + corruption / workers + reading), stretch {STRETCH}. Forward,",
        "corruption and reading are the bare work, measured alone before and after the runs. Random weights: how good",
        "the model is does not matter here. A busy machine disturbs wall time, so the processor's time of the whole",
        "evaluation, workers included, stands beside that of the bare work, with the load before and after.",
        "",
        "| model | images | px | workers | forward, s | corruption, s | reading, s | sum, s | wall, s | ratio | bar "
        "| processor ratio | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in result["cases"].items():
        verdict = "stretch" if row["ratio"] <= STRETCH else "held" if row["ratio"] <= BAR else "missed"
        lines.append(
            f"| {name} | {row['images']} | {row['size']} | {row['workers']} | {row['forward']:.1f} "
            f"| {row['corruption']:.1f} | {row['decode']:.2f} | {row['unavoidable']:.1f} | {row['wall']:.1f} "
            f"| {row['ratio']:.2f} | {verdict} | {row['processor_ratio']:.2f} "
            f"| {row['load_before']:.1f}, {row['load_after']:.1f} |"
        )
    lines += [
        "",
        "## Beside the obvious loop",
        "",
        "A DataLoader per cell that decodes, corrupts with the fork `imagecorruptions-imaug` and normalises; the same",
        "model, batch size and workers. Measured on the 15 cells of severity 3, times five.",
        "",
        "| model | obvious, s | ours, s | factor | processor: obvious, s | ours, s | factor |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in result["cases"].items():
        lines.append(
            f"| {name} | {row['obvious_75_cells']:.0f} | {row['wall']:.1f} | {row['factor']:.1f} "
            f"| {row['obvious_75_cells_processor']:.0f} | {row['processor']:.1f} | {row['processor_factor']:.1f} |"
        )
    lines += ["", *result.get("remarks", [])]
    return "\n".join([*lines, ""])


CASES = {FREE: (64, 3), "fan_nano": (128, 2), "vit_small_patch16_224": (16, 1)}  # images, rounds


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    for name, (count, rounds) in CASES.items():
        if arguments.only in (None, name):
            yield (
                name,
                16 if arguments.quick else arguments.images or count,
                1 if arguments.quick else arguments.rounds or rounds,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, help="measure this and keep the rest of the last results")
    parser.add_argument("--images", type=int, help="how many, instead of each case's own number")
    parser.add_argument("--rounds", type=int, help="evaluations per model, of which the median counts")
    parser.add_argument("--batches", type=int, default=8, help="forward passes that are timed")
    parser.add_argument("--quick", action="store_true", help="a short run that writes nothing")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    result = json.loads(TABLE.read_text()) if TABLE.exists() else {"cases": {}}
    result["environment"] = describe("torch", "timm", "numpy", "opencv-python-headless", "imagecorruptions-imaug")
    for name, count, rounds in chosen(arguments):
        with tempfile.TemporaryDirectory() as folder:
            held = case(name, Path(folder), count=count)
            result["cases"][name] = measure(
                held, Path(folder), rounds=rounds, batches=3 if arguments.quick else arguments.batches
            )
        print(name, {key: np.round(value, 3).tolist() for key, value in result["cases"][name].items()}, flush=True)
        if not arguments.quick:
            RESULTS.mkdir(exist_ok=True)
            TABLE.write_text(json.dumps(result, indent=2) + "\n")
            (RESULTS / "evaluation.md").write_text(page(result))


if __name__ == "__main__":
    main()
