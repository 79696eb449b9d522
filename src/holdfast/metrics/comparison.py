"""Paired comparison of two models on the same images, and the spread of one recipe over seeds."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtr

from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.corruptions.severities import STANDARD
from holdfast.errors import HoldfastError
from holdfast.io.html_table import table
from holdfast.metrics.carry_over import CarryOver, carry_over
from holdfast.metrics.consistency import consistency_of_cells, consistent_cells
from holdfast.metrics.intervals import Interval, Spread, over_seeds, t_quantile
from holdfast.metrics.replicates import ImageChoice, Replicates, UsedImages, replicate_cells, used_images
from holdfast.metrics.score_intervals import interval_of_difference, is_same_model
from holdfast.metrics.score_lookup import why_not
from holdfast.metrics.scoring.base import ScoreDefinition
from holdfast.metrics.summary import formulas_of, image_choice, reference_for, summarise
from holdfast.records.class_map import answer_protocol, answer_protocol_words
from holdfast.records.compatibility import without_older
from holdfast.records.records import CellRecord, Passes, Records


@dataclass(frozen=True)
class Difference:
    """One score of two models on the same images: both values, and first minus second with interval.

    ``freedom`` are the degrees of freedom of its t interval; NaN if they are unknown.
    """

    name: str
    label: str
    unit: str
    better: str
    first: float
    second: float
    interval: Interval
    family: str = ""
    table: str = ""
    kind: str = ""
    headline: bool = False
    freedom: float = float("nan")

    @property
    def error(self) -> float:
        """Standard error of the difference; NaN if it is unknown."""
        return (self.interval.high - self.interval.low) / 2 / t_quantile(self.freedom, self.interval.level)

    @property
    def p_value(self) -> float:
        """Two-sided p value of no difference, by the t distribution of the interval; NaN if it is unknown."""
        if not self.error > 0:
            return float("nan") if np.isnan(self.error) else float(self.interval.value == 0)
        return float(2 * stdtr(self.freedom, -abs(self.interval.value) / self.error))

    def at_level(self, level: float) -> Interval:
        """The interval at another level."""
        half, value = t_quantile(self.freedom, level) * self.error, self.interval.value
        return Interval(value, value - half, value + half, level)

    def reversed(self) -> "Difference":
        """Second minus first."""
        turned = Interval(-self.interval.value, -self.interval.high, -self.interval.low, self.interval.level)
        return replace(self, first=self.second, second=self.first, interval=turned)

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` for the first model if the interval excludes 0; else ``unclear``.

        ``higher`` or ``lower`` for scores of which neither is better, such as shape bias.
        """
        if not self.interval.excludes_zero:
            return "unclear"
        if not self.better:
            return "higher" if self.interval.value > 0 else "lower"
        return "better" if (self.interval.value > 0) == (self.better == "high") else "worse"

    def __str__(self) -> str:
        bounds = self.interval.bounds("+.2f")
        return f"{self.label} {self.interval.value:+.2f} {self.unit} ({bounds}): {self.verdict}"


@dataclass(frozen=True)
class Comparison:
    """Differences of all scores that two models share, on their common images."""

    first: str
    second: str
    images: int
    differences: Mapping[str, Difference]
    carry_over: CarryOver | None = None  # of a gain on ImageNet-C to C-bar, where both were measured
    passes: Passes | None = None  # that both models have, if an evaluation stopped early
    consistency: Mapping[str, Interval] = field(default_factory=dict)  # error consistency of the models, by cell

    @property
    def about(self) -> str:
        """The two models, and on how many images they were compared."""
        passes = f", {self.passes}" if self.passes is not None else ""
        return f"{self.first} minus {self.second}, {self.images} images{passes}"

    def reversed(self) -> "Comparison":
        """Second minus first."""
        turned = {name: each.reversed() for name, each in self.differences.items()}
        return replace(self, first=self.second, second=self.first, differences=turned)

    def __str__(self) -> str:
        lines = [self.about, *map(str, self.differences.values())]
        lines += [f"error consistency on {cell}: {_kappa(found)}" for cell, found in self.consistency.items()]
        return "\n".join(lines + ([str(self.carry_over)] if self.carry_over is not None else []))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """HTML table of the differences for notebooks."""
        rows = [
            (
                each.label,
                f"{each.first:.2f}",
                f"{each.second:.2f}",
                f"{each.interval.value:+.2f} {each.unit}",
                each.interval.bounds("+.2f"),
                each.verdict,
            )
            for each in self.differences.values()
        ]
        head = ("score", self.first, self.second, "difference", "95 % interval", "verdict")
        below = f"; {self.carry_over}" if self.carry_over is not None else ""
        return table(f"{self.about}{below}", head, rows)


