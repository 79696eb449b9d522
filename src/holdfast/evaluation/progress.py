"""Progress display of an evaluation: images done, time left and running scores."""

import math
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np

from holdfast.cells import CLEAN, CellSpec, corruption_cell
from holdfast.corruptions.severities import SEVERITIES, STANDARD
from holdfast.metrics.corruption import Values, corruption_errors, mean_corruption_accuracy, mean_corruption_error
from holdfast.metrics.scoring.interface import RunningScore
from holdfast.runtime.progress import ProgressLine

REFRESH = 0.1  # seconds between two lines of scores
SPOKEN = 10.0  # seconds between two lines of estimates in piped output


class RunningScores:
    """Running score of every cell, for tasks whose score follows from sums; averages corruptions over ``kinds``."""

    def __init__(self, running: RunningScore | None, kinds: Sequence[str] = STANDARD) -> None:
        self.running, self.kinds = running, kinds
        self.sums: dict[CellSpec, np.ndarray] = {}

    def add(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Add the sums of some images of a cell."""
        if sums is not None:
            self.sums[cell] = self.sums[cell] + sums if cell in self.sums else sums

    def score(self, cell: CellSpec) -> float | None:
        """The running score of a cell, from 0 to 1; None if it has none yet."""
        if self.running is None or cell not in self.sums:
            return None
        value = float(self.running.score(self.sums[cell]))
        return None if math.isnan(value) else value

    def line(self, *, imagenet: bool) -> str:
        """The clean score and the running mCE; the mean corruption score for data other than ImageNet."""
        words, name = [], f" {self.running.word}" if self.running is not None and self.running.word else ""
        if (clean := self.score(CLEAN)) is not None:
            words.append(f"clean{name} {100 * clean:.1f} %")
        errors = self._errors()
        if errors and imagenet:
            mce = mean_corruption_error(corruption_errors(errors, kinds=tuple(errors)), kinds=tuple(errors))
            words.append(f"mCE {mce:.1f}{self._of(errors)}")
        elif errors:
            accuracy = 100 * mean_corruption_accuracy(errors, kinds=tuple(errors))
            words.append(f"corrupted{name} {accuracy:.1f} %{self._of(errors)}")
        return ", ".join(words)

    def _errors(self) -> dict[str, list[Values]]:
        """The running errors of the kinds that have all severities."""
        found: dict[str, list[Values]] = {}
        for kind in self.kinds:
            scores = [self.score(corruption_cell(kind, severity)) for severity in SEVERITIES]
            if all(score is not None for score in scores):
                found[kind] = [1 - score for score in scores if score is not None]
        return found

    def _of(self, errors: dict[str, list[Values]]) -> str:
        return "" if len(errors) == len(self.kinds) else f" ({len(errors)} of {len(self.kinds)} kinds)"


class ProgressDisplay:
    """Progress of an evaluation: a bar on a terminal, or lines if the output is piped and ``show`` is set.

    ``pending`` counts the units of every suite, and ``suites`` maps a cell to its suite.
    """

    def __init__(
        self,
        *,
        total: int,
        imagenet: bool,
        show: bool | None,
        running: RunningScore | None = None,
        kinds: Sequence[str] = STANDARD,
        header: str = "",
        unit: str = "images",
        suites: Mapping[str, str] | None = None,
        pending: Mapping[str, int] | None = None,
    ) -> None:
        self.tally, self._imagenet = RunningScores(running, kinds), imagenet
        self._line = ProgressLine("evaluating", total=total, unit=unit, show=show, header=header)
        self._suites, self._pending, self._shown_at = suites or {}, dict(pending or {}), 0.0
        self._started = False

    def __enter__(self) -> "ProgressDisplay":
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def start_at(self, count: int) -> None:
        """Start at this many images, which were measured before."""
        self._started = True
        self._line.begin_at(count)

    def advance_images(self, count: int) -> None:
        """Advance by this many images."""
        self._line.advance(count)

    def finish_unit(self, cell: CellSpec, sums: np.ndarray | None) -> None:
        """Count a unit that was written to disk, and add its sums to the running score."""
        self.tally.add(cell, sums)
        if self._line.shown and time.monotonic() - self._shown_at > REFRESH:  # a finished evaluation reports thousands
            self._show(cell)
        suite = self._suites.get(cell.name, "")
        if suite in self._pending:
            self._pending[suite] -= 1
            if not self._pending[suite] and self._line.lines:
                self._show(cell)
                self._line.say(
                    f"suite {suite} " + (f"is done: {self._line.line()}" if self._started else "was finished before")
                )

    def warn(self, sentence: str) -> None:
        """Print a sentence even without progress, unless it is switched off."""
        self._line.warn(sentence)

    def expect(self, count: int) -> None:
        """Change the total to what is known by now."""
        self._line.expect(count)

    def show_estimates(self, estimates: Sequence[str], *, expected: int, passes: int, total: int) -> None:
        """Show the scores of an anytime evaluation so far; ``expected`` passes will do, as far as one can tell."""
        self._line.expect(expected)
        self._line.figures([*estimates, f"{passes:,} of {total:,} passes"])
        if self._line.lines and time.monotonic() - self._shown_at > SPOKEN:
            self._line.say(self._line.line())
            self._shown_at = time.monotonic()

    def _show(self, cell: CellSpec) -> None:
        self._line.advance(0, name=cell.name)
        self._line.figures([word for word in self.tally.line(imagenet=self._imagenet).split(", ") if word])
        self._shown_at = time.monotonic()
