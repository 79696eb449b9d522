"""What the robust methods cost, as ratios measured in turn in one run.

    python perf/methods.py [--rounds 5]

Writes perf/results/methods.json and methods.md.
"""

import argparse
import copy
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from timm.utils import ModelEmaV3

import holdfast  # noqa: F401 - registers our models
from environment import as_line, describe
from holdfast.attention import AttentionHandle
from holdfast.methods import AttentionDiversification, CrossEntropy, FeatureAlignment, RobustObjective, corruptor_for
from holdfast.methods.adl import layer_diversification
from interleave import interleave
from memory import extra_peak_megabytes

RESULTS = Path(__file__).parent / "results"
BATCH, THREADS = 8, 2
TOKENS = (196, 1024, 4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--adl-step", nargs=2, metavar=("FORM", "TOKENS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.adl_step:
        print(json.dumps(adl_step(arguments.adl_step[0], int(arguments.adl_step[1]))))
        return
    steps, adl = step_ratios(arguments.rounds), adl_costs()
    environment = describe("torch", "timm")
    RESULTS.mkdir(exist_ok=True)
    record = {"environment": environment, "steps": steps, "adl": adl}
    (RESULTS / "methods.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "methods.md").write_text(as_markdown(steps, adl, as_line(environment)))
    print((RESULTS / "methods.md").read_text())


def step_ratios(rounds: int) -> dict[str, float]:
    """A full training step (both optimizers, EMA) of FAN-T-Hybrid with each method, over one with cross-entropy."""
    model = timm.create_model("fan_tiny_8_p4_hybrid")
    objectives = {
        "cross-entropy": (model, CrossEntropy()),
        "AFAT": (copy.deepcopy(model), RobustObjective(terms=[FeatureAlignment(corruptor_for(model, (224, 224)))])),
        "TAP + ADL": (
            timm.create_model("tap_fan_tiny_8_p4_hybrid"),
            RobustObjective(terms=[AttentionDiversification()]),
        ),
    }
    seconds = interleave({name: training_step(*case) for name, case in objectives.items()}, rounds=rounds)
    return {name: seconds[name] / seconds["cross-entropy"] for name in objectives if name != "cross-entropy"}


def training_step(model: torch.nn.Module, objective: object) -> Callable[[], object]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ema = ModelEmaV3(model, decay=0.999)
    images, targets = torch.randn(BATCH, 3, 224, 224), torch.arange(BATCH)

    def run() -> None:
        objective(model, images, targets).total.backward()
        optimizer.step()
        optimizer.zero_grad()
        if hasattr(objective, "update"):
            objective.update()
        ema.update(model)

    return run


def adl_costs() -> dict[str, dict[str, dict[str, float]]]:
    """Extra peak memory (MB) and seconds of one layer's loss and gradient, each in a process of its own."""
    costs: dict[str, dict[str, dict[str, float]]] = {}
    for form in ("explicit", "chunked"):
        for tokens in TOKENS:
            command = [sys.executable, __file__, "--adl-step", form, str(tokens)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            costs.setdefault(form, {})[str(tokens)] = json.loads(done.stdout)
    return costs


def adl_step(form: str, tokens: int) -> dict[str, float]:
    """One layer, one image, 8 heads of width 32: what the loss and its gradient add to the process's peak."""
    q, k = (torch.randn(1, 8, tokens, 32, requires_grad=True) for _ in "qk")
    handle = AttentionHandle("x", "token", q, k, scale=0.2)
    warm = AttentionHandle("x", "token", q[:, :, :8], k[:, :, :8], scale=0.2)
    layer_diversification(warm, variant="paper", chunk=4)[0].backward()  # threads and libraries are counted before

    def loss_and_gradient() -> None:
        layer_diversification(handle, variant="paper", chunk=64 if form == "chunked" else None)[0].backward()

    start = time.perf_counter()
    peak = extra_peak_megabytes(loss_and_gradient)
    return {"megabytes": peak, "seconds": time.perf_counter() - start}


def as_markdown(steps: dict[str, float], adl: dict[str, dict[str, dict[str, float]]], environment: str) -> str:
    growth = adl["chunked"]["4096"]["megabytes"] / max(adl["chunked"]["1024"]["megabytes"], 1e-9)
    lines = [
        f"# Robust methods\n\nFAN-T-Hybrid, batch {BATCH}, 224 px, fp32, medians measured in turn. {environment}\n",
        "| training step / cross-entropy step | ratio | at most |\n|---|---|---|",
        *(f"| {name} | {ratio:.2f} | {'2.05' if name == 'AFAT' else '–'} |" for name, ratio in steps.items()),
        "\nADL of one layer, one image, 8 heads: extra peak memory and time of loss and gradient.\n",
        "| form | tokens | MB | seconds |\n|---|---|---|---|",
        *(
            f"| {form} | {tokens} | {cost['megabytes']:.0f} | {cost['seconds']:.2f} |"
            for form, costs in adl.items()
            for tokens, cost in costs.items()
        ),
        f"\nFrom 1024 to 4096 tokens the chunked form's memory grows {growth:.1f} times (at most 5; quadratic: 16).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
