"""Pairwise matrix: every model minus every other one on the same images, for each quantity of the decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.multiple_tests import Verdict
from holdfast.reporting.comparable import DataSet, Entry
from holdfast.reporting.formatting import NOT_MEASURED, signed, span, title_of
from holdfast.reporting.quantities import sentence_words, tested_scores
from holdfast.reporting.sections.decision import Pairs, ranked_verdicts


@dataclass(frozen=True)
class MatrixCell:
    """Row minus column: value, paired 95 % interval, and the verdict corrected for all pairs."""

    text: str = ""
    interval: str = ""
    word: str = ""

    @property
    def kind(self) -> str:
        """The verdict as a CSS class."""
        return self.word.replace(" ", "-")


@dataclass(frozen=True)
class Matrix:
    """One quantity of all pairs; the diagonal is empty."""

    score: str
    title: str
    models: Sequence[Entry]
    rows: Sequence[Sequence[MatrixCell]]
    pairs: int


def matrices(data: DataSet, pairs: Pairs) -> list[Matrix]:
    """One matrix per quantity, the ranked one first; none with fewer than two models."""
    models, by = data.shown_models, data.ranked_by
    scores = tested_scores(models, data.task, otherwise=by)
    scores.sort(key=lambda score: by is None or score.name != by.name)
    found = []
    for score in scores:
        verdicts = ranked_verdicts(pairs, score.name)
        if not verdicts:
            continue
        rows = [
            [_cell(verdicts.get((one, other)), one == other) for other in range(len(models))]
            for one in range(len(models))
        ]
        title = sentence_words(score, data.task)
        found.append(Matrix(score.name, title_of(title), models, rows, len(verdicts) // 2))
    return found


def _cell(verdict: Verdict | None, diagonal: bool) -> MatrixCell:
    if verdict is None:
        return MatrixCell("" if diagonal else NOT_MEASURED)
    interval = verdict.difference.interval
    bounds = "" if interval.low != interval.low else span(interval.low, interval.high)
    return MatrixCell(signed(interval.value), bounds, verdict.word)