def compare(
    first: Records | Sequence[Records],
    second: Records | Sequence[Records],
    *,
    baseline: Records | None = None,
    intervals: bool = True,
    images: ImageChoice | None = None,
) -> Comparison:
    """Compare every common score, first minus second, with a paired 95 % interval.

    Uses only common cells of the same definition and images common to all of them. Both models leave out the same
    images, so what is hard for both cancels out: this finds differences that two separate intervals hide.

    For lists, as ``load_records`` returns them, record sets of the same data are compared with each other.
    ``intervals`` and ``images`` as in `holdfast.metrics.summary.summarise`.
    """
    if not isinstance(first, Records) or not isinstance(second, Records):
        pairs = _pairs(first, second)
        options: Any = {"baseline": baseline, "intervals": intervals, "images": images}
        found = [compare(one, other, **options) for one, other in pairs]
        return _join_comparisons(found, carried=_carry_over_of_pairs(pairs) if intervals else None)
    return _compare(first, second, baseline=baseline, intervals=intervals, images=images, known={})


Known = dict[tuple[int, tuple[str, ...], bytes, bytes], Replicates]  # by model, cells and images


def compare_all(models: Sequence[Records]) -> dict[tuple[int, int], Comparison]:
    """Compare every model with every other one, as `compare` does, by the places of the two.

    Pairs without a common cell or image are left out. What several pairs need is computed once.
    """
    found: dict[tuple[int, int], Comparison] = {}
    known: Known = {}
    for (one, first), (other, second) in combinations(enumerate(models), 2):
        if set(first.cells) & set(second.cells):
            with suppress(HoldfastError):  # unreadable images may leave no common ones
                comparison = _compare(first, second, baseline=None, intervals=True, images=None, known=known)
                found |= {(one, other): comparison, (other, one): comparison.reversed()}
    return found


def _compare(
    first: Records,
    second: Records,
    *,
    baseline: Records | None,
    intervals: bool,
    images: ImageChoice | None,
    known: Known,
) -> Comparison:
    if first.task != second.task:
        raise HoldfastError(f"records to compare must have the same task, got {first.task} and {second.task}")
    check_same_answers(first, second)
    given = first, second
    first, second = without_older(given)
    images = images or image_choice(first, second)
    cells = [name for name in first.cells if name in second.cells]
    if images == "own":  # evaluations that stopped at different times may share no image of some cell
        cells = [name for name in cells if np.isin(first.cells[name].ids, second.cells[name].ids).any()]
    if not cells:
        raise HoldfastError(
            "records to compare must have a common cell, but they have none: evaluate both on the same suite"
        )
    one, other = ({name: records.cells[name] for name in cells} for records in (first, second))
    used = used_images(one, other, images=images)
    _check_same_targets(one, other, used)
    groups = used.groups() if intervals else None
    models = []
    for records, held in zip(given, (one, other), strict=True):
        rows = b"".join(used.rows[name].tobytes() for name in used.rows)
        key = (id(records), tuple(held), used.ids.tobytes(), rows)
        if key not in known:
            known[key] = replicate_cells(held, used, groups)
        models.append(known[key])
    common = [key for key in models[0] if key in models[1]]
    if first.header.get("train_domains") != second.header.get("train_domains"):  # the gap would be another for each
        first = replace(first, header={**first.header, "train_domains": None})
    formulas = formulas_of(first, one, common, reference=reference_for(first, baseline))
    same = is_same_model(first.header, second.header) and first.current == second.current
    differences = {formula.name: _difference(formula, models, same_model=same) for formula in formulas}
    names, by_name = _names_apart(first, second), {formula.name: formula for formula in formulas}
    carried = carry_over(by_name, models, names=names) if intervals else None
    both = sum(len(used.of_cell(name)) for name in cells)
    total = max(int(records.header.get("images", len(used.ids))) for records in given) * len(cells)
    passes = Passes(both, total) if images == "own" else None
    sets = [name for name in consistent_cells(first, second) if first.cells[name].spec.family in ("clean", "set")]
    shared = None if used.rows else groups  # of all images, which every cell then has
    consistency = {
        name: consistency_of_cells(one[name], other[name], used.of_cell(name), shared)
        for name in sets
        if groups is not None and name in cells
    }
    return Comparison(*names, len(used.ids), differences, carried, passes, consistency)


