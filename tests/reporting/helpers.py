"""Runs as they look on disk, with invented answers: accuracy falls with severity, by a rate that the test chooses."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import save_file

from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.metrics.scoring.classification import SCORING
from holdfast.records.header import write_header, write_images
from holdfast.records.shard_files import Unit, field_name, write_unit
from tests.records.making_records import spec_named

CORRUPTIONS = tuple(f"{kind}/{severity}" for kind in STANDARD for severity in SEVERITIES)
ALL_CELLS = ("clean", *CORRUPTIONS, "pgd5", "occlusion-random")
IMAGES = 40


def make_run(
    folder: Path,
    *,
    hold: float = 0.5,
    cells: Sequence[str] = ALL_CELLS,
    views: Sequence[str] = ("",),
    trained: bool = True,
    **header,
) -> Path:
    """A run folder; ``hold`` is the accuracy at severity 5."""
    folder.mkdir(parents=True, exist_ok=True)
    if cells:
        make_records(folder, hold=hold, cells=cells, views=views, **header)
    if trained:
        make_training(folder)
    return folder


def make_records(folder: Path, *, hold: float, cells: Sequence[str], views: Sequence[str] = ("",), **header) -> Path:
    """One record set below ``folder/records``; further keywords replace values of its header."""
    count = header.pop("count", IMAGES)
    values = {
        "fingerprint": "f" * 16,
        "model": f"run:{folder}",
        "model_fingerprint": "0123abcd",
        "data": "digits",
        "data_fingerprint": f"digits-{count}",
        "label": "on-the-fly",
        "preset": "cifar",
        "images": count,
        "classes": 10,
        "limit": None,
        "seed": 0,
        "amp": "no",
        "shard_size": 256,
        "preprocessing": {"size": [32, 32], "mean": [0.5, 0.5, 0.5]},
        "versions": {"holdfast": "0.1.0", "torch": "2.15.0"},
        "views": list(views),
        **header,
    }
    place = (
        folder
        / "records"
        / f"{str(values['data']).replace(':', '-').replace('/', '-')[:40]}-{values['data_fingerprint'][:12]}"
    )
    place.mkdir(parents=True)
    targets = np.arange(count) % 10
    write_header(place, values)
    write_images(place, [f"image/{number:04d}" for number in range(count)], targets)
    for number, cell in enumerate(cells):
        write_unit(place, _unit(cell, targets, hold=hold, views=views, seed=number))
    return place


def _unit(cell: str, targets: np.ndarray, *, hold: float, views: Sequence[str], seed: int) -> Unit:
    kind, _, severity = cell.partition("/")
    rng = np.random.default_rng([seed, abs(int(100 * hold))])
    arrays = {}
    for shift, view in enumerate(views):
        rate = 0.97 if cell == "clean" else 0.97 - (0.97 - hold) * int(severity or 3) / 5
        right = rng.random(len(targets)) < max(0.05 if hold >= 0 else 0, rate - 0.06 * shift * (cell == "clean"))
        predictions = np.where(right, targets, (targets + 1) % 10)
        values = (predictions, rng.uniform(0.3, 1, len(targets)), rng.uniform(0, 2, len(targets)), right)
        for (name, kind_of), value in zip(SCORING.fields.items(), values, strict=True):
            arrays[field_name(view, name)] = value.astype(kind_of)
    suite = "corruptions" if severity else kind
    definition = {"suite": suite, **spec_named(cell).plain()}
    header = {"cell": cell, "definition": definition, "shard": 0, "fingerprint": "f" * 16, "views": list(views)}
    return Unit(header, np.arange(len(targets)), np.empty(0, np.int64), arrays)


def make_training(folder: Path, *, model: str = "fan_nano", parameters: int = 920_000, epochs: int = 3) -> None:
    """recipe.yaml, log.jsonl and a saved model."""
    recipe = {
        "seed": 0,
        "data": {"train": "digits"},
        "model": {"name": model, "kwargs": {}},
        "train": {"epochs": epochs},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lines = []
    for epoch in range(epochs):
        for part in range(4):
            step = epoch * 40 + 10 * (part + 1)
            lines.append(
                {"event": "step", "step": step, "epoch": epoch, "lr": 0.001, "loss": 2.3 / (1 + step / 30)}
                | {"cross_entropy": 1.0, "adl": 0.5 / (1 + epoch), "images_per_s": 88.0}
            )
        lines.append({"event": "epoch", "step": (epoch + 1) * 40, "epoch": epoch, "top1": 80.0 + 5 * epoch})
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    weights = {"head.weight": np.zeros(parameters - 10, np.float32), "head.bias": np.zeros(10, np.float32)}
    save_file(weights | {"norm.running_mean": np.zeros(7, np.float32)}, folder / "model.safetensors")


def settled(page) -> None:
    """Until what a scroll has set off is over: it hides the values that a pointer shows."""
    page.evaluate(
        "new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 200))"
    )
