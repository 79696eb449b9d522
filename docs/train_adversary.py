"""What makes AFAT's corruption model stronger than chance? It alone is trained, against a model that stands still.

    python docs/train_adversary.py --run studies/imagenette-pretrained/runs/plain/seed0 \
        --train 'folder:data/imagenette/train[0::2]' --held 'folder:data/imagenette/train[1::2]'

As many steps as a short fine-tuning has, with the released settings and with others; then the alignment error (AFAT,
Eq. 2) on held-out images of the patches that it chooses, against random ones and the worst of 16 random choices.
Writes docs/measured/adversary.csv line by line, and goes on where it was.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import timm
import torch
from measure_adversary import RATIO, Setting, errors, normalised, random_errors
from PIL import Image
from torch import Tensor, nn

import holdfast
from holdfast.data import open_data
from holdfast.evaluation.cells import limited
from holdfast.methods.afat import AfatSettings, FeatureAlignment, alignment, corruptor_for

OUT = Path(__file__).parent / "measured" / "adversary.csv"
HEAD = ["settings", "updates per batch", "random", "worst of 16", "chosen", "stronger than random", "processor min"]
BATCH = 16
# name: settings of AFAT that are not the release's, updates per batch, optimizer instead of the release's SGD
WAYS: dict[str, tuple[dict, int, type[torch.optim.Optimizer] | None]] = {
    "released": ({}, 1, None),
    "lr 1e-2": ({"lr": 1e-2}, 1, None),
    "lr 1": ({"lr": 1.0}, 1, None),
    "lr 1e-2 without clamp": ({"lr": 1e-2, "grad_scale": 1.0, "clip": 1e9}, 1, None),
    "lr 1 without weight decay": ({"lr": 1.0, "weight_decay": 0.0}, 1, None),
    "Adam lr 1e-3": ({"lr": 1e-3}, 1, torch.optim.Adam),
    "Adam lr 1e-2": ({"lr": 1e-2}, 1, torch.optim.Adam),
    "Adam lr 1e-3 four times": ({"lr": 1e-3}, 4, torch.optim.Adam),
    "convolutions Adam lr 1e-3": ({"lr": 1e-3, "corruptor": "conv"}, 1, torch.optim.Adam),
    "convolutions Adam lr 1e-2": ({"lr": 1e-2, "corruptor": "conv"}, 1, torch.optim.Adam),
}


def main() -> None:
    """Measure what is missing, line by line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path, help="a fine-tuned classifier's run")
    parser.add_argument("--train", required=True, help="data that it learnt from")
    parser.add_argument("--held", required=True, help="data that it did not")
    parser.add_argument("--steps", type=int, default=141, help="as three epochs of 1,500 images in batches of 32 have")
    parser.add_argument("--images", type=int, default=120, help="held-out images")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    model = timm.create_model(f"local-dir:{arguments.run}", pretrained=True).eval().requires_grad_(False)
    learnt = pixels(arguments.train, model, arguments.steps * BATCH)
    setting = normalised(model, pixels(arguments.held, model, arguments.images))
    chance, worst = random_errors(setting)
    done = [line.split(",")[0] for line in arguments.out.read_text().splitlines()] if arguments.out.is_file() else []
    with arguments.out.open("a", newline="") as file:
        table = csv.writer(file, lineterminator="\n")  # names have no commas: others split these lines at them
        if not done:
            table.writerow(HEAD)
        for name in (name for name in WAYS if name not in done):
            began = time.process_time()
            chosen = error_of(trained(name, model, learnt, steps=arguments.steps), setting)
            stronger = 100 * (chosen / chance - 1)
            minutes = (time.process_time() - began) / 60
            figures = [f"{value:.4f}" for value in (chance, worst, chosen)]
            table.writerow([name, WAYS[name][1], *figures, f"{stronger:+.0f} %", f"{minutes:.1f}"])
            file.flush()


def pixels(spec: str, model: nn.Module, count: int) -> Tensor:
    """Images in the model's size, (N, 3, H, W) in [0, 1]; again from the first one where there are too few."""
    source, (_, height, width) = open_data(spec), model.pretrained_cfg["input_size"]
    numbers = limited([source.id(n) for n in range(len(source))], np.asarray(source.targets), min(count, len(source)))
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
    for batch in ready[: steps * BATCH].split(BATCH):
        with holdfast.watch(model) as seen, torch.no_grad():
            model(batch)
        clean = list(seen.features)
        for _ in range(updates):
            with holdfast.watch(model) as seen:
                model(term.corrupt(batch))
            loss, _ = alignment(list(seen.features), clean)
            (settings.weight * loss).backward()
            term.update()
    return corruptor


@torch.no_grad()
def error_of(corruptor: nn.Module, setting: Setting) -> float:
    """Mean alignment error of the patches that it chooses, over four draws of the noise."""
    torch.manual_seed(0)
    model, images, low, high = setting
    keep = corruptor.keep(images, RATIO)
    return float(torch.stack([errors(model, images, keep, low, high) for _ in range(4)]).mean())


if __name__ == "__main__":
    main()
