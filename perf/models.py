"""Speed and memory of the backbones, as ratios measured in turn in one run.

    python perf/models.py [--rounds 9]

Writes perf/results/models.json and models.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from torch import Tensor, nn

import holdfast  # noqa: F401 - registers our models
from environment import as_line, describe
from holdfast.models.fan import TokenAttention
from interleave import interleave
from memory import extra_peak_megabytes

RESULTS = Path(__file__).parent / "results"
BATCH, THREADS = 8, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peak-memory", metavar="CHANNEL_ATTENTION", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.peak_memory:
        print(json.dumps(training_memory(arguments.peak_memory)))
        return
    rows = [
        *against("fan_tiny_8_p4_hybrid", "convnext_tiny", rounds=arguments.rounds, bar=1.0),
        *against("fan_tiny_12_p16_224", "deit_tiny_patch16_224", rounds=arguments.rounds),
        *fused_against_explicit(rounds=arguments.rounds),
        *tap_overhead(rounds=arguments.rounds),
        *memory_of_channel_attentions(),
    ]
    environment = describe("torch", "timm", "numpy")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "models.json").write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    (RESULTS / "models.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "models.md").read_text())


def images(size: int = 224, *, channels_last: bool) -> Tensor:
    x = torch.randn(BATCH, 3, size, size)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x


def forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return model.eval()(x)

    return run


def training_step(model: nn.Module, x: Tensor) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    targets = torch.arange(BATCH) % 10

    def run() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.train()(x), targets).backward()
        optimizer.step()

    return run


def against(ours: str, theirs: str, *, rounds: int, bar: float | None = None) -> list[dict[str, object]]:
    """Our model against timm's, each in the memory format in which it is faster."""
    rows = []
    for what, runner in {"forward": forward, "training step": training_step}.items():
        cases = {}
        for name in (ours, theirs):
            for channels_last in (False, True):
                model = timm.create_model(name)
                if channels_last:
                    model = model.to(memory_format=torch.channels_last)
                cases[f"{name}/{channels_last}"] = runner(model, images(channels_last=channels_last))
        seconds = interleave(cases, rounds=rounds)
        best = {name: min(seconds[f"{name}/False"], seconds[f"{name}/True"]) for name in (ours, theirs)}
        rows.append(row(f"{ours} / {theirs}", what, best[ours] / best[theirs], bar, seconds=seconds))
    return rows


class ExplicitAttention(TokenAttention):
    """The same attention with its map written out."""

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        maps = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
        return self.proj((maps @ v).transpose(1, 2).flatten(2))


def fused_against_explicit(*, rounds: int) -> list[dict[str, object]]:
    """What looking at the maps would cost if the model had to write them out."""
    rows = []
    for side in (14, 32):
        x = torch.randn(BATCH, side * side, 384)
        cases = {name: attention_pass(kind(384, 8), x, side) for name, kind in ATTENTIONS.items()}
        seconds = interleave(cases, rounds=rounds)
        rows.append(
            row("fused / explicit attention", f"{side * side} tokens", seconds["fused"] / seconds["explicit"], None)
        )
    return rows


ATTENTIONS = {"fused": TokenAttention, "explicit": ExplicitAttention}


def attention_pass(attention: nn.Module, x: Tensor, side: int) -> Callable[[], object]:
    def run() -> None:
        attention(x, side, side).sum().backward()

    return run


def tap_overhead(*, rounds: int) -> list[dict[str, object]]:
    """FAN with TAP against FAN without."""
    x = images(channels_last=True)
    plain, pooled = timm.create_model("fan_base_16_p4_hybrid"), timm.create_model("tap_fan_base_16_p4_hybrid")
    seconds = interleave({"plain": forward(plain, x), "tap": forward(pooled, x)}, rounds=rounds)
    rows = [row("FAN-B-Hybrid with / without TAP", "forward", seconds["tap"] / seconds["plain"], 1.05)]
    plain, pooled = timm.create_model("fan_tiny_8_p4_hybrid"), timm.create_model("tap_fan_tiny_8_p4_hybrid")
    seconds = interleave({"plain": training_step(plain, x), "tap": training_step(pooled, x)}, rounds=rounds)
    rows.append(row("FAN-T-Hybrid with / without TAP", "training step", seconds["tap"] / seconds["plain"], None))
    return rows


def memory_of_channel_attentions() -> list[dict[str, object]]:
    """Peak memory of a training step of FAN-S-ViT, each design in a process of its own, against eca."""
    megabytes = {}
    for design in ("eca", "se", "ca"):
        command = [sys.executable, __file__, "--peak-memory", design]
        megabytes[design] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [
        row(
            f"FAN-S-ViT {design} / eca",
            f"peak memory, {megabytes[design]:.0f} MB",
            megabytes[design] / megabytes["eca"],
            None,
        )
        for design in ("se", "ca")
    ]


def training_memory(design: str) -> float:
    """Megabytes that one step adds to the peak of a process that holds model and images."""
    model = timm.create_model("fan_small_12_p16_224", channel_attention=design)
    return extra_peak_megabytes(training_step(model, images(channels_last=False)))


def row(what: str, how: str, ratio: float, bar: float | None, **more: object) -> dict[str, object]:
    return {"what": what, "how": how, "ratio": round(ratio, 3), "bar": bar, **more}


def as_markdown(rows: list[dict[str, object]], environment: str) -> str:
    lines = [
        f"# Backbones\n\nRatios of medians measured in turn in one run, batch {BATCH} at 224 px, fp32. {environment}\n",
        "| what | how | ratio | at most |\n|---|---|---|---|",
        *(f"| {r['what']} | {r['how']} | {r['ratio']:.2f} | {r['bar'] or '–'} |" for r in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
