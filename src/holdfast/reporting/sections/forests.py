"""Differences from a baseline by kind: one forest plot and one table per metric, with groups of kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.corruptions.severities import PUBLISHED, table_group
from holdfast.metrics.comparison import Difference
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.figures.charts import ReportFigure, svg_picture
from holdfast.reporting.figures.forest import ForestModel, ForestRow, forest, forest_rows, panels
from holdfast.reporting.formatting import kind_label, number, signed, span
from holdfast.reporting.quantities import is_tested, kind_words, partial_words, short_label
from holdfast.reporting.sections.decision import Pairs

FAMILIES = {"attack": "attacks", "set": "other sets", "condition": "conditions", "domain": "domains"}
METRICS = {
    "accuracy": "Accuracy",
    "miou": "mIoU",
    "ap": "Box AP",
    "mask_ap": "Mask AP",
    "iou": "IoU by class",
    "band": "mIoU by distance to the boundary",
}
MOST = 7  # models in one plot
ASIDE = ("iou", "band")  # of clean images: not how a model holds under corruption


@dataclass(frozen=True)
class ComparedCell:
    """One difference of a table: value of the model, difference, interval."""

    entry: Entry
    value: str = ""
    difference: str = ""
    interval: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class ComparedRow:
    """One kind; without cells, the heading of a group."""

    label: str
    baseline: str = ""
    cells: Sequence[ComparedCell] = ()


@dataclass(frozen=True)
class Compared:
    """All models against one baseline by kind in one metric."""

    metric: str
    models: Sequence[Entry]
    figure: ReportFigure
    rows: Sequence[ComparedRow]
    aside: bool
    chosen: str = ""  # which models these are, if not all


def compared_by_kind(data: DataSet, pairs: Pairs, place: int, *, anchor: str) -> list[Compared]:
    """One figure and table per metric against the model at this place."""
    models = data.shown_models
    others = [(other, models[other]) for other in range(len(models)) if (other, place) in pairs]
    others = _best_of([(other, entry) for other, entry in others], data) if len(others) > MOST else others
    differences = {other: pairs[other, place].differences for other, _ in others}
    every = {name: each for found in differences.values() for name, each in found.items()}
    found = []
    for table in dict.fromkeys(each.table for each in every.values() if _is_shown(each)):
        groups = list(_groups(data, every, table))
        if not any(names for _, names in groups):
            continue
        name = f"{anchor}-by-{table.replace('_', '-')}-{place + 1}"
        found.append(
            _compared(
                data,
                [(entry, differences[other]) for other, entry in others],
                models[place],
                groups,
                every,
                table,
                name,
            )
        )
    return found


def _best_of(others: Sequence[tuple[int, Entry]], data: DataSet) -> list[tuple[int, Entry]]:
    """The best by the ranked score, in the order of the page; more are not told apart in one plot."""
    by = data.ranked_by
    known = [each for each in others if by is not None and by.name in each[1].summary]
    sign = -1 if by is not None and by.better == "high" else 1
    best = sorted(known, key=lambda each: sign * each[1].summary[by.name].value if by is not None else 0.0)[:MOST]
    return [each for each in others if each in best]


def _is_shown(difference: Difference) -> bool:
    return difference.table in METRICS or (
        difference.family == "corruption"
        and bool(difference.table)
        and difference.unit == "%"
        and difference.better == "high"
    )


def _groups(data: DataSet, every: Mapping[str, Difference], table: str) -> Iterator[tuple[str, list[str]]]:
    """Headings and score names: overall, groups of corruptions, attacks, other sets and domains."""
    own = [name for name, each in every.items() if each.table == table]
    if table in ASIDE:
        yield "", own
        return
    prefix = "mask_" if table.startswith("mask_") else ""
    tested = [
        name for name, each in every.items() if is_tested(each, data.task) and name.startswith("mask_") == bool(prefix)
    ]
    yield "overall", [name for name in tested if every[name].family in ("", "clean", "corruption")]
    kinds = {every[name].kind: name for name in own if every[name].family == "corruption"}
    ordered = [*(kind for kind in PUBLISHED if kind in kinds), *(kind for kind in kinds if kind not in PUBLISHED)]
    for group in dict.fromkeys(map(table_group, ordered)):
        yield group, [kinds[kind] for kind in ordered if table_group(kind) == group]
    for family in dict.fromkeys(every[name].family for name in tested):
        if family not in ("", "clean", "corruption"):
            yield FAMILIES.get(family, family), [name for name in tested if every[name].family == family]


def _compared(
    data: DataSet,
    others: Sequence[tuple[Entry, Mapping[str, Difference]]],
    baseline: Entry,
    groups: Sequence[tuple[str, list[str]]],
    every: Mapping[str, Difference],
    table: str,
    name: str,
) -> Compared:
    metric = METRICS.get(table, kind_label(table))
    partial = partial_words(every[name] for _, names in groups for name in names if _is_kind(every[name]))
    drawn: list[ForestRow] = []
    lines: list[ComparedRow] = []
    for heading, names in groups:
        if heading and names:
            drawn.append(ForestRow(heading, {}))
            lines.append(ComparedRow(heading))
        for score in names:
            label = kind_words(every[score]) if partial and _is_kind(every[score]) else _label(every[score])
            known = {entry.label: found[score] for entry, found in others if score in found}
            drawn.append(ForestRow(label, {key: each.interval for key, each in known.items()}))
            cells = [_cell(entry, known.get(entry.label)) for entry, _ in others]
            lines.append(ComparedRow(label, number(next(iter(known.values())).second), cells))
    models = [ForestModel(entry.label, entry.number) for entry, _ in others]
    title = (
        f"{metric}: differences from {baseline.name}"
        if table in ASIDE
        else f"{metric} by kind{f', {partial}' if partial else ''}: differences from {baseline.name}"
    )
    figure = svg_picture(
        lambda: forest(drawn, models, baseline=baseline.name),
        name=name,
        title=title,
        rows=forest_rows(drawn, baseline=baseline.name),
        wide=len(panels(drawn, models)) > 1,
    )
    return Compared(metric, [entry for entry, _ in others], figure, lines, table in ASIDE, _chosen(data, others))


def _chosen(data: DataSet, others: Sequence[tuple[Entry, Mapping[str, Difference]]]) -> str:
    count = len(data.shown_models) - 1
    by = f" by {data.ranked_by.label}" if data.ranked_by is not None else ""
    return f"The best {len(others)} of {count} models{by}. " if len(others) == MOST < count else ""


def _is_kind(difference: Difference) -> bool:
    return difference.family == "corruption" and bool(difference.kind)


def _label(difference: Difference) -> str:
    if difference.table == "iou" and difference.kind.isdigit():
        return f"class {difference.kind}"
    return short_label(difference)


def _cell(entry: Entry, difference: Difference | None) -> ComparedCell:
    if difference is None:
        return ComparedCell(entry, "–")
    interval = difference.interval
    bounds = "" if interval.low != interval.low else span(interval.low, interval.high)
    return ComparedCell(entry, number(difference.first), signed(interval.value), bounds, difference.verdict)
