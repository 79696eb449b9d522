"""What robust fine-tuning costs: steps of SAM and of AugMix over a plain step, and mixing two ViT-S.

    python perf/robust_fine_tuning.py [--rounds 5] [--batch 8]

Writes perf/results/robust_fine_tuning.json and robust_fine_tuning.md, and keeps the ratios of other batches. Ratios
are of medians over rounds in which the cases take turns, in processor time, which tells more than the clock where
others use the machine as well.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import timm
import torch
from accelerate import Accelerator

import holdfast
from environment import as_line, describe
from holdfast.training.build import TrainState, build_training
from holdfast.training.loader import Batch
from holdfast.training.loop import train_step
from holdfast.training.mix import mix
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import load_recipe, to_yaml
from holdfast.training.run_folder import export_model
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
THREADS = 1
AT_MOST = {"SAM": 2.1, "AugMix with divergence": 3.1}
METHODS: dict[str, dict[str, object]] = {
    "plain": {},
    "SAM": {"optimizer": {"sam": {}}},
    "AugMix with divergence": {"objective": {"name": "robust", "options": {"augmix": {}}}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    rounds = arguments.rounds
    torch.set_num_threads(THREADS)
    file = RESULTS / "robust_fine_tuning.json"
    ratios = json.loads(file.read_text())["steps"] if file.exists() else {}
    ratios[str(arguments.batch)] = step_ratios(rounds, arguments.batch)
    with tempfile.TemporaryDirectory() as folder:
        seconds = mix_seconds(Path(folder), rounds)
    record = {"environment": describe("torch", "timm"), "rounds": rounds, "steps": ratios, "mix": seconds}
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "robust_fine_tuning.md").write_text(as_markdown(ratios, seconds, as_line(record["environment"])))
    print((RESULTS / "robust_fine_tuning.md").read_text())


def step_ratios(rounds: int, batch: int) -> dict[str, float]:
    """A step of the loop on DeiT-S over a plain one, without loading and augmenting the images."""
    images, targets = torch.randn(batch, 3, 224, 224), torch.arange(batch) % 10
    accelerator = Accelerator(cpu=True)
    steps = {
        name: one_step(build_training(recipe(values), accelerator), images, targets) for name, values in METHODS.items()
    }
    seconds = interleave(steps, rounds=rounds, clock=time.process_time)
    return {method: seconds[method] / seconds["plain"] for method in METHODS if method != "plain"}


def recipe(values: dict[str, object]) -> Recipe:
    common = {
        "data": {"train": "digits", "val": "digits", "workers": 0, "size": 224},
        "model": {"name": "deit_small_patch16_224"},
        "train": {"batch_size": 8, "device": "cpu"},
    }
    return load_recipe({**common, **values})


def one_step(stage: TrainState, images: torch.Tensor, targets: torch.Tensor) -> Callable[[], object]:
    stage.learn()
    return lambda: train_step(stage, [Batch(images.clone(), targets, [])], step=0, epoch=0)


def mix_seconds(folder: Path, rounds: int) -> dict[str, float]:
    """Mixing two finished ViT-S, everything but the start of Python and its imports."""
    for name in ("start", "tuned"):
        run = recipe({})
        (folder / name).mkdir()
        model = timm.create_model("deit_small_patch16_224", num_classes=10)
        stage = build_training(run, Accelerator(cpu=True))
        export_model(model, folder / name, recipe=stage.recipe, image=stage.image, classes=stage.classes)
        (folder / name / "recipe.yaml").write_text(to_yaml(run))
    number = iter(range(10_000))
    once = partial(mix, folder / "start", folder / "tuned")
    case = {"mix": lambda: once(out=folder / f"out-{next(number)}")}
    clocks = {"clock": time.perf_counter, "processor": time.process_time}
    return {name: interleave(case, rounds=rounds, clock=clock)["mix"] for name, clock in clocks.items()}


def as_markdown(ratios: dict[str, dict[str, float]], seconds: dict[str, float], environment: str) -> str:
    lines = [
        f"# Robust fine-tuning\n\nDeiT-S, 224 px, fp32, {THREADS} thread; medians of processor time, "
        f"measured in turn on a machine that others used at the same time. {environment}\n",
        "| training step / plain step | batch | ratio | at most |\n|---|---|---|---|",
        *(
            f"| {name} | {batch} | {ratio:.2f} | {AT_MOST[name]} |"
            for batch, found in sorted(ratios.items(), key=lambda item: int(item[0]))
            for name, ratio in found.items()
        ),
        f"\n`holdfast mix` of two of them, start-up not counted: {seconds['processor']:.2f} s of processor time, "
        f"{seconds['clock']:.2f} s by the clock (at most 1). holdfast {holdfast.__version__}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
