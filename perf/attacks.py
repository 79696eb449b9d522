"""What attacks cost and what they do; writes results/attacks.{json,md}.

    python perf/attacks.py [--rounds 31] [--images 100] [--only cost|strength] [--quick]

Cost: PGD-10 beside ten bare passes (forward, then the gradient of the images) of the same model, in short turns whose
order rotates, on one core, so that a busy machine slows both; the ratio of the medians is what counts. Strength: every
attack on one small FAN that was trained on scikit-learn's digits for some seconds; such figures show that attacks work,
not how robust FAN is.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import timm
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import holdfast  # noqa: F401 - registers our models
from environment import as_line, describe
from holdfast.attacks import (
    AutoAttack,
    GradientAttack,
    LearnedOcclusion,
    Occlusion,
    PatchFool,
    PixelModel,
    fit_corruptor,
    from_pixels,
    pgd,
)
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "attacks.json"
BAR = 1.1
MODELS = {"fan_nano": (4, 32), "vit_nano": (4, 32), "fan_tiny_12_p16_224": (1, 224)}  # batch, image size


def bare_passes(model: nn.Module, images: Tensor, labels: Tensor, *, steps: int) -> None:
    """The work no gradient attack can avoid."""
    for _ in range(steps):
        points = images.clone().requires_grad_()
        torch.autograd.grad(nn.functional.cross_entropy(model(points), labels), points)


def both_clocks(runs: dict[str, Callable[[], object]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median wall and processor seconds of every run, from the same turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}

    def timed(name: str) -> Callable[[], None]:
        def run() -> None:
            start = time.process_time()
            runs[name]()
            spent[name].append(time.process_time() - start)

        return run

    wall = interleave({name: timed(name) for name in runs}, rounds=rounds, warmup=1)
    return wall, {name: statistics.median(values[1:]) for name, values in spent.items()}


def cost(name: str, rounds: int) -> dict[str, float]:
    """Median seconds of PGD-10, of PGD-10 with scoring, and of ten bare passes, measured in turns."""
    batch, size = MODELS[name]
    model = from_pixels(timm.create_model(name).eval())
    images, labels = torch.rand(batch, 3, size, size), torch.zeros(batch, dtype=torch.long)
    scored = GradientAttack(eps=8 / 255, alpha=2 / 255, steps=10)
    runs = {
        "bare": lambda: bare_passes(model.model, model.normalise(images), labels, steps=10),
        "pgd10": lambda: pgd(model, images, labels, eps=8 / 255, alpha=2 / 255, steps=10),
        "pgd10_scored": lambda: scored(model, images, labels),
    }
    load = os.getloadavg()[0]
    wall, processor = both_clocks(runs, rounds)
    return {
        "batch": batch,
        "size": size,
        "load_before": load,
        "load_after": os.getloadavg()[0],
        **{f"{run}_seconds": value for run, value in wall.items()},
        **{f"{run}_processor_seconds": value for run, value in processor.items()},
        "ratio": wall["pgd10"] / wall["bare"],
        "ratio_scored": wall["pgd10_scored"] / wall["bare"],
        "processor_ratio": processor["pgd10"] / processor["bare"],
        "processor_ratio_scored": processor["pgd10_scored"] / processor["bare"],
    }


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    small = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return nn.functional.interpolate(small, size=32, mode="bilinear").repeat(1, 3, 1, 1), torch.tensor(data.target)


def train(images: Tensor, labels: Tensor, *, epochs: int) -> PixelModel:
    torch.manual_seed(0)
    model = from_pixels(timm.create_model("fan_nano", patch_size=8, embed_dim=32, num_heads=2).train())
    batches = [part for _ in range(epochs) for part in torch.randperm(len(labels)).split(50)]
    optimiser = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=len(batches))
    for batch in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()
        schedule.step()
    return model.eval().requires_grad_(False)


def strength(count: int, *, epochs: int, patch_steps: int) -> list[dict[str, object]]:
    """Accuracy of the trained network under every attack."""
    images, labels = digits()
    model = train(images[:1400], labels[:1400], epochs=epochs)
    seen, right = images[1400 : 1400 + count], labels[1400 : 1400 + count]
    rows: list[dict[str, object]] = []

    def add(attack: str, accuracy: float, note: str = "") -> None:
        rows.append({"attack": attack, "accuracy": round(accuracy, 4), "note": note})
        print(f"{attack:<50}{accuracy:.3f}  {note}", flush=True)

    with torch.no_grad():
        add("none", float((model(seen).argmax(1) == right).double().mean()), f"{count} images")
    for level in (4, 8, 16):
        eps = level / 255
        one = GradientAttack(eps=eps, alpha=eps, steps=1, random_start=False)
        add(f"FGSM {level}/255", one(model, seen, right).accuracy(right))
        add(f"PGD-10 {level}/255", GradientAttack(eps=eps, alpha=eps / 4, steps=10)(model, seen, right).accuracy(right))
        apgd = AutoAttack(eps, members=("apgd-ce",), iterations=5)
        add(f"APGD-CE {level}/255, 5 iterations", apgd(model, seen, right).accuracy(right))
    patch_fool(model, seen, right, patch_steps, add)
    occlusion(model, (images[:1400], labels[:1400]), (seen, right), add)
    return rows


def patch_fool(model: nn.Module, images: Tensor, labels: Tensor, steps: int, add: Callable[..., None]) -> None:
    for select in ("attention", "gradient"):
        random = PatchFool(steps=0, select=select)(model, images, labels)
        add(f"random pixels, patch by {select}", random.accuracy(labels))
        for surgery in ("as-coded", "orthogonal"):
            result = PatchFool(steps=steps, select=select, surgery=surgery)(model, images, labels)
            add(f"Patch-Fool {surgery}, patch by {select}", result.accuracy(labels), f"{steps} steps")


def occlusion(
    model: nn.Module, known: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], add: Callable[..., None]
) -> None:
    batches = list(zip(known[0].split(50), known[1].split(50), strict=True))
    for ratio in (0.1, 0.25):
        spread = Occlusion(ratio, patch_size=4, masks=10)(model, *new).spread(new[1])
        add(f"occlusion-random, ratio {ratio}", spread["mean"], between(spread))
        for objective in ("alignment", "cross-entropy"):
            attack = LearnedOcclusion(ratio, patch_size=4, objective=objective, epochs=5)
            corruptor = fit_corruptor(attack, model, batches).corruptor
            spread = Occlusion(ratio, masks=10)(model, *new, corruptor=corruptor).spread(new[1])
            add(f"occlusion-learned by {objective}, ratio {ratio}", spread["mean"], between(spread))


def between(spread: dict[str, float]) -> str:
    return f"{spread['masks']} masks: {spread['min']:.3f} to {spread['max']:.3f}, std {spread['std']:.3f}"


def page(result: dict) -> str:
    lines = ["# Attacks: cost and strength", "", as_line(result["environment"]), "", "## Cost", ""]
    lines += [
        "PGD-10 beside ten times forward and input gradient of the same model, one thread, in turns, medians of "
        f"{result.get('rounds', 0)}. Bar: at most {BAR}.",
        "",
        "The bar is about wall time. A machine with more work than cores disturbs wall time far more than the time the",
        "processor spent on the run, so both are given, from the same turns, with the load before and after;",
        "with scoring means one more forward pass (wall, processor).",
        "",
        "| model | batch | px | bare, s | PGD-10, s | wall ratio | bar | processor ratio | with scoring | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in result.get("cost", {}).items():
        verdict = "held" if row["ratio"] <= BAR else "missed"
        lines.append(
            f"| {name} | {row['batch']} | {row['size']} | {row['bare_seconds']:.3f} | {row['pgd10_seconds']:.3f} "
            f"| {row['ratio']:.3f} | {verdict} | {row['processor_ratio']:.3f} "
            f"| {row['ratio_scored']:.3f}, {row['processor_ratio_scored']:.3f} "
            f"| {row['load_before']:.1f}, {row['load_after']:.1f} |"
        )
    lines += ["", *result.get("remarks", [])]
    lines += [
        "",
        "## Strength",
        "",
        "A FAN with 4×4 tokens and 6 blocks, trained on scikit-learn's digits (32 px) for some seconds; images it has",
        "not seen. This shows that the attacks work; it says nothing about published networks.",
        "",
        "| attack | accuracy | |",
        "|---|---|---|",
    ]
    lines += [f"| {row['attack']} | {row['accuracy']:.3f} | {row['note']} |" for row in result.get("strength", [])]
    lines += ["", *result.get("strength_remarks", [])]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument(
        "--only", choices=("cost", "strength"), help="measure this and keep the rest of the last results"
    )
    parser.add_argument("--quick", action="store_true", help="a short run that writes nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    result.update(environment=describe(), bar=BAR)
    if arguments.only != "strength":
        rounds = 2 if arguments.quick else arguments.rounds
        result.update(rounds=rounds, cost={})
        for name in ["fan_nano"] if arguments.quick else MODELS:
            result["cost"][name] = cost(name, rounds)
            print(name, {key: round(value, 3) for key, value in result["cost"][name].items()}, flush=True)
    if arguments.only != "cost":
        settings = {"epochs": 1, "patch_steps": 5} if arguments.quick else {"epochs": 6, "patch_steps": 250}
        result["strength"] = strength(20 if arguments.quick else arguments.images, **settings)
    if not arguments.quick:
        RESULTS.mkdir(exist_ok=True)
        TABLE.write_text(json.dumps(result, indent=2) + "\n")
        (RESULTS / "attacks.md").write_text(page(result))


if __name__ == "__main__":
    main()
