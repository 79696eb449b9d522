"""Progress line of a long command: a bar on a terminal of any width, or lines with a header if output is piped."""

import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from holdfast.runtime.signals import unblock_signals

PATIENCE = 2.0  # seconds without a line where nobody asked for progress
EVERY = 30.0  # seconds between two lines of piped output
NAME, BAR, RATE, TIME = 18, 16, 9, 9  # characters


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{rate(task.speed)}/s" if task.speed else "–/s", justify="right")


class ProgressLine:
    """Progress bar on a terminal or in a notebook, else lines.

    ``show`` None prints lines only for what takes longer than two seconds; False prints nothing.
    """

    def __init__(self, name: str, *, total: int, unit: str, show: bool | None, header: str = "") -> None:
        self._silent = show is False
        notebook = Console().is_jupyter
        # in a notebook the bar is a widget; without ipywidgets rich would print a warning and no bar
        widgets = notebook and find_spec("ipywidgets") is not None
        # rich takes a pipe for a terminal if FORCE_COLOR is set, as kernels of notebooks and CI do
        pipe = False if notebook or not sys.stderr.isatty() else None
        self.console = Console(emoji=False, stderr=True, highlight=False, force_jupyter=widgets, force_terminal=pipe)
        self.console.soft_wrap = not self.console.is_terminal  # on a terminal, lines end between words
        terminal = self.console.is_terminal or widgets
        self.shown = show is not False
        self.lines = self.shown and not terminal
        self._quiet_until = time.monotonic() + (PATIENCE if show is None and self.lines else 0)
        self._name, self._total, self._unit, self._header = name, total, unit, header
        self._done, self._started, self._printed, self._first = 0, time.monotonic(), time.monotonic(), 0
        self._figures: Sequence[str] = ()
        self._header_due = True
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
            disable=not (self.shown and terminal),
        )
        self._bar = self._progress.add_task(name[:NAME], total=total, figures="")

    def __enter__(self) -> "ProgressLine":
        if self.lines:
            self.say()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin_at(self, done: int) -> None:
        """Start at this count, which was done before and does not enter the rate."""
        self._done = self._first = done
        self._started = time.monotonic()
        self._progress.update(self._bar, completed=done)

    def advance(self, count: int = 1, *, name: str | None = None) -> None:
        """Advance by this count; raises a pending interrupt that a library swallowed."""
        unblock_signals()
        self._done += count
        self._name = name or self._name
        self._progress.update(self._bar, advance=count, description=self._name[:NAME])
        now = time.monotonic()
        first = self._header_due and now >= self._quiet_until  # the first line of what has become long
        if self.lines and (first or now - self._printed >= EVERY):
            self.say(self.line())

    def expect(self, total: int) -> None:
        """Change the total, as far as it is known by now."""
        self._total = max(total, self._done)
        self._progress.update(self._bar, total=self._total)

    def figures(self, parts: Sequence[str]) -> None:
        """Set the text after the bar; the last parts are omitted first if there is no room."""
        self._figures = parts
        room = self.console.width - (NAME + BAR + 2 * len(str(self._total)) + 1 + RATE + TIME + 5)
        self._progress.update(self._bar, figures=fit_parts(parts, room))

    def say(self, sentence: str = "") -> None:
        """Print a line above the bar; in piped output the header comes first."""
        if not self.shown or time.monotonic() < self._quiet_until:
            return
        header = self._header if self.lines and self._header_due else ""
        self._header_due = False
        for line in filter(None, (header, sentence)):
            self.console.print(line, markup=False)
            self._printed = time.monotonic()

    def warn(self, sentence: str) -> None:
        """Print a warning even without progress, unless ``show`` is False."""
        if not self._silent:
            self.console.print(sentence, markup=False)

    def line(self) -> str:
        """The progress as one line of text."""
        speed = (self._done - self._first) / max(time.monotonic() - self._started, 1e-9)
        words = [f"{self._name}: {self._done}/{self._total} {self._unit}", f"{rate(speed)}/s"]
        if speed > 0:
            words.append(f"{clock((self._total - self._done) / speed)} left")
        return ", ".join([*words, *self._figures])


def fit_parts(parts: Sequence[str], room: int) -> str:
    """Join as many of the first parts as fit into the room."""
    text = ""
    for part in parts:
        longer = f"{text}  {part}" if text else part
        if len(longer) > room:
            break
        text = longer
    return text


def rate(speed: float) -> str:
    """Format a rate with about three digits."""
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}" if speed >= 1 else f"{speed:.2g}"


def clock(seconds: float) -> str:
    """Format seconds as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
