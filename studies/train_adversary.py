"""What makes AFAT's corruption model stronger than chance? It alone is trained, against a model that stands still.

    python studies/train_adversary.py --run studies/imagenette-pretrained/runs/plain/seed0 \
        --train 'folder:data/imagenette/train[0::2]' --held 'folder:data/imagenette/train[1::2]'

As many steps as a short fine-tuning has, in bfloat16, with the released settings and with others; then the alignment
error (AFAT, Eq. 2) on held-out images of the patches that it chooses, against random ones, the worst of 16 random
choices and rules that learn nothing.
Writes docs/measured/adversary.csv line by line, and goes on where it was.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import timm
import torch
from measure_adversary import RATIO, Setting, errors, normalised, random_errors
from PIL import Image
from torch import Tensor, nn

import holdfast
from holdfast.attacks.patch_selection import attention_received_by_patches
from holdfast.data import open_data
from holdfast.evaluation.plan import limit_rows
from holdfast.methods.afat import AfatSettings, FeatureAlignment, alignment, corruptor_for, occlude
from holdfast.models.corruption_model import select_lowest

OUT = Path(__file__).parents[1] / "docs" / "measured" / "adversary.csv"
HEAD = ["settings", "updates per batch", "random", "worst of 16", "chosen", "stronger than random", "processor min"]
BATCH = 16
# name: settings of AFAT that are not the release's, updates per batch, optimizer instead of the release's SGD
WAYS: dict[str, tuple[dict, int, type[torch.optim.Optimizer] | None]] = {
    "untrained": ({}, 0, None),
    "released": ({}, 1, None),
    "lr 1": ({"lr": 1.0}, 1, None),
    "lr 1e-2 without clamp": ({"lr": 1e-2, "grad_scale": 1.0, "clip": 1e9}, 1, None),
    "Adam lr 1e-2": ({"lr": 1e-2}, 1, torch.optim.Adam),
    "Adam lr 1e-2 without clamp": ({"lr": 1e-2, "grad_scale": 1.0, "clip": 1e9}, 1, torch.optim.Adam),
    "convolutions Adam lr 1e-2": ({"lr": 1e-2, "corruptor": "conv"}, 1, torch.optim.Adam),
    "lr 10": ({"lr": 10.0}, 1, None),
    "lr 1 four times": ({"lr": 1.0}, 4, None),
}


def texture(model: nn.Module, images: Tensor) -> Tensor:
    """How much the pixels of every patch differ, (B, 1, rows, columns)."""
    patch = model.patch_embed.patch_size
    patches = images.unfold(2, patch[0], patch[0]).unfold(3, patch[1], patch[1])
    return patches.std(dim=(1, 4, 5)).unsqueeze(1)


def gradient(model: nn.Module, images: Tensor) -> Tensor:
    """How much the alignment error of random patches would grow by covering each patch, to first order.

    That is what the corruption model learns from: the gradient of the mask, here of four random choices.
    """
    torch.manual_seed(0)
    _, _, low, high = normalised(model, images)
    rows, columns = (side // patch for side, patch in zip(images.shape[-2:], model.patch_embed.patch_size, strict=True))
    total = torch.zeros(len(images), 1, rows, columns)
    for some, part in zip(images.split(BATCH), total.split(BATCH), strict=True):
        clean = features(model, some)
        for _ in range(4):
            keep = select_lowest(torch.rand(len(some), rows * columns), RATIO).view_as(part).requires_grad_()
            occluded = occlude(some, keep, torch.rand_like(some), low=low, high=high)
            loss, _ = alignment(features(model, occluded), clean)
            part.sub_(torch.autograd.grad(loss, keep)[0])
    return total


def features(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The outputs of all blocks."""
    with half(), holdfast.watch(model) as seen:
        model(images)
    return list(seen.features)


def half() -> torch.autocast:
    """Half precision, as the studies of Imagenette train in."""
    return torch.autocast("cpu", dtype=torch.bfloat16)


RULES: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {  # nothing is learnt: the highest are covered
    "the most texture": texture,
    "the most attention": attention_received_by_patches,
    "where the gradient says that it hurts": gradient,
    "where the gradient says that it helps": lambda model, images: -gradient(model, images),
    "where the gradient is largest": lambda model, images: gradient(model, images).abs(),
}


