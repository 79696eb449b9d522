"""Puts stored numbers into the prose of README and docs: ``python docs/tools/make_numbers.py``.

A number that was measured stands in front of a comment that names it, ``2.24<!-- = perf/methods: steps, AFAT -->``, and
is written anew from what is stored; the words around it are free. The names:

- ``perf/FILE: KEY, KEY…``, a value in ``perf/results/FILE.json``;
- ``measured/FILE.csv: ROW, COLUMN`` and ``STUDY PART: ROW, COLUMN``, a cell of a file or of a generated table;
- ``STUDY: ROW, COLUMN``, a score of a study; the rows ``highest`` and ``lowest`` are the extremes of a column;
- ``STUDY: ROW − OTHER, COLUMN``, a difference; ``STUDY: ROW − OTHER, COLUMN, verdict``, what the claim came to;
- ``STUDY: largest end, COLUMN``, the largest absolute end of the intervals of a column's differences;
- ``STUDY: claims``, ``STUDY: claims that hold`` and ``STUDY: claims that do not hold``, their numbers;
- a name of `DERIVED`.

A computed number keeps the decimals that it has on the page, a cell its own; an interval is copied where the page has
one. The tables come first: run ``make_results.py`` and ``make_measured.py`` before.
"""

import csv
import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
VERDICTS = ("holds", "does not hold", "not resolved")
INTERVAL = r" \([+-][\d.]+ to [+-][\d.]+\)"
NUMBER = rf"[+−-]?\d[\d,]*(?:\.\d+)?(?:{INTERVAL})?"
MARKED = re.compile(rf"(?P<shown>{NUMBER}|\b(?:{'|'.join((*WORDS, *VERDICTS))}))(?P<mark><!-- = (?P<name>[^\n]+?) -->)")
ANY_MARK = re.compile(r"<!-- = [^\n]*?-->")
TABLE = re.compile(r"<!-- (?P<study>[\w/]+): (?P<part>\w+) -->\n\n(?P<table>\|.*?)\n\n", re.DOTALL)

Value = float | str  # a number that was computed, or a cell as it stands in its table


def with_numbers(text: str, value: Callable[[str], Value]) -> str:
    """A page with every marked number written anew from the value of its name."""
    if lost := len(ANY_MARK.findall(text)) - len(MARKED.findall(text)):
        raise ValueError(f"{lost} of the page's marks follow no number: write one, and its name behind it")
    return MARKED.sub(lambda found: shown_as(found["shown"], value(found["name"])) + found["mark"], text)


def shown_as(before: str, value: Value) -> str:
    """The value in the form that the page has: a word, an interval, a sign, decimals and thousands."""
    if before in VERDICTS:
        return str(value)
    if isinstance(value, str):
        plain = value.replace("*", "")
        if "(" in before:
            return plain
        text = re.search(r"[+-]?[\d.]+", plain)[0]
        value = float(text)
    else:
        text = f"{value:{',' if ',' in before else ''}.{len(before.partition('.')[2])}f}"
    if before in WORDS:
        return WORDS[int(value)]
    sign = "+" if before[0] == "+" and value >= 0 else ""
    minus = "−" if before[0] == "−" else "-"
    return sign + text.removeprefix("+").replace("-", minus)


def value_of(name: str) -> Value:
    """What is stored under a name."""
    if name in DERIVED:
        return DERIVED[name]()
    table, _, place = name.partition(": ")
    if table.startswith("perf/"):
        return _benchmark(table.removeprefix("perf/"), *re.split(r", (?!\d+ px)", place))
    if table.endswith(".csv"):
        return _csv(table)[tuple(place.rsplit(", ", 1))]
    study, _, part = table.partition(" ")
    return _tables()[study, part][tuple(place.split(", ", 1))] if part else _of_study(study, place)


def _benchmark(file: str, *keys: str) -> float:
    value = json.loads((ROOT / "perf" / "results" / f"{file}.json").read_text(encoding="utf-8"))
    for key in keys:
        value = value[key]
    return value


@cache
def _csv(file: str) -> dict[tuple[str, str], str]:
    with (ROOT / "docs" / file).open(encoding="utf-8", newline="") as lines:
        head, *rows = csv.reader(lines)
    return {(row[0], title): cell for row in rows for title, cell in zip(head[1:], row[1:], strict=True)}


@cache
def _tables() -> dict[tuple[str, str], dict[tuple[str, str], str]]:
    """Every generated table of a study: its part, and its cells by row and column."""
    found = {}
    for page in PAGES:
        for block in TABLE.finditer(page.read_text(encoding="utf-8")):
            head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block["table"].splitlines())
            key = head.index("measured") if "measured" in head else 0
            found[block["study"], block["part"]] = {
                (row[key], title): cell for row in rows for title, cell in zip(head, row, strict=True)
            }
    return found


def _of_study(study: str, place: str) -> Value:
    scores, differences, claims = (_tables().get((study, part), {}) for part in ("table", "differences", "claims"))
    verdicts = [cell.split("**")[1] for (_, title), cell in claims.items() if title == "verdict"]
    counts = {"claims": len(verdicts)}
    counts |= {
        f"claims that {verb}": verdicts.count(said)
        for verb, said in (("hold", "holds"), ("do not hold", "does not hold"))
    }
    if place in counts:
        return counts[place]
    if place.endswith(", verdict"):
        return claims[place.removesuffix(", verdict"), "verdict"].split("**")[1]
    if (place, "difference (95 %)") in claims:
        return claims[place, "difference (95 %)"]
    row, column = place.rsplit(", ", 1)
    if row in ("highest", "lowest"):
        pick = max if row == "highest" else min
        return pick(
            (cell for (_, title), cell in scores.items() if title == column), key=lambda cell: float(cell.split()[0])
        )
    if row == "largest end":
        cells = (cell for (_, title), cell in differences.items() if title == column)
        return max(abs(float(end)) for cell in cells for end in re.findall(r"[+-][\d.]+", cell)[1:])
    first = next(iter(scores))[0]
    return differences[row.removesuffix(f" − {first}"), column] if row.endswith(f" − {first}") else scores[row, column]


