"""How far does TAP start from the identity, and how far does fine-tuning take it?

    python studies/measure_tap.py --plain studies/imagenette-pretrained/runs/plain/seed0 \
        --tap studies/imagenette-pretrained/runs/{TAP+ADL,TAP}/seed0 --data folder:data/imagenette/test

Per block the mean share of itself that a token takes: where TAP has just been put into a classifier that was fine-tuned
without it, and in those that were fine-tuned with it; and how far putting it in moves the first one's logits. CSV.
"""

import argparse
import csv
import sys
from pathlib import Path

import timm
import torch
from measure_adversary import normalised
from torch import Tensor, nn
from train_adversary import pixels

import holdfast


def main() -> None:
    """Measure both models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plain", required=True, type=Path, help="a fine-tuned classifier")
    parser.add_argument("--tap", required=True, type=Path, nargs="+", help="those fine-tuned with tap-identity")
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, default=100)
    arguments = parser.parse_args()
    plain, *tuned = (
        timm.create_model(f"local-dir:{run}", pretrained=True).eval() for run in (arguments.plain, *arguments.tap)
    )
    _, images, *_ = normalised(plain, pixels(arguments.data, plain, arguments.images))
    with torch.no_grad():
        logits = plain(images)
        holdfast.add_tap(plain, kind="tap-identity")
        moved = plain(images) - logits
        shares = zip(*(identity_shares(model, images) for model in (plain, *tuned)), strict=True)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["block", "at the start", *(run.parent.name for run in arguments.tap)])
    table.writerows([number, *(f"{share:.3f}" for share in block)] for number, block in enumerate(shares, 1))
    changed = int(((logits + moved).argmax(1) != logits.argmax(1)).sum())
    print(
        f"putting TAP in moves a logit by {moved.abs().mean():.3f} in the mean and {moved.abs().max():.2f} at most "
        f"(their deviation is {logits.std():.2f}) and changes {changed} of {len(images)} answers",
        file=sys.stderr,
    )


def identity_shares(model: nn.Module, images: Tensor) -> list[float]:
    """How much of itself a token takes in every block, mean over tokens and images."""
    with holdfast.watch(model) as seen:
        model(images)
    return [float(weights[:, 0].mean()) for weights in seen.tap_weights()]


if __name__ == "__main__":
    main()
