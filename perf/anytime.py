"""What ``holdfast evaluate --until`` saves, and whether its intervals hold, on per-image answers that are stored.

    python perf/anytime.py [--only curves,variances,large,coverage] [--worlds 2000]

*curves*: mean half-width of the 95 % interval against forward passes (an image in a cell), if all cells see the same
few images (``--limit``) and if they see images of their own (``--until``); from that, the passes for equal half-widths.
*large*: passes to ±0.5 points of mean corruption accuracy on 50,000 simulated images, which differ in how hard they are
as in perf/interval_coverage.py. *variances*: the factor of the demo's digits from the true variances of its answers,
as if intervals were exact. *coverage*: worlds of 5,000 images, drawn with replacement from the 1,000 of CIFAR,
in which an evaluation stops at the first round whose half-width reaches the goal; how often the interval then holds the
score of the 1,000 images. Scores, replicates and intervals are the package's own, each cell with its own images, and
rounds are those of the evaluation. Writes perf/results/anytime.json and .md, a table of typical sizes, and
the picture of docs/how-many-images.md.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from environment import as_line, describe
from holdfast.cells import CLEAN, CellSpec, corruption_cell
from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.evaluation.order import Order, depths
from holdfast.metrics.intervals import Interval
from holdfast.metrics.jackknife import Groups, image_groups
from holdfast.metrics.replicates import Replicates, replicate
from holdfast.metrics.score_intervals import interval_of_difference, interval_of_score
from holdfast.metrics.scoring.base import Reference, ScoreDefinition
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.plotting.files import save_figure
from holdfast.plotting.style import colour, grid_of, legend_above, marker, new_figure, tidy
from holdfast.studies.results import read_result
from stored_answers import STUDIES, stored_answers

RESULTS = Path(__file__).parent / "results"
RIGHT = "right"
SETS = {  # study, row and seed of the runs whose answers are taken
    "demo digits": (("digits", "baseline", 0),),
    "CIFAR-10": tuple(("cifar10-main", row, seed) for row in ("baseline", "AFAT", "TAP+ADL") for seed in (0, 1)),
    "Imagenette": tuple(
        ("imagenette-pretrained", row, seed) for row in ("plain", "AFAT", "TAP+ADL") for seed in (0, 1)
    ),
}
ERRORS = (0.08, 0.42, 0.77)
LARGE, GOAL = 50_000, 0.5
WORLD = 5000
GOALS = {"mean": 2.0, "retention": 3.5, "mCE": 4.0, "paired difference": 2.0}  # in points; mCE in % of the baseline


@dataclass(frozen=True, eq=False)
class Design:
    """Which images some cells see.

    Attributes:
        used: places of all images that are seen.
        rows: the places of each cell's images in ``used``, clean first; empty if all cells see all of them.
        passes: passes in corrupted cells.
        groups: jackknife groups of the images.
    """

    used: np.ndarray
    rows: tuple[np.ndarray, ...]
    passes: int
    groups: Groups


def limited(places: np.ndarray, cells: int) -> Design:
    """All cells see these images."""
    return Design(places, (), len(places) * cells, groups_of(len(places)))


def until(order: Order, depth: int) -> Design:
    """Every cell sees so many images of its own; all of them are seen clean."""
    taken = [order.take(cell, 0, depth) for cell in range(order.cells)]
    used = np.unique(np.concatenate(taken))
    rows = (np.arange(len(used)), *(np.searchsorted(used, np.sort(each)) for each in taken))
    return Design(used, rows, order.cells * depth, groups_of(len(used)))


@cache
def groups_of(images: int) -> Groups:
    return image_groups([f"{number:06d}" for number in range(images)])


def replicates_of(answers: np.ndarray, cells: Sequence[CellSpec], design: Design) -> Replicates:
    """The package's replicates of the clean and all corrupted cells; answers are (cells, images)."""
    names = [cell.name for cell in cells]
    if not design.rows:
        return replicate({(name, RIGHT): answers[i, design.used] for i, name in enumerate(names)}, design.groups)
    columns = {(name, RIGHT): answers[i, design.used[design.rows[i]]] for i, name in enumerate(names)}
    return replicate(columns, design.groups, rows=dict(zip(names, design.rows, strict=True)))


def formulas_of(cells: Sequence[CellSpec], reference: Reference | None = None) -> dict[str, ScoreDefinition]:
    """The scores of the task for these cells."""
    columns = [(cell.name, RIGHT) for cell in cells]
    known = scoring_of("classification").formulas(cells, columns=columns, header={"classes": 10}, reference=reference)
    return {formula.name.removesuffix("_partial"): formula for formula in known}


def half_width(interval: Interval) -> float:
    return (interval.high - interval.low) / 2


