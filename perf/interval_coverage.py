"""How often 95 % intervals hold the truth, and how wide they are, in simulated evaluations whose truth is known.

    python perf/interval_coverage.py [--simulations 2000] [--only accuracy,mean,miou,ap,differences]

Every cell draws images from a distribution, computes score and interval as a summary does, and counts. Coverage of
2,000 simulations is known to about ±1 point. The ideal width is that of a normal interval with the true standard
deviation of the score. AP of few objects is too high on average, so its rows have two truths: what sets of this size
have on average, and the AP of a very large set. Writes perf/results/interval_coverage.json and .md; seeds have a
script of their own.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from environment import as_line, describe
from holdfast.cells import CellSpec
from holdfast.metrics.ap_jackknife import THRESHOLDS, Matches, precision_of_matches
from holdfast.metrics.corruption import retention
from holdfast.metrics.intervals import Interval, difference_interval, paired_difference, score_interval
from holdfast.metrics.iou import mean_iou
from holdfast.metrics.jackknife import Groups, image_groups, replicated_means
from holdfast.metrics.replicates import replicate
from holdfast.metrics.score_intervals import interval_of_score
from holdfast.metrics.scoring.cue_conflict import CONFLICT, CUE, KIND, SHAPE, TEXTURE, cue_scores
from holdfast.metrics.scoring.domains import IN, RIGHT_IN, domain_scores
from holdfast.published import published

RESULTS = Path(__file__).parent / "results"
Draw = Callable[[np.random.Generator], Interval]
CELLS = 75
MANY = 40_000  # images of the population whose score is the truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    path = RESULTS / "interval_coverage.json"
    held = json.loads(path.read_text())["parts"] if path.exists() else {}
    for name in arguments.only.split(","):
        held[name] = [measured(*case, simulations=arguments.simulations) for case in PARTS[name]()]
        content = {"environment": describe("numpy", "scipy"), "simulations": arguments.simulations, "parts": held}
        path.write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "interval_coverage.md").write_text(as_markdown(content))
    print((RESULTS / "interval_coverage.md").read_text())


def measured(score: str, images: int, truth: float, draw: Draw, *, simulations: int) -> dict[str, Any]:
    """Coverage and width of one cell."""
    rng = np.random.default_rng([images, *score.encode()])
    found = [draw(rng) for _ in range(simulations)]
    known = [one for one in found if not np.isnan(one.low)]
    average = np.mean([one.value for one in known])
    hits = _hits(known, truth)
    outside = sum(not one.low <= one.value <= one.high for one in known)
    ideal = 2 * norm.ppf(0.975) * np.std([one.value for one in known])
    width = np.mean([one.high - one.low for one in known])
    row = {
        "score": score,
        "images": images,
        "truth": round(float(truth), 5),
        "mean": round(float(average), 5),
        "coverage": round(100 * hits, 2),
        "coverage_of_mean": round(100 * _hits(known, average), 2),
        "width_by_ideal": round(float(width / ideal), 3) if ideal > 1e-9 else None,
        "without_interval": simulations - len(known),
        "estimate_outside": outside,
    }
    print(row, flush=True)
    return row


def _hits(found: list[Interval], truth: float) -> float:
    return float(np.mean([one.low - 1e-12 <= truth <= one.high + 1e-12 for one in found]))


def groups_of(images: int) -> Groups:
    return image_groups([f"{number:06d}" for number in range(images)])


# ---------------------------------------------------------------------- accuracy


def accuracy_cases() -> Iterator[tuple[str, int, float, Draw]]:
    for truth in (0.5, 0.9, 0.98, 1.0):
        for images in (10, 30, 100, 1000):
            yield f"accuracy {truth:g}", images, truth, _accuracy(truth, groups_of(images))


def _accuracy(truth: float, groups: Groups) -> Draw:
    def draw(rng: np.random.Generator) -> Interval:
        right = (rng.random((groups.images, 1)) < truth).astype(float)
        return score_interval(replicated_means(right, groups)[:, 0], scale="proportion", images=groups.independent)

    return draw


# ---------------------------------------------------------------------- 75 cells: images differ in how hard they are


def grid_cases() -> Iterator[tuple[str, int, float, Draw]]:
    for name, error in (("low", 0.08), ("middle", 0.42), ("high", 0.77)):
        for images in (10, 30, 100, 1000):
            for score, (scale, of) in GRID_SCORES.items():
                truth = of(_grid_truth(error))
                yield f"{score}, {name} error", images, truth, _grid(error, of, scale, groups_of(images))


def _offsets(error: float) -> np.ndarray:
    """Clean first, then the cells: how far each lies from a coin's toss, in units of the images' spread."""
    centre = np.sqrt(2) * norm.ppf(1 - error)
    return np.concatenate([[centre + 1.2], centre + np.linspace(-1, 1, CELLS)])


def _grid_truth(error: float) -> np.ndarray:
    return norm.cdf(_offsets(error) / np.sqrt(2))


def _grid(error: float, of: Callable[[np.ndarray], Any], scale: Any, groups: Groups) -> Draw:
    offsets = _offsets(error)

    def draw(rng: np.random.Generator) -> Interval:
        hard = rng.normal(size=(groups.images, 1))
        right = (offsets + hard + rng.normal(size=(groups.images, 1 + CELLS)) > 0).astype(float)
        replicates = np.array([of(means) for means in replicated_means(right, groups)])
        return score_interval(replicates, scale=scale, images=groups.independent)

    return draw


REFERENCE = np.repeat(np.linspace(0.6, 0.95, 15), 5)  # a baseline's error by kind, as AlexNet's for mCE
GRID_SCORES: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "mean over 75 cells": ("proportion", lambda means: means[1:].mean()),
    "retention": ("ratio", lambda means: float(retention(means[1:].mean(), means[0])) / 100),
    "mCE": (
        "ratio",
        lambda means: ((1 - means[1:]).reshape(15, 5).sum(axis=1) / REFERENCE.reshape(15, 5).sum(axis=1)).mean(),
    ),
}

# ---------------------------------------------------------------------- mIoU


PRESENT = np.array([1.0, 1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.4, 0.09, 0.07, 0.05])  # three classes in few images


def miou_cases() -> Iterator[tuple[str, int, float, Draw]]:
    truth = float(mean_iou(_pixel_counts(np.random.default_rng(1), MANY).sum(axis=0)))
    for images in (20, 30, 60, 200, 500):
        yield "mIoU, three of eleven classes rare", images, truth, _miou(groups_of(images))


def _pixel_counts(rng: np.random.Generator, images: int) -> np.ndarray:
    """True, predicted and right pixels of every class, (images, 3, classes)."""
    classes = len(PRESENT)
    there = rng.random((images, classes)) < PRESENT
    true = np.round(there * rng.lognormal(7, 1, size=(images, classes)))
    skill = rng.normal(size=(images, 1)) * 0.5 + rng.normal(size=(images, classes)) * 0.5
    both = np.round(true * norm.cdf(0.9 + skill))
    missed = (true - both).sum(axis=1, keepdims=True)
    share = rng.dirichlet(np.ones(classes), size=images)
    return np.stack([true, both + np.round(missed * share), both], axis=1)


def _miou(groups: Groups) -> Draw:
    def draw(rng: np.random.Generator) -> Interval:
        replicates = mean_iou(replicated_means(_pixel_counts(rng, groups.images), groups))
        return score_interval(replicates, scale="proportion", images=groups.independent)

    return draw


# ---------------------------------------------------------------------- AP


def ap_cases() -> Iterator[tuple[str, int, float, Draw]]:
    for classes in (1, 20, 80):
        one = Groups(np.zeros(MANY, np.int64), 1, MANY)
        truth = precision_of_matches(_detections(np.random.default_rng(2), MANY, classes), one)["AP"][0]
        for images in (30, 128) if classes == 80 else (30, 128, 500):  # 500 would take hours
            yield (
                f"AP, {classes} class{'es' if classes > 1 else ''}",
                images,
                float(truth),
                _precision(classes, groups_of(images)),
            )


def _detections(rng: np.random.Generator, images: int, classes: int) -> list[Matches]:
    """About three objects an image, most of them found with some overlap, and about three false detections."""
    weights = 1 / np.arange(1, classes + 1) ** 0.7
    weights /= weights.sum()
    counts = rng.poisson(3, size=images)
    image = np.repeat(np.arange(images), counts)
    label = rng.choice(classes, size=len(image), p=weights)
    skill = rng.normal(size=images)[image] * 0.4
    found = rng.random(len(image)) < norm.cdf(0.9 + skill)
    overlap = np.clip(0.78 + 0.08 * skill + 0.12 * rng.normal(size=len(image)), 0, 1)
    false_image = np.repeat(np.arange(images), rng.poisson(3, size=images))
    false_label = rng.choice(classes, size=len(false_image), p=weights)
    score = np.concatenate([rng.normal(1 + skill[found]), rng.normal(-0.2, 1, size=len(false_image))])
    right = np.concatenate([overlap[found] > THRESHOLDS[:, None], np.zeros((10, len(false_image)), bool)], axis=1)
    places = np.concatenate([image[found], false_image])
    labels = np.concatenate([label[found], false_label])
    order = np.argsort(-score, kind="stable")
    return [_category(order[labels[order] == c], places, right, image[label == c], images) for c in range(classes)]


def _category(chosen: np.ndarray, places: np.ndarray, right: np.ndarray, objects: np.ndarray, images: int) -> Matches:
    hits = right[:, chosen]
    return Matches(places[chosen], hits, np.ones_like(hits), np.bincount(objects, minlength=images))


def _precision(classes: int, groups: Groups) -> Draw:
    def draw(rng: np.random.Generator) -> Interval:
        replicates = precision_of_matches(_detections(rng, groups.images, classes), groups)["AP"]
        return score_interval(replicates, scale="proportion", images=groups.independent)

    return draw


# ---------------------------------------------------------------------- paired differences


def difference_cases() -> Iterator[tuple[str, int, float, Draw]]:
    for better, worse in ((0.02, 0.01), (0.15, 0.05), (0.25, 0.2)):
        for images in (30, 100, 1000):
            name = f"accuracy difference, {100 * (better + worse):g} % of answers differ"
            yield name, images, better - worse, _difference(better, worse, groups_of(images))
    for images in (30, 100, 1000):
        truth = _grid_truth(0.42)[1:].mean() - _grid_truth(0.45)[1:].mean()
        yield "difference of means over 75 cells", images, truth, _grid_difference(groups_of(images))


def _difference(better: float, worse: float, groups: Groups) -> Draw:
    def draw(rng: np.random.Generator) -> Interval:
        luck, base = rng.random(groups.images), rng.random(groups.images) < 0.7
        first = np.where(luck < better, 1.0, np.where(luck < better + worse, 0.0, base))
        second = np.where(luck < better, 0.0, np.where(luck < better + worse, 1.0, base))
        return paired_difference(first, second, groups=groups)

    return draw


def _grid_difference(groups: Groups) -> Draw:
    offsets = [_offsets(error)[1:] for error in (0.42, 0.45)]

    def draw(rng: np.random.Generator) -> Interval:
        hard = rng.normal(size=(groups.images, 1)) + 0.7 * rng.normal(size=(groups.images, CELLS))
        noise = [np.sqrt(0.51) * rng.normal(size=(groups.images, CELLS)) for _ in offsets]
        right = [(offset + hard + own > 0).mean(axis=1) for offset, own in zip(offsets, noise, strict=True)]
        replicates = replicated_means(np.stack(right, axis=1), groups)
        return difference_interval(replicates[:, 0] - replicates[:, 1], images=groups.independent)

    return draw


# ---------------------------------------------------------------------- shape bias, domains: shares of other shares


def cue_cases() -> Iterator[tuple[str, int, float, Draw]]:
    """Stimuli as published: eight textures for every content image, all left out together."""
    truth = _bias(_answers(np.random.default_rng(3), MANY).mean(axis=0))
    for images in (200, 1000):
        yield "shape bias", images, truth, _cues(images // 8)


def _answers(rng: np.random.Generator, contents: int) -> np.ndarray:
    """0/1 answers with the shape and with the texture, (8 · contents, 2); a content image is hard for all textures."""
    skill = np.repeat(rng.normal(size=contents), 8) * 0.7
    shape = rng.random(8 * contents) < norm.cdf(-0.9 + skill)
    texture = ~shape & (rng.random(8 * contents) < 0.5)
    return np.stack([shape, texture], axis=1).astype(float)


def _bias(means: np.ndarray) -> float:
    return float(means[0] / (means[0] + means[1]))


def _cues(contents: int) -> Draw:
    names = list(published("imagenet_16")["classes"])
    stimuli = [
        f"{names[content % 16]}/{names[content % 16]}{1 + content // 16}-{names[texture]}1.png"
        for content in range(contents)
        for texture in range(8)
    ]
    groups = image_groups(stimuli)
    keys = [(KIND, SHAPE), (KIND, TEXTURE), (KIND, CUE), (KIND, CONFLICT)]
    formula = cue_scores([CellSpec(KIND, "set", KIND)], columns=keys)[0]

    def draw(rng: np.random.Generator) -> Interval:
        shape, texture = _answers(rng, contents).T
        columns = dict(zip(keys, (shape, texture, shape + texture, np.ones(len(shape))), strict=True))
        return _as_shares(interval_of_score(formula, replicate(columns, groups)))

    return draw


def domain_cases() -> Iterator[tuple[str, int, float, Draw]]:
    """Four domains, the last with two images of five; the last two are equal, or 5 points apart."""
    for apart in (0.0, 0.05):
        of = np.array([0.9, 0.7, 0.5 + apart, 0.5])
        truths = {"mean": of.mean(), "worst": of.min(), "gap": of[0] - of[1:].mean()}
        for name in ("mean", "gap", "worst") if not apart else ("worst",):
            for images in (100, 1000):
                beside = (
                    (f", {100 * apart:g} points below the next" if apart else ", two equal") if name == "worst" else ""
                )
                yield f"{name} of four domains{beside}", images, truths[name], _domains(of, name, images)


def _domains(of: np.ndarray, score: str, images: int) -> Draw:
    place = 3 - np.arange(images) % 5 % 4  # two images of five are of the last domain
    ids = [f"{one}/{number:06d}" for number, one in enumerate(place)]
    groups = image_groups(ids)
    inside = {f"{IN}{name}": (place == name).astype(float) for name in range(4)}
    keys = [("clean", kind + str(name)) for name in range(4) for kind in (IN, RIGHT_IN)]
    cells, header = [CellSpec("clean", "clean", "clean")], {"train_domains": ["0"]}
    formulas = domain_scores(cells, columns=keys, header=header, name="accuracy", label="accuracy")
    wanted = {"mean": "mean_domain_accuracy", "worst": "worst_domain_accuracy", "gap": "domain_gap"}[score]
    formula = next(one for one in formulas if one.name == wanted)

    def draw(rng: np.random.Generator) -> Interval:
        right = (rng.random(images) < of[place]).astype(float)
        columns = {("clean", name): values for name, values in inside.items()}
        columns |= {("clean", name.replace(IN, RIGHT_IN)): values * right for name, values in inside.items()}
        return _as_shares(interval_of_score(formula, replicate(columns, groups)))

    return draw


def _as_shares(found: Interval) -> Interval:
    return Interval(found.value / 100, found.low / 100, found.high / 100, found.level)


PARTS: dict[str, Callable[[], Iterator[tuple[str, int, float, Draw]]]] = {
    "accuracy": accuracy_cases,
    "grid": grid_cases,
    "differences": difference_cases,
    "miou": miou_cases,
    "ap": ap_cases,
    "cues": cue_cases,
    "domains": domain_cases,
}


def as_markdown(content: dict[str, Any]) -> str:
    """A row per score, a column per number of images: coverage in percent, then the width by the ideal one."""
    rows = [row for part in content["parts"].values() for row in part]
    sizes = sorted({row["images"] for row in rows})
    lines = [
        f"{content['simulations']} simulations per cell, nominal 95 %. Coverage in %; in brackets the mean width by "
        f"the ideal one. {as_line(content['environment'])}",
        "",
        f"| score | {' | '.join(f'{size} images' for size in sizes)} |",
        f"|---|{'---|' * len(sizes)}",
    ]
    for score in dict.fromkeys(row["score"] for row in rows):
        own = [row for row in rows if row["score"] == score]
        if score.startswith("AP"):
            lines.append(_line(f"{score}, AP of sets of this size", sizes, own, key="coverage_of_mean"))
            lines.append(_line(f"{score}, AP of a very large set", sizes, own))
        else:
            lines.append(_line(score, sizes, own))
    return "\n".join(lines) + "\n"


def _line(score: str, sizes: list[int], rows: list[dict[str, Any]], *, key: str = "coverage") -> str:
    cells = {row["images"]: _cell(row, key) for row in rows}
    score = score.replace("1 classes", "1 class")
    return f"| {score} | {' | '.join(cells.get(size, '') for size in sizes)} |"


def _cell(row: dict[str, Any], key: str) -> str:
    width = f" ({row['width_by_ideal']:.2f})" if row["width_by_ideal"] is not None else ""
    return f"{row[key]:.1f}{width}"


if __name__ == "__main__":
    main()
