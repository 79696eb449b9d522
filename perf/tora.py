"""What TORA costs: a phase-2 step beside adversarial training of the whole model, and the gate beside its plain form.

    python perf/tora.py [--rounds 5]

Same ViT, batch, attack and PGD steps; both steps see adversarial and clean images and end with an AdamW step. One
thread, medians of processor time measured in turn in one run; extra peak memory each in a process of its own. Writes
perf/results/tora.json and .md.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch

import holdfast
from environment import as_line, describe
from holdfast.attacks import GradientAttack
from holdfast.layers.tora_adapters import AdapterGate
from holdfast.methods import AdversarialTraining, RobustObjective, TradeOff, begin_phase
from holdfast.models.flops import measure_cost, measure_tora
from interleave import interleave
from memory import extra_peak_megabytes

RESULTS = Path(__file__).parent / "results"
SMALLER, LARGER, BATCH, PGD_STEPS = "deit_tiny_patch16_224", "deit_small_patch16_224", 2, 3
ATTACK = GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=PGD_STEPS)
METHODS = ("head-only", "single-adapter", "adapter-fusion", "tora")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", choices=["whole", *METHODS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory:
        step = training_step(arguments.memory, SMALLER)
        print(json.dumps(extra_peak_megabytes(step)))
        return
    record = {
        "environment": describe("torch", "timm"),
        "steps": {
            SMALLER: step_ratios(SMALLER, METHODS, rounds=arguments.rounds),
            LARGER: step_ratios(LARGER, ("tora",), rounds=arguments.rounds),
        },
        "megabytes": {name: megabytes(name) for name in ("whole", "tora")},
        "gate": gate_ratio(arguments.rounds),
        "costs": costs(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "tora.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "tora.md").write_text(as_markdown(record))
    print((RESULTS / "tora.md").read_text())


def training_step(name: str, architecture: str) -> Callable[[], object]:
    """A whole step: attack, forward and backward on adversarial and clean images, AdamW."""
    torch.manual_seed(0)
    model: torch.nn.Module = timm.create_model(architecture)
    weights = {"weight": 0.5, "clean_weight": 0.5}
    objective = RobustObjective(terms=[AdversarialTraining(attack=ATTACK, **weights)])
    if name != "whole":
        model = holdfast.tora(model, method=name)
        begin_phase(model, "joint")
        objective = TradeOff(0.5, attack=ATTACK)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
    images, targets = torch.rand(BATCH, 3, 224, 224), torch.arange(BATCH)

    def run() -> None:
        objective(model, images, targets).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def step_ratios(architecture: str, methods: tuple[str, ...], *, rounds: int) -> dict[str, float]:
    """Seconds of a step over those of adversarial training of the whole model."""
    names = ("whole", *methods)
    seconds = interleave(
        {name: training_step(name, architecture) for name in names}, rounds=rounds, clock=time.process_time
    )
    return {name: seconds[name] / seconds["whole"] for name in methods} | {"whole_seconds": seconds["whole"]}


def megabytes(name: str) -> float:
    command = [sys.executable, __file__, "--memory", name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def gate_ratio(rounds: int) -> dict[str, float]:
    """Forward and backward of ViT-B's gate (197 tokens, 12 heads) over the same with two maps and five projections."""
    gate = AdapterGate(768, 12)
    torch.nn.init.normal_(gate.v.weight, std=0.02)
    z, a, r = (torch.randn(2, 197, 768, requires_grad=True) for _ in range(3))

    def ours() -> None:
        both, first = gate(z, a, r)
        (both.sum() + first.sum()).backward()

    def plain() -> None:
        q = gate.split(gate.q(z))
        scores = torch.stack([q @ gate.split(gate.k(x)).transpose(-2, -1) for x in (a, r)]) * gate.scale
        gates = scores.softmax(dim=0) / 197
        acc, rob = (gate.merge(g @ gate.split(gate.v(x))) for g, x in zip(gates, (a, r), strict=True))
        ((acc + rob).sum() + acc[:, :1].sum()).backward()

    seconds = interleave({"ours": ours, "plain": plain}, rounds=4 * rounds, clock=time.process_time)
    return {"ratio": seconds["ours"] / seconds["plain"]}


def costs() -> dict[str, dict[str, float]]:
    """ViT-B/16: parameters (M) and true GMACs."""
    rows = {"ViT-B/16": measure_cost("vit_base_patch16_224")}
    rows |= {method: measure_tora("vit_base_patch16_224", method=method) for method in METHODS}
    rows["tora, token softmax"] = measure_tora("vit_base_patch16_224", gate_softmax="token")
    return {name: {"parameters_m": cost.parameters / 1e6, "gmacs": cost.gmacs} for name, cost in rows.items()}


def as_markdown(record: dict) -> str:
    memory = record["megabytes"]
    lines = [
        f"# TORA-ViT\n\n{as_line(record['environment'])} One thread, medians of processor time, measured in turn.\n",
        f"A phase-2 step (λ 0.5), batch {BATCH}, 224 px, {PGD_STEPS} PGD steps, over adversarial training of the whole "
        "model on the same images.\n",
        "| ViT | whole model, s | method | ratio |\n|---|---|---|---|",
        *(
            f"| {architecture} | {ratios['whole_seconds']:.1f} | {name} | {ratios[name]:.2f} |"
            for architecture, ratios in record["steps"].items()
            for name in METHODS
            if name in ratios
        ),
        f"\nExtra peak memory of one step of {SMALLER}: {memory['whole']:.0f} MB whole, {memory['tora']:.0f} MB TORA.",
        f"\nGate of ViT-B/16, forward and backward, over its plain form: {record['gate']['ratio']:.2f}.\n",
        "| ViT-B/16 at 224 px | params M | GMACs |\n|---|---|---|",
        *(f"| {name} | {row['parameters_m']:.1f} | {row['gmacs']:.1f} |" for name, row in record["costs"].items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
