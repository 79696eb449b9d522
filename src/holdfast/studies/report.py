"""Report of a study: a table, plots and a verdict on every claim, recomputed from the results."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.markdown import escape, table
from holdfast.metrics.intervals import FEW_IMAGES, Interval, Spread, over_seeds
from holdfast.studies.columns import Column, available, scores, shared_seeds, verdict
from holdfast.studies.config import Claim, Study
from holdfast.studies.differences import difference, pooled_rows
from holdfast.studies.figures import Results, counted_seeds, figures, traced_names, trade_off_columns
from holdfast.studies.measure_run import has_draws_only
from holdfast.studies.results import RunResult


def write_page(study: Study, results: Results, *, out: Path) -> Path:
    """Write ``summary.md``, ``table.csv`` and the plots; return the path of the page."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, figure in figures(results).items():
            with atomic.replace_file(out / f"{name}.png") as temporary:
                figure.savefig(temporary, dpi=130, format="png")
        atomic.write_text(out / "table.csv", csv_table(results))
        atomic.write_text(out / "summary.md", page(study, results))
    except OSError as error:
        raise HoldfastError(f"out must be a writable folder, got {str(out)!r} ({error.strerror})") from error
    return out / "summary.md"


def page(study: Study, results: Results) -> str:
    """Render the whole page as Markdown."""
    columns = available(results)
    parts = [
        f"# {escape(study.title or study.name)}",
        markdown_table(results),
        "\n".join(f"- **{column.title}**: {column.says}" for column in columns.values()),
        "Mean ± standard deviation over the seeds. " + _images(results),
        "![all rows](rows.png)",
    ]
    if len(results) > 1:
        first = next(iter(results))
        parts += [f"## Against {escape(first)}", difference_table(results), f"*{interval_note(results)}*"]
        parts += ["![differences](differences.png)"]
    if trade_off_columns(results):
        parts += ["![clean against robust](trade_off.png)"]
    if any("/" in name for runs in results.values() for name in runs[0].measures):
        parts += ["## Every prediction", views_table(results)]
    if judged := judged_claims(study, results):
        parts += ["## What the papers say", claims_table(judged, results)]
    if traced_names(results):
        parts += ["## While training", "![what the training logged](training.png)"]
    return "\n\n".join(parts) + "\n"


def markdown_table(results: Results) -> str:
    """Table of rows × columns, mean ± standard deviation over seeds."""
    columns = available(results)
    head = ["", *(column.title for column in columns.values()), "seeds", "processor min"]
    body = [
        [escape(row), *(_score(column, runs) for column in columns.values()), str(len(runs)), _minutes(runs)]
        for row, runs in results.items()
    ]
    return table(head, body, numbers=range(1, len(head))) + (
        f"\n\n*{left_out}*" if (left_out := _left_out(results)) else ""
    )


def difference_table(results: Results) -> str:
    """Table of differences from the first row, with 95 % intervals over images and seeds."""
    columns, (first, *others) = available(results), results
    body = []
    for row in others:
        compared = bool(shared_seeds(results[row], results[first]))
        cells = [
            _format_difference(difference(column, results, row, first), percent=column.in_percent) if compared else "–"
            for column in columns.values()
        ]
        body.append([escape(row), *cells])
    head = ["", *(column.title for column in columns.values())]
    return table(head, body, numbers=range(1, len(head)))


def interval_note(results: Results) -> str:
    """Note on the intervals of `difference_table`, and on rows with few seeds."""
    first, *others = results
    pooled, drawn = pooled_rows(results), any(has_draws_only(run) for runs in results.values() for run in runs)
    how = "standard deviation of stored draws of the images" if drawn else "jackknife over the images"
    seeds = f", seed variance pooled over {pooled} rows." if pooled else "; one seed: images only."
    notes = [f"95 % intervals: {how}{seeds}"]
    for count, words in ((1, "One seed"), (2, "Two seeds")):
        few = [escape(row) for row in others if len(shared_seeds(results[row], results[first])) == count]
        if few and pooled:
            notes.append(f"{words}: {', '.join(few)}.")
    if drawn:
        notes.append("Jackknife replicates need a new run.")
    if (fewest := min(_counts(results), default=FEW_IMAGES)) < FEW_IMAGES:
        notes.append(f"Few images: {fewest}.")
    return " ".join(notes)


def views_table(results: Results) -> str:
    """Accuracy of every prediction of models with several (TORA, second table), mean over seeds, in percent."""
    columns = available(results)
    names = [
        column.shows.removeprefix("attack/") if "attack/" in column.shows else name for name, column in columns.items()
    ]
    body = []
    for row, runs in results.items():
        views = list(dict.fromkeys(name.partition("/")[0] for name in runs[0].measures if "/" in name))
        if views:
            body.append([escape(row), "joint", *(_score(column, runs) for column in columns.values())])
            body += [[escape(row), view, *(_view_score(f"{view}/{name}", runs) for name in names)] for view in views]
    head = ["", "prediction", *(column.title for column in columns.values())]
    return table(head, body, numbers=range(1, len(head)))


def _view_score(measure: str, runs: Sequence[RunResult]) -> str:
    if not all(measure in run.measures for run in runs):
        return "–"
    return _format_spread(over_seeds([100 * float(np.mean(run.measures[measure])) for run in runs]), percent=True)