def check_same_answers(first: Records, second: Records) -> None:
    """Refuse two models that chose among different classes, or whose outputs were aggregated differently."""
    if answer_protocol(first.header) != answer_protocol(second.header):
        ours, theirs = answer_protocol_words(first.header), answer_protocol_words(second.header)
        raise HoldfastError(
            f"records to compare must choose among the same answers, got {ours} and {theirs}: "
            "evaluate both with the same --class-map and --classes"
        )


def _kappa(found: Interval) -> str:
    return f"κ {found.text('.3f')}"


def _pairs(first: Records | Sequence[Records], second: Records | Sequence[Records]) -> list[tuple[Records, Records]]:
    """Pairs of record sets with the same data and protocol."""
    lists = [[each] if isinstance(each, Records) else list(each) for each in (first, second)]
    for records_of_one in lists:
        if not all(isinstance(records, Records) for records in records_of_one):
            raise HoldfastError("compare needs records, or lists of records as load_records returns them")
    keys = ("task", "data", "label", "preset", "seed", "limit")
    pairs = [
        (one, other)
        for one in lists[0]
        for other in lists[1]
        if all(one.header.get(key) == other.header.get(key) for key in keys)
        and answer_protocol(one.header) == answer_protocol(other.header)
    ]
    if not pairs:
        data = [", ".join(dict.fromkeys(str(r.header.get("data")) for r in each)) or "none" for each in lists]
        raise HoldfastError(f"records to compare must have the same data and protocol, got {data[0]} and {data[1]}")
    return pairs


def _carry_over_of_pairs(pairs: Sequence[tuple[Records, Records]]) -> CarryOver | None:
    """Of C and C-bar in record sets of their own, as stored sets are; on the images that both sets have."""
    found = (carry_over_of_sets(one, other) for one, other in combinations(pairs, 2))
    return next((carried for carried in found if carried is not None), None)


def carry_over_of_sets(one: Sequence[Records], other: Sequence[Records]) -> CarryOver | None:
    """Whether a gain on C carries over, where two models' records of C and of C-bar are sets of their own.

    None unless both sets are of the same models under the same protocol, share images, and only together have both.
    """
    told = ("task", "label", "preset", "model_fingerprint")
    pairs = list(zip(one, other, strict=True))
    if any(a.current != b.current or any(a.header.get(key) != b.header.get(key) for key in told) for a, b in pairs):
        return None
    sides = [replace(a, by_view={a.current: {**a.cells, **b.cells}}) for a, b in pairs]
    if not all(_has_both(side.cells) for side in sides) or any(_has_both(each.cells) for each in (*one, *other)):
        return None
    try:
        return compare(sides[0], sides[1]).carry_over
    except HoldfastError:  # no image in common
        return None