# ---------------------------------------------------------------------- equal half-widths


def curves(*, repeats: int = 10) -> list[dict[str, Any]]:
    """Half-widths against passes of both designs, and the passes of --limit for each half-width of --until."""
    rows = []
    for name, runs in SETS.items():
        for study, row, seed in runs:
            cells, answers = stored_answers(study, row, seed)
            formula, images = formulas_of(cells)["mean_corruption_accuracy"], answers.shape[1]
            rng = np.random.default_rng([seed, *row.encode()])
            orders = [Order(rng.permutation(images), len(cells) - 1) for _ in range(repeats)]

            def widths(
                designs: Sequence[Design],
                answers: np.ndarray = answers,
                cells: Sequence[CellSpec] = cells,
                formula: ScoreDefinition = formula,
            ) -> float:
                found = [interval_of_score(formula, replicates_of(answers, cells, each)) for each in designs]
                return float(np.mean([half_width(each) for each in found]))

            counts = np.unique(np.geomspace(10, images, 12).round().astype(int))
            limits = [widths([limited(order.images[:n], order.cells) for order in orders]) for n in counts]
            single = images // (len(cells) - 1)  # as many as each cell can have while no image is in two cells
            for depth in sorted({single, *list(depths(images))[::3]}):
                designs = [until(order, depth) for order in orders]
                half = widths(designs)
                needed = float(np.exp(np.interp(-np.log(half), -np.log(limits), np.log(counts))))
                used = len(designs[0].used)
                rows.append(
                    {
                        "data": name,
                        "run": f"{row} {seed}",
                        "cells": len(cells) - 1,
                        "images": images,
                        "depth": depth,
                        "passes": designs[0].passes,
                        "clean": used,
                        "half_width": round(half, 4),
                        "limit_images": round(needed, 2),
                        "times": round(needed * (len(cells) - 1) / designs[0].passes, 2),
                        "times_with_clean": round(needed * len(cells) / (designs[0].passes + used), 2),
                    }
                )
            print(rows[-1], flush=True)
    return rows


