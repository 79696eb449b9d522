"""What one image costs, by suite and by model, in processor seconds of one core; writes results/costs.json.

    python perf/costs.py [--only NAME …] [--quick]

Three minutes on an idle core. It is what `--dry-run` measures: the making of all cells of a suite from one image, the
model's look at one image, an attack on one. Photographs of ImageNet's usual size; scenes of Cityscapes' and COCO's.
Random weights: how good a model is does not matter here. docs/tools/make_how_long.py makes the page's tables from it.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from torch import nn

import holdfast
from environment import describe
from evaluation import photographs
from holdfast.evaluation.dry_run import costs_of
from holdfast.evaluation.setup import EvaluationRequest, prepare_evaluation

TABLE = Path(__file__).parent / "results" / "costs.json"
PHOTOGRAPHS = "photographs"
MODELS = ("deit_tiny_patch16_224", "deit_small_patch16_224", "deit_base_patch16_224")
MODELS += ("fan_tiny_8_p4_hybrid", "fan_base_16_p4_hybrid")
CITY, COCO = "scenes:test,1024x2048,2", "scene-objects:test,480x640,2"


def classifier(name: str) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=10)


# name -> model, data, suite; what is taken of it
CASES: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    **{name: (classifier(name), PHOTOGRAPHS, "clean") for name in MODELS},
    **{suite: (classifier(MODELS[0]), PHOTOGRAPHS, suite) for suite in ("corruptions", "perturbations")},
    **{suite: (classifier(MODELS[0]), PHOTOGRAPHS, suite) for suite in ("fgsm", "pgd5", "occlusion-random")},
    "vit_nano, 32 px": (classifier("vit_nano"), "digits:test", "corruptions"),
    "SegFormer head on FAN-T-Hybrid, 1024×2048": (
        lambda: holdfast.segmenter("fan_tiny_8_p4_hybrid", num_classes=11),
        CITY,
        "cityscapes-c",
    ),
    "Mask R-CNN on FAN-T-Hybrid, 480×640": (
        lambda: holdfast.detector("fan_tiny_8_p4_hybrid", "mask", num_classes=10),
        COCO,
        "coco-c",
    ),
}


def measured(name: str, folder: Path) -> dict[str, object]:
    build, data, suite = CASES[name]
    torch.manual_seed(0)
    spec = f"folder:{folder / 'images'}" if data == PHOTOGRAPHS else data
    with prepare_evaluation(EvaluationRequest(build().eval(), spec, suite, out=folder / "out", workers=0)) as prepared:
        costs = costs_of(prepared)
        cells = len(prepared.work.plan.cells)
    return {
        "suite": suite,
        "cells": cells,
        "making": costs.making.processor,
        "looking": costs.looking.processor,
        "attacking": costs.attacking.processor,
        "at_least": costs.at_least,
        "bytes": costs.row_bytes,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, help="measure these and keep the rest")
    parser.add_argument("--quick", action="store_true", help="one case, and nothing is written")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = json.loads(TABLE.read_text()) if TABLE.exists() else {"cases": {}}
    result["environment"] = describe("torch", "timm", "numpy", "opencv-python-headless")
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder) / "images", 16)
        for name in arguments.only or (["fgsm"] if arguments.quick else CASES):
            result["cases"][name] = measured(name, Path(folder))
            print(name, result["cases"][name], flush=True)
            if not arguments.quick:
                TABLE.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
