"""Images per second of our training loop, beside a bare PyTorch loop of the same model, batch and transforms.

    python perf/training.py [--steps 60]

One thread, no loader processes, both loops in one process and in turns: before each of our steps the bare loop makes
one of its own. What we count as ours is everything between: next batch, seeding, mixing, forward, backward, optimizer,
log. Epoch ends (accuracy, checkpoint) are not steps and not in it. The ratio is of processor time, so that a busy
machine slows both. Writes perf/results/training.json and .md.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import holdfast.training.recipe
from environment import as_line, describe
from holdfast.data import open_data
from holdfast.methods import CrossEntropy, Loss
from holdfast.training.augment.classification import ImageFormat, training_transform
from holdfast.training.recipe_files import load_recipe

RESULTS = Path(__file__).parent / "results"
BAR = 0.97
WARM_UP = 4
PLAIN: dict = {}
FULL: dict = {
    "augment": {"rand_augment": "rand-m9-mstd0.5-inc1", "erasing": 0.25, "mixup": 0.8, "cutmix": 1.0, "smoothing": 0.1},
    "train": {"ema": 0.999},
}
CASES = [("vit_nano", "plain", PLAIN), ("vit_nano", "mixup, RandAugment, EMA", FULL), ("fan_nano", "plain", PLAIN)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        {"model": model, "what": what, **measure(model, values, steps=arguments.steps, batch=arguments.batch)}
        for model, what, values in CASES
    ]
    environment = describe("torch", "timm", "accelerate")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "training.json").write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    (RESULTS / "training.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "training.md").read_text())


def measure(model: str, values: dict, *, steps: int, batch: int) -> dict[str, float]:
    """Both loops in turns; from the medians of processor time and of wall-clock per step."""
    epochs = -(-(steps + WARM_UP) // (1204 // batch))
    base = {
        "model": {"name": model},
        "data": {"workers": 0, "val_subset": 10},
        "augment": {"crop": "pad", "hflip": 0.0},
        "train": {"epochs": epochs, "batch_size": batch, "device": "cpu", "eval_epochs": epochs},
        "schedule": {"warmup_epochs": 0},
    }
    recipe = load_recipe(base, values)
    turns = InTurns(BareLoop(recipe))
    with tempfile.TemporaryDirectory() as folder:
        holdfast.train(recipe, out=folder, objective=turns, show=False)
    ours, bare = turns.medians(skip=WARM_UP)
    return {
        "batch": batch,
        "steps": len(turns.ours) - WARM_UP,
        "bare_images_per_s": batch / bare["processor"],
        "ours_images_per_s": batch / ours["processor"],
        "ratio": bare["processor"] / ours["processor"],
        "ratio_of_wall_clock": bare["wall"] / ours["wall"],
    }


class InTurns:
    """An objective that lets the bare loop make a step before each of ours, and keeps two stopwatches."""

    def __init__(self, bare: "BareLoop") -> None:
        self.bare, self.objective = bare, CrossEntropy()
        self.ours: list[dict[str, float]] = []
        self.bares: list[dict[str, float]] = []
        self._since: dict[str, float] | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Loss:
        now = clocks()
        if self._since is not None:
            self.ours.append({name: now[name] - self._since[name] for name in now})
            self.bare.step()
            after = clocks()
            self.bares.append({name: after[name] - now[name] for name in now})
        self._since = clocks()
        return self.objective(model, images, targets)

    def medians(self, *, skip: int) -> tuple[dict[str, float], ...]:
        """Seconds per step of ours and of the bare loop."""
        return tuple(
            {name: statistics.median(step[name] for step in steps[skip:]) for name in steps[0]}
            for steps in (self.ours, self.bares)
        )


def clocks() -> dict[str, float]:
    return {"wall": time.perf_counter(), "processor": time.process_time()}


class BareLoop:
    """What one writes without us: a loader, a model, AdamW, and timm's mixup and EMA where the recipe has them."""

    def __init__(self, recipe: holdfast.training.recipe.Recipe) -> None:
        cfg = timm.get_pretrained_cfg(recipe.model.name)
        image = ImageFormat(32, cfg.mean, cfg.std, "bicubic", 1.0)
        images = Images(training_transform(recipe.augment, image))
        self.loader = DataLoader(images, recipe.train.batch_size, shuffle=True, drop_last=True)
        self.batches = self.endless()
        self.model = timm.create_model(recipe.model.name, num_classes=10).train()
        self.optimizer = create_optimizer_v2(self.model, "adamw", lr=recipe.optimizer.lr, weight_decay=0.05)
        augment = recipe.augment
        self.mixup = Mixup(augment.mixup, augment.cutmix, num_classes=10) if augment.mixup else None
        self.ema = ModelEmaV3(self.model, decay=recipe.train.ema) if recipe.train.ema else None

    def endless(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.loader

    def step(self) -> None:
        images, targets = next(self.batches)
        if self.mixup is not None:
            images, targets = self.mixup(images, targets)
        loss = F.cross_entropy(self.model(images), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(self.model)


class Images(Dataset):
    def __init__(self, transform) -> None:  # noqa: ANN001
        self.source, self.transform = open_data("digits", split="train"), transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.source.image(index)), int(self.source.targets[index])


def as_markdown(rows: list[dict], environment: str) -> str:
    lines = [
        "# Training: our loop beside a bare PyTorch loop",
        "",
        environment,
        "",
        "One thread, 32-px images loaded in the same process, a step each in turns, medians of processor time. The",
        "bare loop has the same transforms, optimizer and (second row) mixup and EMA.",
        f"Bar: at least {BAR} of its images per second.",
        "",
        "| model | recipe | batch | steps | bare, images/s | ours, images/s | ratio | ratio, wall-clock | bar |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        met = "met" if row["ratio"] >= BAR else "missed"
        lines.append(
            f"| {row['model']} | {row['what']} | {row['batch']} | {row['steps']} | {row['bare_images_per_s']:.1f} | "
            f"{row['ours_images_per_s']:.1f} | {row['ratio']:.3f} | {row['ratio_of_wall_clock']:.3f} | {met} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