def _has_both(cells: Mapping[str, CellRecord]) -> bool:
    kinds = {cell.spec.kind for cell in cells.values() if cell.spec.family == "corruption"}
    return {*STANDARD} <= kinds and any({*bar} <= kinds for bar in C_BAR_SUITES.values())


def _join_comparisons(found: Sequence[Comparison], *, carried: CarryOver | None) -> Comparison:
    """Join several comparisons; a score name that occurs twice gets a number."""
    if len(found) == 1:
        return found[0]
    differences: dict[str, Difference] = {}
    for number, comparison in enumerate(found, start=1):
        for name, each in comparison.differences.items():
            again = name in differences
            key = f"{name} ({number})" if again else name
            differences[key] = replace(each, name=key, label=f"{each.label} ({number})") if again else each
    carried = next((each.carry_over for each in found if each.carry_over is not None), carried)
    consistency = {cell: value for each in found for cell, value in each.consistency.items()}
    most = max(each.images for each in found)
    return Comparison(found[0].first, found[0].second, most, differences, carried, consistency=consistency)


class Spreads(dict[str, Spread]):
    """Spreads by score name; a missing score raises an error with the reason."""

    def __init__(self, found: Mapping[str, Spread], header: Mapping[str, Any]) -> None:
        super().__init__(found)
        self._header = header

    def __missing__(self, name: str) -> Spread:
        raise HoldfastError(f"score must be one that all runs have, got {name!r}{why_not(name, self, self._header)}")


def over_runs(runs: Sequence[Records], *, baseline: Records | None = None) -> Spreads:
    """Mean ± sample standard deviation of every common score of several runs: the variation between trainings."""
    if not runs:
        raise HoldfastError("runs must hold at least one record set, got none")
    summaries = [summarise(records, baseline=baseline, intervals=False) for records in without_older(runs)]
    names = [name for name in summaries[0].scores if all(name in summary for summary in summaries)]
    values = {name: [summary[name].value for summary in summaries] for name in names}
    spreads = {name: over_seeds(each) for name, each in values.items() if np.isfinite(each).all()}
    return Spreads(spreads, runs[0].header)


def _difference(formula: ScoreDefinition, models: Sequence[Replicates], *, same_model: bool) -> Difference:
    first, second = (float(model.score(formula)[0]) for model in models)
    interval = interval_of_difference(formula, models, same_model=same_model)
    freedom = models[0].groups_of(formula).count - 1 if models[0].groups is not None else float("nan")
    return Difference(
        formula.name,
        formula.label,
        formula.unit,
        formula.better,
        first,
        second,
        interval,
        family=formula.family,
        table=formula.table,
        kind=formula.kind,
        headline=formula.headline,
        freedom=freedom,
    )


def _check_same_targets(one: Mapping[str, CellRecord], other: Mapping[str, CellRecord], used: UsedImages) -> None:
    cell = next(iter(one))
    answers = [dict(zip(group[cell].ids, group[cell].targets.tolist(), strict=True)) for group in (one, other)]
    different = [id for id in used.of_cell(cell) if answers[0][id] != answers[1][id]]
    if different:
        raise HoldfastError(
            f"records to compare must have the same targets, but {len(different)} images have another class "
            f"({different[0]} …)"
        )


def _names_apart(first: Records, second: Records) -> tuple[str, str]:
    """Names of the two models; equal names get the folder of their run, or first and second."""
    one, other = _name(first), _name(second)
    if one != other:
        return one, other
    folders = [str(records.folder.parent.parent) if records.folder else "" for records in (first, second)]
    if not all(folders) or folders[0] == folders[1]:
        folders = ["first", "second"]
    return f"{one} ({folders[0]})", f"{other} ({folders[1]})"


def _name(records: Records) -> str:
    model = str(records.header.get("model", "model"))
    return f"{model} ({records.current})" if records.current else model