def judged_claims(study: Study, results: Results) -> list[Claim]:
    """The claims for which the finished runs have results."""
    columns = available(results)

    def is_decidable(claim: Claim) -> bool:
        pair = results.get(claim.row, ()), results.get(claim.against, ())
        known = claim.column in columns and shared_seeds(*pair)
        rows = claim.row, claim.against
        return bool(known) and not math.isnan(difference(columns[claim.column], results, *rows).value)

    return [claim for claim in study.claims if is_decidable(claim)]


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim: the difference, its text, and the number of seeds.

    ``images_only`` means that the interval ignores seeds, because no two rows of the study share two of them.
    """

    verdict: str
    interval: Interval
    text: str
    seeds: int
    images_only: bool = False

    @property
    def summary(self) -> str:
        """The verdict as text for tables."""
        return f"**{self.verdict}** ({counted_seeds(self.seeds)}{': images only' if self.images_only else ''})"


def verdict_of(claim: Claim, results: Results) -> Verdict:
    """Decide one of `judged_claims`."""
    pair = results[claim.row], results[claim.against]
    column = available(results)[claim.column]
    interval = difference(column, results, claim.row, claim.against)
    text = _format_difference(interval, percent=column.in_percent)
    images_only = not pooled_rows(results)
    return Verdict(verdict(interval, claim.expects), interval, text, len(shared_seeds(*pair)), images_only)


def claims_table(claims: Sequence[Claim], results: Results) -> str:
    """Table of claims with differences and verdicts."""
    body = []
    for claim in claims:
        found = verdict_of(claim, results)
        measured = f"{escape(claim.row)} − {escape(claim.against)}, {available(results)[claim.column].title}"
        body.append([escape(claim.says), measured, found.text, found.summary])
    return table(["claim", "measured", "difference (95 %)", "verdict"], body, numbers=(1, 2, 3))


def csv_table(results: Results) -> str:
    """CSV with one line per run: the raw scores behind the table."""
    columns = available(results)
    lines = [",".join(["row", "seed", *columns])]
    for row, runs in results.items():
        for run in runs:
            values = [f"{scores(column, [run]).mean:.6g}" for column in columns.values()]
            lines.append(",".join([quote_csv(row), str(run.seed), *values]))
    return "\n".join(lines) + "\n"


def terminal_tables(study: Study, results: Results, *, width: int) -> list[Table]:
    """The table for a terminal, split into parts that fit its width."""
    rows = [row.replace("[", r"\[") for row in results]
    columns = {
        column.title: [_score(column, runs) for runs in results.values()] for column in available(results).values()
    }
    columns["seeds"] = [str(len(runs)) for runs in results.values()]
    parts: list[dict[str, list[str]]] = [{}]
    left = room = width - max(map(len, ["row", *results])) - 4
    for title, cells in columns.items():
        needed = max(map(len, [title, *cells])) + 3
        if needed > left and parts[-1]:
            parts.append({})
            left = room
        parts[-1][title] = cells
        left -= needed
    tables = []
    for number, part in enumerate(parts):
        table = Table(title=(study.title or study.name) if number == 0 else None)
        table.add_column("row", no_wrap=True)
        for title in part:
            table.add_column(title, justify="right", no_wrap=True)
        for place, row in enumerate(rows):
            table.add_row(row, *(cells[place] for cells in part.values()))
        tables.append(table)
    tables[-1].caption = " ".join(filter(None, ["Mean ± standard deviation over the seeds.", _left_out(results)]))
    return tables


def _score(column: Column, runs: Sequence[RunResult]) -> str:
    return _format_spread(scores(column, runs), percent=column.in_percent)


def _format_spread(spread: Spread, *, percent: bool) -> str:
    if math.isnan(spread.mean):
        return "–"
    digits = 1 if percent or abs(spread.mean) >= 2 else 3
    deviation = "" if spread.count == 1 else f" ± {spread.std:.{digits}f}"
    return f"{spread.mean:.{digits}f}{deviation}"


def _format_difference(interval: Interval, *, percent: bool) -> str:
    if math.isnan(interval.value):
        return "–"
    known = [abs(bound) for bound in (interval.value, interval.low, interval.high) if not math.isnan(bound)]
    digits = 3 if max(known) < 0.5 and not percent else 1
    if len(known) == 1:  # no standard error
        return f"{interval.value:+.{digits}f} (– to –)"
    bold = "**" if interval.excludes_zero else ""
    return f"{bold}{interval.value:+.{digits}f}{bold} ({interval.bounds(f'+.{digits}f')})"


def _minutes(runs: Sequence[RunResult]) -> str:
    spent = [run.header.get("processor_seconds", {}).get("train") for run in runs]
    known = [seconds for seconds in spent if seconds]
    return f"{np.mean(known) / 60:.1f}" if known else "–"


def _counts(results: Results) -> set[int]:
    """Numbers of images on which runs were evaluated."""
    every = [run for runs in results.values() for run in runs]
    counts = {len(values) for run in every for values in run.right.values()}
    return counts | {run.header["measured_images"] for run in every if "measured_images" in run.header}


def _images(results: Results) -> str:
    counts = _counts(results)
    return f"Measured on {'–'.join(map(str, sorted(counts)))} test images." if counts else ""


def _left_out(results: Results) -> str:
    """Sentence about corruptions and attacks that are excluded because they were corrected between runs."""
    kinds = sorted({kind for runs in results.values() for run in runs for kind in run.header.get("left_out", ())})
    if not kinds:
        return ""
    return f"Without {', '.join(kinds)}: corrected since some of these runs were measured."


def quote_csv(text: str) -> str:
    """Quote a CSV cell; an apostrophe keeps spreadsheets from running text as a formula."""
    text = f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text
