"""How many passes ``holdfast gate --until decided`` needs, and how often it is wrong, in simulated gates.

    python perf/sequential_gate.py [--runs 1000]

A run draws 5,000 images with replacement from the 1,000 CIFAR images whose answers the studies store, clean and in 75
corrupted cells, for two models. Answers of the new model are changed at random until, over the 1,000 images, it is
worse than the old one by exactly the points of the scenario. Then the gate's rounds and rules follow, as in
:mod:`holdfast.gate`: "clean no worse" and "mCA no worse", which share the error of 5 %. Passes of a rule are counted up
to its verdict, for one of the two models. *On the margin* is the hardest case: either statement is as good as wrong.
Writes perf/results/sequential_gate.json and .md.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from environment import as_line, describe
from holdfast.evaluation.order import Order, depths
from holdfast.gate.verdicts import verdict_of
from holdfast.metrics.group_sequential import ERROR, interval_at_look, planned_information, spending_bounds
from holdfast.metrics.intervals import jackknife_estimate, with_pseudo_pairs
from holdfast.metrics.jackknife import GROUPS
from holdfast.metrics.multiple_tests import BETTER, NO_WORSE, NOT_RESOLVED, WORSE
from stored_answers import stored_answers

RESULTS = Path(__file__).parent / "results"
IMAGES = 5000
RULES = ("mCA no worse", "clean no worse")
Run = tuple[str, str, int]  # study, row and seed
RETRAINED = tuple(
    (("cifar10-main", row, seed), ("cifar10-main", row, seed + 1)) for row in ("baseline", "AFAT") for seed in (0, 1)
)
CHANGED = tuple(
    (("cifar10-afat_ratio", f"ratio={old}", seed), ("cifar10-afat_ratio", f"ratio={new}", seed))
    for old, new, seed in (("0", "0.1", 0), ("0.1", "0.5", 1), ("0.1", "0.2", 0), ("0", "0.5", 1))
)
HARDLY = tuple((("cifar10-main", "baseline", seed), ("cifar10-main", "ADL", seed)) for seed in (0, 1, 2))
PAIRS = {
    "trained with another seed": RETRAINED,
    "trained a little differently": CHANGED,
    "hardly changed": HARDLY,
}


@dataclass(frozen=True)
class Scenario:
    """What is true of the new model, and the margin of both rules, in points."""

    name: str
    drop: float
    clean_drop: float
    margin: float
    rules: tuple[str, ...] = RULES


SCENARIOS = (
    Scenario("5 points worse under corruption", 5, 0, 0.5),
    Scenario("2 points worse under corruption", 2, 0, 0.5),
    Scenario("1 point worse under corruption", 1, 0, 0.5),
    Scenario("no change", 0, 0, 1),
    Scenario("no change", 0, 0, 0.5),
    Scenario("on the margin", 0.5, 0.5, 0.5),
    Scenario("on the margin", 1, 1, 1),
    Scenario("2 points worse under corruption", 2, 0, 0.5, RULES[:1]),
    Scenario("no change", 0, 0, 1, RULES[:1]),
)


@dataclass(frozen=True, eq=False)
class Look:
    """One round: cells and places of the new pairs, and how many each group has in each cell so far."""

    depth: int
    cells: np.ndarray
    places: np.ndarray
    sizes: np.ndarray  # (cells, groups)
    bounds: tuple[float, float]  # of the two rules, in standard errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    started = time.process_time()
    looks = {count: all_looks(75, rules=count) for count in (1, 2)}
    rows = [
        row
        for pairs in PAIRS
        for scenario in SCENARIOS
        for row in measured(scenario, pairs, looks[len(scenario.rules)], runs=runs)
    ]
    print(f"{time.process_time() - started:.0f} s of one core")
    content = {"environment": describe("numpy", "scipy"), "runs": runs, "images": IMAGES, "gates": rows}
    (RESULTS / "sequential_gate.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "sequential_gate.md").write_text(as_markdown(content))
    print(as_markdown(content))


def measured(scenario: Scenario, pairs: str, looks: list[Look], *, runs: int) -> list[dict[str, Any]]:
    """Verdicts and passes of both rules."""
    rng = np.random.default_rng([round(10 * scenario.drop), round(10 * scenario.margin)])
    populations = [differences(rng, scenario, *pair) for pair in PAIRS[pairs]]
    groups = np.arange(IMAGES) % GROUPS
    found: dict[str, list[tuple[str, int]]] = {rule: [] for rule in scenario.rules}
    for run in range(runs):
        population = populations[run % len(populations)]
        world = population[:, rng.integers(0, population.shape[1], IMAGES)]
        for rule, answer in zip(scenario.rules, gate(world, looks, groups, scenario), strict=True):
            found[rule].append(answer)
    rows = [as_row(pairs, scenario, rule, answers) for rule, answers in found.items()]
    both = [[verdict for verdict, _ in answers] for answers in zip(*found.values(), strict=True)]
    either = {"either_worse": WORSE, "either_no_worse": NO_WORSE}
    shares = {key: round(100 * float(np.mean([word in each for each in both])), 2) for key, word in either.items()}
    return [{**row, **shares} for row in rows]


def as_row(pairs: str, scenario: Scenario, rule: str, answers: list[tuple[str, int]]) -> dict[str, Any]:
    verdicts = [verdict for verdict, _ in answers]
    whole = IMAGES * 75 if rule == RULES[0] else IMAGES
    passes = np.array([passes for _, passes in answers]) / whole
    decided = passes[[verdict != NOT_RESOLVED for verdict in verdicts]]
    shares = {
        word: 100 * float(np.mean([verdict == word for verdict in verdicts]))
        for word in (WORSE, NO_WORSE, NOT_RESOLVED)
    }
    row = {
        "models": pairs,
        "scenario": scenario.name,
        "margin": scenario.margin,
        "rule": rule,
        "rules": len(scenario.rules),
        "drop": scenario.drop if rule == RULES[0] else scenario.clean_drop,
        **{word.replace(" ", "_"): round(share, 2) for word, share in shares.items()},
        "passes": round(100 * float(decided.mean()), 3) if len(decided) else None,
        "median": round(100 * float(np.median(passes)), 3),
    }
    print(row, flush=True)
    return row


def differences(rng: np.random.Generator, scenario: Scenario, before: Run, after: Run) -> np.ndarray:
    """New minus old answers, (cells, images), clean first, with exactly the scenario's drops on average."""
    old, new = (stored_answers(*run)[1] for run in (before, after))
    for part, drop in ((slice(0, 1), scenario.clean_drop), (slice(1, None), scenario.drop)):
        answers = new[part].ravel()
        surplus = round(answers.sum() - old[part].sum() + drop / 100 * answers.size)
        candidates = np.flatnonzero(answers == (surplus > 0))
        answers[rng.choice(candidates, abs(surplus), replace=False)] = surplus < 0
        new[part] = answers.reshape(new[part].shape)
    return new - old