def main() -> None:
    """Measure what is missing, line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path, help="a fine-tuned classifier's run")
    parser.add_argument("--train", required=True, help="data that it learnt from")
    parser.add_argument("--held", required=True, help="data that it did not")
    parser.add_argument("--steps", type=int, default=141, help="as three epochs of 1,500 images in batches of 32 have")
    parser.add_argument("--images", type=int, default=120, help="held-out images")
    parser.add_argument("--skip", type=int, default=0, help="leave out the images that so many would be measured on")
    parser.add_argument("--ways", help="only these, with commas between")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    wanted = arguments.ways.split(",") if arguments.ways else [*RULES, *WAYS]
    model = timm.create_model(f"local-dir:{arguments.run}", pretrained=True).eval().requires_grad_(False)
    learnt = pixels(arguments.train, model, arguments.steps * BATCH)
    setting = normalised(model, pixels(arguments.held, model, arguments.images, skip=arguments.skip))
    with half():
        chance, worst = random_errors(setting)
    done = [line.split(",")[0] for line in arguments.out.read_text().splitlines()] if arguments.out.is_file() else []
    with arguments.out.open("a", newline="") as file:
        table = csv.writer(file, lineterminator="\n")  # names have no commas: others split these lines at them
        if not done:
            table.writerow(HEAD)
        for name in (name for name in wanted if name not in done):
            began = time.process_time()
            if name in RULES:
                scores = RULES[name](model, setting[1])
                keep = select_lowest(-scores.flatten(1), RATIO).view_as(scores)
            else:
                keep = trained(name, model, learnt, steps=arguments.steps).keep(setting[1], RATIO).detach()
            chosen = error_of(keep, setting)
            stronger = 100 * (chosen / chance - 1)
            minutes = (time.process_time() - began) / 60
            figures = [f"{value:.4f}" for value in (chance, worst, chosen)]
            table.writerow(
                [name, WAYS[name][1] if name in WAYS else "", *figures, f"{stronger:+.0f} %", f"{minutes:.1f}"]
            )
            file.flush()


def pixels(spec: str, model: nn.Module, count: int, *, skip: int = 0) -> Tensor:
    """Images in the model's size, (N, 3, H, W) in [0, 1]; again from the first one where there are too few."""
    source, (_, height, width) = open_data(spec), model.pretrained_cfg["input_size"]
    ids, targets = [source.id(n) for n in range(len(source))], np.asarray(source.targets)
    numbers = limit_rows(ids, targets, min(count + skip, len(source)))
    if skip:
        numbers = np.setdiff1d(numbers, limit_rows(ids, targets, skip))
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))
    pictures = [Image.fromarray(np.asarray(source.image(numbers[int(n)]))).resize((width, height)) for n in order]
    stacked = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures])).permute(0, 3, 1, 2) / 255
    return stacked.repeat(-(-count // len(stacked)), 1, 1, 1)[:count]


def trained(name: str, model: nn.Module, images: Tensor, *, steps: int) -> nn.Module:
    """A corruption model that has played against the model, which does not answer."""
    options, updates, optimizer = WAYS[name]
    torch.manual_seed(0)
    settings = AfatSettings(weight=0.01, ratio=RATIO, **options)
    corruptor = corruptor_for(model, tuple(images.shape[-2:]), kind=settings.corruptor)
    config = model.pretrained_cfg
    term = FeatureAlignment(corruptor, settings, mean=config["mean"], std=config["std"])
    if optimizer is not None:
        term.optimizer = optimizer(corruptor.parameters(), lr=settings.lr)
    _, ready, *_ = normalised(model, images)
    for batch in ready[: steps * BATCH].split(BATCH) if updates else ():
        with torch.no_grad():
            clean = features(model, batch)
        for _ in range(updates):
            loss, _ = alignment(features(model, term.corrupt(batch)), clean)
            (settings.weight * loss).backward()
            term.update()
    return corruptor


@torch.no_grad()
def error_of(keep: Tensor, setting: Setting) -> float:
    """Mean alignment error of a choice of patches, over four draws of the noise."""
    torch.manual_seed(0)
    model, images, low, high = setting
    with half():
        return float(torch.stack([errors(model, images, keep, low, high) for _ in range(4)]).mean())


if __name__ == "__main__":
    main()
