"""Figure files: PNG, PDF or SVG for print, with the model's name and alternative text."""

import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.validation import comma_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
PRINT_DPI = 300


def parse_formats(text: str) -> tuple[str, ...]:
    """Parse a comma list of formats and drop duplicates."""
    chosen = tuple(dict.fromkeys(comma_list(text)))
    for name in chosen:
        if name not in FORMATS:
            raise HoldfastError(f"--figures must be some of {', '.join(FORMATS)}, got {text!r}")
    if not chosen:
        raise HoldfastError(f"--figures must name at least one of {', '.join(FORMATS)}, got none")
    return chosen


def save_figure(figure: "Figure", path: Path, *, formats: tuple[str, ...]) -> list[Path]:
    """Write a figure atomically in every format, with its alternative text in the metadata.

    ``path`` has no extension. Text in PDF and SVG stays text.
    """
    import matplotlib

    title, description = path.name, alternative_text(figure)
    metadata = {
        "png": {"Title": title, "Description": description},
        "pdf": {"Title": title, "Subject": description, "CreationDate": None},
        "svg": {"Title": title, "Description": description, "Date": None},
    }
    written = []
    # dates and random ids would make every redraw a new file; fonttype 42 embeds TrueType, which journals require
    style = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "holdfast"}
    with matplotlib.rc_context(style):  # type: ignore[arg-type]
        for name in formats:
            target = path.with_name(f"{path.name}.{name}")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with atomic.replace_file(target) as temporary:
                    figure.savefig(temporary, format=name, dpi=PRINT_DPI, metadata=metadata[name])
            except OSError as error:
                raise HoldfastError(
                    f"figures must go to a writable folder, got {str(target.parent)!r} ({error.strerror})"
                ) from error
            written.append(target)
    return written


def name_model(figure: "Figure", label: str) -> "Figure":
    """Add the model's name to the title of a figure that does not contain it."""
    from matplotlib.text import Text

    written = {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}
    if not any(label in text for text in written):
        title = figure.get_suptitle()
        figure.suptitle(f"{label}: {title}" if title else label, fontsize=9)
    return figure


def alternative_text(figure: "Figure") -> str:
    """Describe a figure in words: title, and the axes, curves and value range of every panel."""
    parts = [figure.get_suptitle()] if figure.get_suptitle() else []
    parts += [sentence for axis in figure.axes if (sentence := _panel(axis))]
    return ". ".join(part.strip().rstrip(".") for part in parts) + "." if parts else ""


def _panel(axis: "Axes") -> str:
    """Describe one panel; empty for panels without content."""
    if axis.get_label() == "<colorbar>":
        return f"Colours: {axis.get_ylabel()}" if axis.get_ylabel() else ""
    about = " over ".join(word for word in (axis.get_ylabel(), axis.get_xlabel()) if word)
    head = ": ".join(word for word in (axis.get_title() or axis.get_title(loc="left"), about) if word)
    names = [name for name in axis.get_legend_handles_labels()[1] if name]
    drawn: list[Any] = [np.asarray(line.get_ydata(), dtype=float) for line in axis.lines]
    values = [each[np.isfinite(each)] for each in drawn if np.isfinite(each).any()]
    seen = [part for part in (head, f"curves of {', '.join(dict.fromkeys(names))}" if names else "") if part]
    if values:
        low, high = min(float(each.min()) for each in values), max(float(each.max()) for each in values)
        seen.append(f"values from {low:.3g} to {high:.3g}")
    for image in axis.images:
        data = image.get_array()
        if data is not None and data.ndim == 2:
            seen.append(
                f"a map of {data.shape[0]} by {data.shape[1]} from {float(data.min()):.3g} to {float(data.max()):.3g}"
            )
        elif data is not None:
            seen.append("an image")
    return ", ".join(seen)


def printable(text: str) -> str:
    """The text with a sign in the place of everything that neither HTML nor XML may hold; line breaks stay."""
    return "".join(letter if _is_printable(letter) else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _is_printable(letter: str) -> bool:
    return letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cs", "Cn")