def all_looks(cells: int, *, rules: int) -> list[Look]:
    """The rounds of the gate; the order of the images is random by itself, because a run draws them."""
    order, groups, planned = Order(np.arange(IMAGES), cells), np.arange(IMAGES) % GROUPS, np.array(list(depths(IMAGES)))
    used = np.minimum(IMAGES, planned * cells)
    clean = used[: np.searchsorted(used, IMAGES) + 1]  # all images are soon clean; no further looks at them
    bounds = [
        spending_bounds(planned_information(images, passes), alpha=ERROR / rules)
        for images, passes in ((used, planned * cells), (clean, clean))
    ]
    looks, before, sizes = [], 0, np.zeros((cells, GROUPS))
    for number, depth in enumerate(planned):
        taken = [order.take(cell, before, depth) for cell in range(cells)]
        numbers, places = np.repeat(np.arange(cells), depth - before), np.concatenate(taken)
        sizes = sizes + by_group(numbers, groups[places], None, cells)
        own = tuple(float(each[min(number, len(each) - 1)]) for each in bounds)
        looks.append(Look(int(depth), numbers, places, sizes, own))
        before = depth
    return looks


def by_group(cells: np.ndarray, groups: np.ndarray, values: np.ndarray | None, count: int) -> np.ndarray:
    return np.bincount(cells * GROUPS + groups, values, minlength=count * GROUPS).reshape(count, GROUPS)


