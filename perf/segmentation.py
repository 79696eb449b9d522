"""The folded SegFormer head against the plain one, as ratios measured in turn in one run; memory of an evaluation.

    python perf/segmentation.py [--rounds 9]

Writes perf/results/segmentation.json and segmentation.md.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import holdfast
from environment import as_line, describe
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
ENCODER, SIZE, BAR = "fan_tiny_8_p4_hybrid", 512, 5.0
MEMORY_BAR = 3072  # MiB, FAN-T at 1024×2048 in windows of 1024²


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peak-memory", choices=["evaluation", "corruption"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peak_memory:
        print(json.dumps(evaluation_memory() if arguments.peak_memory == "evaluation" else corruption_memory()))
        return
    rows = [*head_ratios(rounds=arguments.rounds), memory_row()]
    environment = describe("torch", "timm", "numpy")
    (RESULTS / "segmentation.json").write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    (RESULTS / "segmentation.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "segmentation.md").read_text())


def plain_fuse(head: nn.Module, maps: list[Tensor]) -> Tensor:
    """What enters the batch norm, computed as printed."""
    finest = maps[0].shape[-2:]
    parts = []
    for number, one in enumerate(maps, start=1):
        projected = getattr(head, f"linear_c{number}").proj(one.flatten(2).transpose(1, 2))
        projected = projected.transpose(1, 2).unflatten(2, one.shape[-2:])
        parts.append(F.interpolate(projected, size=finest, mode="bilinear", align_corners=False))
    return head.linear_fuse.conv(torch.cat(parts[::-1], dim=1))


def head_ratios(*, rounds: int) -> list[dict[str, object]]:
    """Everything in front of the batch norm: the rest is the same."""
    model = holdfast.segmenter(ENCODER)
    with torch.no_grad():
        maps = model.eval().features(torch.randn(1, 3, SIZE, SIZE))
    head = model.decode_head
    ways: dict[str, Callable[[list[Tensor]], Tensor]] = {
        "folded": head.fuse,
        "plain": lambda maps: plain_fuse(head, maps),
    }
    rows = []
    for what in ("forward", "forward and backward"):
        cases = {name: runner(compute, maps, backward=what != "forward") for name, compute in ways.items()}
        seconds = interleave(cases, rounds=rounds, clock=time.process_time)
        ratio = seconds["plain"] / seconds["folded"]
        rows.append({"what": f"head of {ENCODER}, {SIZE}², {what}", **seconds, "ratio": ratio, "bar": BAR})
    return rows


def runner(compute: Callable[[list[Tensor]], Tensor], maps: list[Tensor], *, backward: bool) -> Callable[[], object]:
    def run() -> None:
        with torch.set_grad_enabled(backward):
            fused = compute([one.detach().requires_grad_(backward) for one in maps])
            if backward:
                fused.sum().backward()

    return run


def memory_row() -> dict[str, object]:
    """An evaluation with a worker, and what corrupting an image of that size adds to the worker at most."""
    peaks = {}
    for what in ("evaluation", "corruption"):
        command = [sys.executable, __file__, "--peak-memory", what]
        peaks[what] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    what = f"peak memory of an evaluation of {ENCODER}, 1024×2048, windows of 1024², one worker (MiB)"
    return {"what": what, "peak": sum(peaks.values()), "parts": peaks, "bar": MEMORY_BAR}


def evaluation_memory() -> float:
    """Peak of this process plus that of its worker, which shares most of its pages with it."""
    model = holdfast.segmenter(ENCODER, num_classes=11, window=1024, stride=768)
    holdfast.evaluate(model, "scenes:test,1024x2048,2", "clean", workers=1, show=False)
    own, workers = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + workers) / 1024


def corruption_memory() -> float:
    """What the hungriest of the 16 kinds takes beyond the image itself."""
    from holdfast.corruptions import corrupt_batch
    from holdfast.metrics.iou import KINDS

    image = np.random.default_rng(0).integers(0, 256, (1024, 2048, 3), dtype=np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kind in KINDS:
        corrupt_batch([image], kind, ids=["a"], severity=5, preset="any", seed=0)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def as_markdown(rows: list[dict[str, object]], environment: str) -> str:
    lines = ["# Segmentation", "", environment, "One thread, processor seconds, medians of rounds in turn.", ""]
    lines += ["| what | plain | folded | ratio | bar |", "|---|---|---|---|---|"]
    for row in rows:
        if "ratio" in row:
            seconds = f"{row['plain']:.3f} s | {row['folded']:.3f} s"
            lines.append(f"| {row['what']} | {seconds} | {row['ratio']:.1f} | ≥ {row['bar']} |")
        else:
            lines.append(f"| {row['what']} | | {row['peak']:.0f} | | ≤ {row['bar']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