def variances() -> dict[str, dict[str, float]]:
    """The factor of the demo's digits by variances alone, and how much wider than by them its intervals are."""
    answers = stored_answers(*SETS["demo digits"][0])[1][1:]
    cells, images = answers.shape
    whole, common = _variances([answers])
    held = json.loads((RESULTS / "anytime.json").read_text())["parts"]["curves"]
    found = {}
    for name, depth in (("one cell per image", images // cells), ("first round", next(depths(images)))):
        passes = cells * depth
        variance = whole / passes if passes <= images else common / images + (whole - common) / passes
        (row,) = (row for row in held if row["data"] == "demo digits" and row["depth"] == depth)
        found[name] = {
            "times": round(common / variance * cells / passes, 2),
            "half_width": round(196 * np.sqrt(variance), 3),
            "percent wider": round(100 * (row["half_width"] / (196 * np.sqrt(variance)) - 1), 1),
        }
    print(found, flush=True)
    return found


def _variances(answers: Sequence[np.ndarray]) -> tuple[float, float]:
    """Variance of an answer within a cell, and of an image's mean over the cells."""
    whole = float(np.mean([each.var(axis=1).mean() for each in answers]))
    return whole, float(np.mean([each.mean(axis=0).var() for each in answers]))


# ---------------------------------------------------------------------- 50,000 images


def large(*, repeats: int = 20) -> list[dict[str, Any]]:
    """Passes to the goal on many simulated images; one image is in one cell, so it has one answer."""
    cells = [CLEAN, *(corruption_cell(kind, severity) for kind in STANDARD for severity in SEVERITIES)]
    formula, order = formulas_of(cells)["mean_corruption_accuracy"], Order(np.arange(LARGE), 75)
    designs = {depth: until(order, depth) for depth in depths(LARGE) if depth * 75 <= LARGE}
    rows = []
    for error in ERRORS:
        offsets = np.concatenate([[0.0], np.linspace(-1, 1, 75)]) + np.sqrt(2) * norm.ppf(1 - error)
        offsets[0] += 1.2
        rng, shares, halves = np.random.default_rng(round(100 * error)), [], []
        for _ in range(repeats):
            hard, cell_of = rng.normal(size=LARGE), np.zeros(LARGE, np.int64)
            for cell in range(75):
                cell_of[order.take(cell, 0, LARGE // 75)] = cell + 1
            right = offsets[cell_of] + hard + rng.normal(size=LARGE) > 0
            answers = np.broadcast_to(right.astype(float), (76, LARGE))  # of each image's one cell
            for design in designs.values():
                half = half_width(interval_of_score(formula, replicates_of(answers, cells, design)))
                if half <= GOAL:
                    break
            shares.append(design.passes / (75 * LARGE))
            halves.append(half)
        rows.append(
            {
                "error": error,
                "images": LARGE,
                "goal": GOAL,
                "passes": round(100 * float(np.mean(shares)), 3),
                "most": round(100 * float(np.max(shares)), 3),
                "half_width": round(float(np.mean(halves)), 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


# ---------------------------------------------------------------------- coverage where the evaluation stops


def coverage(*, worlds: int) -> list[dict[str, Any]]:
    """How often intervals hold the truth at the round at which they are first narrow enough."""
    (cells, first), (_, second), (_, third) = (
        stored_answers("cifar10-main", *run) for run in (("AFAT", 0), ("baseline", 0), ("TAP+ADL", 1))
    )
    kinds = {cell.kind for cell in cells[1:]}
    errors = {
        kind: float(np.mean([1 - third[i].mean() for i, c in enumerate(cells) if c.kind == kind])) for kind in kinds
    }
    formulas = formulas_of(cells, Reference("another run", errors, float(1 - third[0].mean())))
    mean, retention, mce = (formulas[name] for name in ("mean_corruption_accuracy", "retention", "mce"))
    judges: dict[str, Callable[[Replicates, Replicates], Interval]] = {
        "mean": lambda one, _: interval_of_score(mean, one),
        "retention": lambda one, _: interval_of_score(retention, one),
        "mCE": lambda one, _: interval_of_score(mce, one),
        "paired difference": lambda one, other: interval_of_difference(mean, [one, other]),
    }
    order = Order(np.arange(WORLD), len(cells) - 1)
    designs = [until(order, depth) for depth in depths(WORLD) if depth <= 400]
    whole = limited(np.arange(first.shape[1]), len(cells) - 1)
    complete = [replicates_of(answers, cells, whole) for answers in (first, second)]
    truth = {name: judge(*complete).value for name, judge in judges.items()}
    rng = np.random.default_rng(51)
    hits: dict[str, list[bool]] = {name: [] for name in judges}
    passes: dict[str, list[int]] = {name: [] for name in judges}
    for _ in range(worlds):
        drawn = rng.integers(0, first.shape[1], WORLD)
        answers, open_ = [each[:, drawn] for each in (first, second)], dict(judges)
        for design in designs:
            one = replicates_of(answers[0], cells, design)
            other = replicates_of(answers[1], cells, design) if "paired difference" in open_ else one
            for name, judge in list(open_.items()):
                interval = judge(one, other)
                if half_width(interval) <= GOALS[name]:
                    hits[name].append(interval.low <= truth[name] <= interval.high)
                    passes[name].append(design.passes)
                    del open_[name]
            if not open_:
                break
        assert not open_, f"{open_} not reached"
    rows = [
        {
            "score": name,
            "goal": GOALS[name],
            "truth": round(truth[name], 3),
            "worlds": worlds,
            "coverage": round(100 * float(np.mean(hits[name])), 2),
            "passes": round(float(np.mean(passes[name]))),
            "share": round(100 * float(np.mean(passes[name])) / (WORLD * (len(cells) - 1)), 3),
        }
        for name in judges
    ]
    print(*rows, sep="\n", flush=True)
    return rows


PARTS = {"curves": curves, "variances": variances, "large": large, "coverage": coverage}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--worlds", type=int, default=2000)
    arguments = parser.parse_args()
    path = RESULTS / "anytime.json"
    content = json.loads(path.read_text()) if path.exists() else {"parts": {}}
    held = content["parts"]
    for name in filter(None, arguments.only.split(",")):
        started = time.process_time()
        held[name] = PARTS[name](**({"worlds": arguments.worlds} if name == "coverage" else {}))
        print(f"{name}: {time.process_time() - started:.0f} s of one core", flush=True)
        content = {"environment": describe("numpy", "scipy"), "parts": held}
        path.write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "anytime.md").write_text(as_markdown(held, content["environment"]))
    (RESULTS / "anytime_sizes.md").write_text(typical_sizes())
    draw(held["curves"], RESULTS.parents[1] / "docs" / "images" / "how-many-images")
    print((RESULTS / "anytime.md").read_text())


def as_markdown(parts: dict[str, Any], environment: dict[str, object]) -> str:
    """Three tables: equal half-widths, 50,000 images, coverage."""
    lines = [
        "| answers | images per cell | ± points | passes, `--limit` by `--until` | with the clean passes |",
        "|---|---|---|---|---|",
        *(_equal(parts["curves"], name, single=single) for name in SETS for single in (True, False)),
        camvid_line(),
        "",
        "| error, 50,000 images × 75 cells | corrupted passes to ± 0.5, mean | most of 20 | passes of all |",
        "|---|---|---|---|",
    ]
    for row in parts["large"]:
        passes = f"{row['passes'] / 100 * 75 * row['images']:,.0f} of 3,750,000"
        lines.append(f"| {100 * row['error']:.0f} % | {row['passes']:.2f} % | {row['most']:.2f} % | {passes} |")
    lines += ["", "| score | goal | coverage where it stops | corrupted passes, of 375,000 |", "|---|---|---|---|"]
    for row in parts["coverage"]:
        lines.append(f"| {row['score']} | ± {row['goal']:g} | {row['coverage']:.1f} % | {row['passes']:,} |")
    worlds = f"Coverage in {parts['coverage'][0]['worlds']:,} worlds."
    return "\n".join([*lines, "", f"{worlds} {as_line(environment)}"]) + "\n"


def _equal(rows: list[dict[str, Any]], name: str, *, single: bool) -> str:
    """One line: the range over the runs, at one cell per image or in the first round of the command."""
    own = [row for row in rows if row["data"] == name]
    depth = own[0]["images"] // own[0]["cells"] if single else next(depths(own[0]["images"]))
    found = [row for row in own if row["depth"] == depth]
    half, times, clean = ([row[key] for row in found] for key in ("half_width", "times", "times_with_clean"))
    what = "one cell per image" if single else "the first round"
    words = f"{name}, {own[0]['images']} images × {own[0]['cells']} cells | {depth} ({what})"
    return f"| {words} | {_span(half, 1)} | {_span(times, 0)} × | {_span(clean, 0)} × |"


def _span(values: list[float], digits: int) -> str:
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def typical_sizes() -> str:
    """Corrupted passes for some half-widths on sets of some sizes, if answers vary as CIFAR's do: a table."""
    whole, common = _variances([stored_answers(*run)[1][1:] for run in SETS["CIFAR-10"]])
    goals = (2.0, 1.0, 0.5)
    lines = [
        f"| images × 75 cells | {' | '.join(f'± {goal:g}' for goal in goals)} | at best |",
        "|---|---|---|---|---|",
    ]
    for images in (1_000, 5_000, 10_000, 50_000):
        wanted = [_needed(images, (goal / 196) ** 2, whole, common) for goal in goals]
        best = 196 * np.sqrt(common / images + (whole - common) / images / 75)
        lines.append(f"| {images:,} | {' | '.join(wanted)} | ± {best:.1f} |")
    return "\n".join(lines) + "\n"


def _needed(images: int, variance: float, whole: float, common: float) -> str:
    """Passes of --until, and in brackets of --limit."""
    limit = common / variance
    if limit > images:
        return "out of reach"
    passes = whole / variance
    if passes > images:  # images come again in further cells
        passes = (whole - common) / (variance - common / images)
    return f"{float(f'{passes:.2g}'):,.0f} ({float(f'{75 * limit:.2g}'):,.0f})"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Half-width against passes in both designs, a panel for each set of answers."""
    figure = new_figure(10, 3.6)
    panels = grid_of(figure, 1, len(SETS), sharey=True)[0]
    for number, (name, axis) in enumerate(zip(SETS, panels, strict=True)):
        own = [row for row in rows if row["data"] == name and row["run"] == f"{SETS[name][0][1]} {SETS[name][0][2]}"]
        half = [row["half_width"] for row in own]
        limits = [row["limit_images"] * row["cells"] for row in own]
        axis.plot(limits, half, color=colour(0), marker=marker(0), label="--limit: all cells of a few images")
        axis.plot(
            [row["passes"] for row in own], half, color=colour(1), marker=marker(1), label="--until: one cell first"
        )
        tidy(axis, xlabel="passes in corrupted cells", ylabel="" if number else "half-width, points", title=name)
        axis.set(xscale="log", yscale="log", yticks=[1, 2, 3, 4, 6], yticklabels=["1", "2", "3", "4", "6"])
        axis.minorticks_off()
    legend_above(figure, panels[0])
    save_figure(figure, path, formats=("svg",))


def camvid_line() -> str:
    """mIoU of CamVid, of whose answers the study stores bootstrap draws of every cell, made from the same frames."""
    times = []
    for path in sorted((STUDIES / "camvid-main" / "results").glob("*.safetensors")):
        draws = read_result(path).draws["miou"][1:, 1:].astype(np.float64)  # without the clean cell, and the value
        times.append(len(draws) * draws.mean(axis=0).var(ddof=1) / draws.var(axis=1, ddof=1).mean())
    words = "CamVid mIoU, 60 frames × 50 cells | fewer than the 128 that mIoU needs | "
    return f"| {words}– | {_span(times, 0)} × by variances alone | – |"


if __name__ == "__main__":
    main()