def gate(world: np.ndarray, looks: list[Look], groups: np.ndarray, scenario: Scenario) -> list[tuple[str, int]]:
    """Verdict of the two rules, and after how many passes of one model it came."""
    clean, corrupted = world[0], world[1:]
    sums = np.zeros((len(corrupted), GROUPS))
    answers: dict[str, tuple[str, int]] = {}
    for look in looks:
        passes, images = look.depth * len(corrupted), min(IMAGES, look.depth * len(corrupted))
        if RULES[0] not in answers:
            sums += by_group(look.cells, groups[look.places], corrupted[look.cells, look.places], len(corrupted))
            replicates = 100 * replicated(sums, look.sizes)
            verdict = judged(
                replicates, look.bounds[0], scenario.margin, images=images, cells=max(1.0, passes / images)
            )
            if verdict != NOT_RESOLVED or look is looks[-1]:
                answers[RULES[0]] = verdict, passes
        if RULES[1] in scenario.rules and RULES[1] not in answers:
            kinds = np.zeros(images, np.int64)
            own, sizes = by_group(kinds, groups[:images], clean[:images], 1), by_group(kinds, groups[:images], None, 1)
            verdict = judged(100 * replicated(own, sizes), look.bounds[1], scenario.margin, images=images, cells=1)
            if verdict != NOT_RESOLVED or images == IMAGES:
                answers[RULES[1]] = verdict, images
        if len(answers) == len(scenario.rules):
            break
    return [answers[rule] for rule in scenario.rules]


def replicated(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Mean over the cells of all images, then without each group."""
    left = (sums.sum(axis=1, keepdims=True) - sums) / (sizes.sum(axis=1, keepdims=True) - sizes)
    return np.concatenate([[(sums.sum(axis=1) / sizes.sum(axis=1)).mean()], left.mean(axis=0)])


def judged(replicates: np.ndarray, bound: float, margin: float, *, images: int, cells: float) -> str:
    estimate = with_pseudo_pairs(jackknife_estimate(replicates), images=images, whole=100 / cells)
    verdict = verdict_of(interval_at_look(estimate, bound, images=images, whole=100), margin=margin)
    return NO_WORSE if verdict == BETTER else verdict


def as_markdown(content: dict[str, Any]) -> str:
    lines = [
        f"{content['runs']:,} gates per row, each of {content['images']:,} images × 75 corrupted cells and clean. "
        "Passes of one model up to the verdict on mCA, in percent of all corrupted ones. "
        f"{as_line(content['environment'])}",
        "",
        "| new model | its mCA | rules, margin | worse | no worse | not resolved | passes if decided | median of all |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in content["gates"]:
        if row["rule"] == RULES[0] and row["scenario"] != "on the margin":
            verdicts = " | ".join(f"{row[key]:.1f} %" for key in ("worse", "no_worse", "not_resolved"))
            passes = " | ".join("–" if row[key] is None else f"{row[key]:.2f} %" for key in ("passes", "median"))
            rules = f"{'mCA, clean' if row['rules'] == 2 else 'mCA'}, {row['margin']:g}"
            lines.append(f"| {row['models']} | {-row['drop'] or 0:+g} | {rules} | {verdicts} | {passes} |")
    lines += [
        "",
        "| new model, both of whose scores lie on the margin | margin | a rule says worse | a rule says no worse |",
    ]
    lines += ["|---|---|---|---|"]
    lines += [
        f"| {row['models']} | {row['margin']:g} | {row['either_worse']:.1f} % | {row['either_no_worse']:.1f} % |"
        for row in content["gates"]
        if row["rule"] == RULES[0] and row["scenario"] == "on the margin"
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
