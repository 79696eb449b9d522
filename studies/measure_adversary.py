"""How strong is AFAT's corruption model? The alignment error of the patches it chooses, against random ones.

    python studies/measure_adversary.py --data npz:data/cifar10_test.npz studies/cifar10-main/runs/AFAT/seed0 …

Per run: the error (AFAT, Eq. 2) under random patches, under the worst of 16 random choices for every image, and, where
the run has one, under the choice of its corruption model; over how many patches that choice spreads (the exponential of
the entropy of how often each is chosen). Images must have the model's size. Prints a Markdown table.
"""

import argparse
from pathlib import Path

import numpy as np
import timm
import torch
from torch import Tensor, nn

import holdfast
from holdfast.data import open_data
from holdfast.evaluation.plan import limit_rows
from holdfast.methods.afat import occlude
from holdfast.models.corruption_model import load_corruptor, select_lowest

RATIO, TRIES = 0.1, 16


def main() -> None:
    """Measure every run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=256)
    arguments = parser.parse_args()
    source = open_data(arguments.data, split="test")
    numbers = limit_rows([source.id(n) for n in range(len(source))], np.asarray(source.targets), arguments.images)
    pixels = torch.from_numpy(np.stack([np.asarray(source.image(n)) for n in numbers])).permute(0, 3, 1, 2) / 255
    print("| run | random | worst of 16 random | corruption model | patches it uses |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for run in arguments.runs:
        setting = load(run, pixels)
        cells = [f"{value:.3f}" for value in random_errors(setting)] + chosen(run, setting)
        print(f"| {run} | {' | '.join(cells)} |", flush=True)


Setting = tuple[nn.Module, Tensor, Tensor, Tensor]


def load(run: Path, pixels: Tensor) -> Setting:
    """The model, the normalised images, and what black and white are in their space."""
    return normalised(timm.create_model(f"local-dir:{run}", pretrained=True).eval(), pixels)


def normalised(model: nn.Module, pixels: Tensor) -> Setting:
    """The model, its images, and what black and white are among them."""
    mean, std = (torch.tensor(model.pretrained_cfg[name]).view(-1, 1, 1) for name in ("mean", "std"))
    return model, (pixels - mean) / std, -mean / std, (1 - mean) / std


@torch.no_grad()
def errors(model: nn.Module, images: Tensor, keep: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The alignment error of every image, (B,)."""
    occluded = occlude(images, keep, torch.rand_like(images), low=low, high=high)
    with holdfast.watch(model) as seen:
        model(torch.cat([occluded, images]))
    halves = [feature.chunk(2) for feature in seen.features]
    return torch.stack([(a - b).pow(2).flatten(1).mean(1) for a, b in halves]).mean(0)


def random_errors(setting: Setting) -> tuple[float, float]:
    """Mean error under random patches, and under each image's worst of several choices."""
    torch.manual_seed(0)
    model, images, low, high = setting
    with holdfast.watch(model) as seen, torch.no_grad():
        model(images[:1])
    rows, columns = seen.attention[0].grid
    keeps = (select_lowest(torch.rand(len(images), rows * columns), RATIO) for _ in range(TRIES))
    tried = torch.stack([errors(model, images, keep.unflatten(1, (1, rows, columns)), low, high) for keep in keeps])
    return float(tried.mean()), float(tried.max(dim=0).values.mean())


def chosen(run: Path, setting: Setting) -> list[str]:
    """Mean error under the corruption model's patches, and over how many patches it spreads."""
    if not (run / "corruptor.safetensors").is_file():
        return ["–", "–"]
    torch.manual_seed(0)
    model, images, low, high = setting
    with torch.no_grad():
        keep = load_corruptor(run / "corruptor.safetensors").keep(images, RATIO)
    often = (1 - keep).flatten(1).mean(0)
    shares = often / often.sum()
    spread = torch.exp(-torch.special.xlogy(shares, shares).sum())
    mean = torch.stack([errors(model, images, keep, low, high) for _ in range(4)]).mean()
    return [f"{mean:.3f}", f"{spread:.0f} of {keep[0].numel()}"]


if __name__ == "__main__":
    main()