def _ratio(what: str, how: str) -> float:
    return next(row["ratio"] for row in _benchmark("models", "rows") if (row["what"], row["how"]) == (what, how))


def _stronger(file: str, settings: str) -> float:
    """How many percent stronger than random patches an adversary is."""
    return float(_csv(f"measured/{file}.csv")[settings, "stronger than random"].removesuffix(" %"))


def _of_seed(seed: int) -> float:
    """Accuracy under corruption of plain fine-tuning with a seed."""
    with (ROOT / "studies" / "imagenette-pretrained" / "table.csv").open(encoding="utf-8", newline="") as lines:
        return next(
            float(row["corrupted"])
            for row in csv.DictReader(lines)
            if (row["row"], row["seed"]) == ("plain", str(seed))
        )


def _selection_change(after: int | None = None) -> float:
    """Percent of the patches that AFAT's quick adversary chose anew at step 40, or the most of any step after it."""
    from make_results import finished_study

    _, results = finished_study("cifar10/ablations")
    steps, shares = np.asarray(results["AFAT quick"][0].traces["selection_change"]).reshape(-1, 2).T
    return 100 * float(shares[steps == 40][0] if after is None else shares[steps > after].max())


@cache
def _trained_again() -> dict[str, int]:
    """Cells of TAP's seed 0 and of the same run trained again that are alike, and how the revised ones differ."""
    from holdfast.studies.results import read_result

    first, again = (
        read_result(ROOT / "studies" / f"cifar10-{name}-seed0.safetensors").right
        for name in ("main/results/TAP", "tap_branches/results/kwargs.tap-branches=4")
    )
    revised = [cell for cell in first if cell.startswith(("motion_blur/", "snow/"))]
    alike = [cell for cell in first if cell not in revised]
    if first.keys() != again.keys() or not all(np.array_equal(first[cell], again[cell]) for cell in alike):
        raise ValueError("the run that was trained again answers otherwise: the page says that it does not")
    return {
        "cells": len(alike),
        "answers": sum(len(first[cell]) for cell in revised),
        "changed": sum(int((first[cell] != again[cell]).sum()) for cell in revised),
    }


DERIVED: dict[str, Callable[[], float]] = {
    "FAN against ConvNeXt, forward": lambda: _ratio("fan_tiny_8_p4_hybrid / convnext_tiny", "forward"),
    "FAN against ConvNeXt, training": lambda: _ratio("fan_tiny_8_p4_hybrid / convnext_tiny", "training step"),
    "FAN against DeiT, forward": lambda: _ratio("fan_tiny_12_p16_224 / deit_tiny_patch16_224", "forward") + 1e-9,
    "FAN against DeiT, training": lambda: _ratio("fan_tiny_12_p16_224 / deit_tiny_patch16_224", "training step"),
    "TAP, forward, more %": lambda: 100 * (_ratio("FAN-B-Hybrid with / without TAP", "forward") - 1),
    "TAP, training, more %": lambda: 100 * (_ratio("FAN-T-Hybrid with / without TAP", "training step") - 1),
    "stability of FAN-T-Hybrid, GiB": lambda: _gibibytes("fan_tiny_8_p4_hybrid"),
    "stability of ViT-S, GiB": lambda: _gibibytes("vit_small_patch16_224"),
    "stability of FAN-B-Hybrid, GiB": lambda: _gibibytes("fan_base_16_p4_hybrid"),
    "Ray, more %": lambda: 100 * _benchmark("cluster", "scaling", "ray_overhead"),
    "AFAT quick, chosen anew at step 40 %": _selection_change,
    "AFAT quick, chosen anew later %": lambda: _selection_change(after=40),
    "TAP trained again, cells alike": lambda: _trained_again()["cells"],
    "TAP trained again, revised answers": lambda: _trained_again()["answers"],
    "TAP trained again, changed answers": lambda: _trained_again()["changed"],
    **{f"plain fine-tuning, C, seed {seed}": partial(_of_seed, seed) for seed in range(3)},
    "TORA, loss of C from λ 0.1 to 0.9": lambda: (
        -float(_of_study("imagenette/tora", "TORA 0.9 − TORA 0.1, C").split()[0].strip("*"))
    ),
    "adversary, lr 1, times": lambda: 1 + _stronger("adversary", "lr 1") / 100,
    "adversary, the most attention, times": lambda: 1 + _stronger("adversary", "the most attention") / 100,
    "adversary again, lr 1, times": lambda: 1 + _stronger("adversary_again", "lr 1") / 100,
    "adversary again, the most attention, times": lambda: 1 + _stronger("adversary_again", "the most attention") / 100,
    "adversary, released, less %": lambda: -_stronger("adversary", "released"),
    "adversary again, released, less %": lambda: -_stronger("adversary_again", "released"),
}


def _gibibytes(model: str) -> float:
    return _benchmark("analysis", "models", model, "megabytes") / 1024


def main() -> None:
    """Rewrite every page with marked numbers."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (made := with_numbers(text, value_of)) != text:
            page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
