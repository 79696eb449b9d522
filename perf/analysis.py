"""What attention stability costs at 1024 × 1024 pixels, where a head's map has 4096² values.

    python perf/analysis.py

Each model in a process of its own: the highest memory of the whole process, PyTorch included, and seconds for one
image, clean and corrupted. Writes perf/results/analysis.json and analysis.md.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import holdfast
from environment import as_line, describe
from holdfast.data import ArraySource
from memory import CLEAR, _megabytes

RESULTS = Path(__file__).parent / "results"
SIZE, THREADS, BAR = 1024, 2, 4096  # pixels, threads, MiB
MODELS = {
    "fan_tiny_8_p4_hybrid": {},
    "fan_base_16_p4_hybrid": {},
    "vit_small_patch16_224": {"img_size": SIZE},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(stability(arguments.one)))
        return
    measured = {}
    for name in MODELS:
        done = subprocess.run([sys.executable, __file__, "--one", name], check=True, capture_output=True, text=True)
        measured[name] = json.loads(done.stdout)
    environment = describe("torch", "timm")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "analysis.json").write_text(
        json.dumps({"environment": environment, "models": measured}, indent=1) + "\n"
    )
    (RESULTS / "analysis.md").write_text(as_markdown(measured, as_line(environment)))
    print((RESULTS / "analysis.md").read_text())


def stability(name: str) -> dict[str, float]:
    """Peak memory of the process (MiB) and seconds of one stability analysis of one image."""
    torch.set_num_threads(THREADS)
    model = timm.create_model(name, **MODELS[name]).eval()
    photograph = np.array(Image.fromarray(load_sample_image("china.jpg")).resize((SIZE, SIZE)))[None]
    source = ArraySource("photograph", photograph, np.zeros(1, np.int64), ("china",), np.arange(1))
    CLEAR.write_text("5")
    start = time.perf_counter()
    result = holdfast.analyze(model, source, "stability", size=SIZE, batch_size=1).results["stability"]
    seconds = time.perf_counter() - start
    layers = result.header["layers"]
    whole = sum(layer["heads"] * layer["tokens"] ** 2 for layer in layers) * 4 * 2 / 2**20
    return {
        "tokens": layers[0]["tokens"],
        "layers": len(layers),
        "heads": layers[0]["heads"],
        "megabytes": _megabytes("VmHWM"),
        "megabytes_of_all_maps": whole,
        "seconds": seconds,
    }


def as_markdown(measured: dict[str, dict[str, float]], environment: str) -> str:
    lines = [
        f"# Attention stability at {SIZE} × {SIZE}\n",
        "One image, clean and corrupted; the highest memory of the whole process, PyTorch included. The last column is "
        "what both passes' maps would take if all were kept at once. The machine was busy with other work: do not read "
        f"the seconds as speed. {environment}\n",
        "| model | tokens | layers × heads | peak MiB | at most | seconds | all maps, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in measured.items():
        shape = f"{row['layers']:.0f} × {row['heads']:.0f}"
        lines.append(
            f"| {name} | {row['tokens']:.0f} | {shape} | {row['megabytes']:.0f} | {BAR} | {row['seconds']:.0f} | "
            f"{row['megabytes_of_all_maps']:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
