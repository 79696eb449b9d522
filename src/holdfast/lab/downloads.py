"""Downloads of the lab: a PNG, a self-contained HTML page, and Python code that reproduces the result."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.lab import view_data
from holdfast.lab.edits import damage_text
from holdfast.lab.inspect import Inspection, probabilities
from holdfast.lab.opened_model import changed_settings
from holdfast.lab.templates import asset, fragment
from holdfast.plotting import annotate
from holdfast.plotting.style import DPI, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = 1.9  # side of one image


def lines(inspections: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """Python code that reproduces the predictions and the stability."""
    first = inspections[0]
    image = _number(first)
    text = fragment(
        "lines.py.j2",
        models=[repr(name) for name in names],
        data=repr(first.opened.data.spec),
        image=image,
        name=repr(first.picture.name),
        damage=repr(damage_text(first.steps)),
        options=_options(first),
        protocol=bool(changed_settings(first.opened.protocol)),
    )
    return text.encode()


def _number(inspection: Inspection) -> int | None:
    source = inspection.opened.source
    return next((n for n in range(len(source)) if source.id(n) == inspection.picture.name), None)


def _options(inspection: Inspection) -> str:
    """Arguments of `open_model` that open the same model again."""
    opened, protocol = inspection.opened, changed_settings(inspection.opened.protocol)
    learned = any(step.kind == "learned" for step in inspection.steps)
    given = {
        "seed": opened.seed or None,
        "limit": opened.limit,
        "corruptor": opened.corruptor_file if learned else None,
    }
    arguments = [f", {name}={value!r}" for name, value in given.items() if value is not None]
    if protocol:
        arguments.append(
            f", protocol=EvalProtocol({', '.join(f'{name}={value!r}' for name, value in protocol.items())})"
        )
    return "".join(arguments)


def card(inspections: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """A self-contained HTML page with images, predictions and code."""
    models = [
        {
            "name": name,
            **view_data.shots(inspection),
            "said": view_data.answers(inspection),
            "attention": view_data.attention(inspection, layer=layer, head=head),
            "inside": view_data.inside(inspection, layer=layer, head=head),
        }
        for name, inspection in zip(names, inspections, strict=True)
    ]
    python = lines(inspections, layer=layer, head=head, names=names).decode()
    words = ", then ".join(step.words for step in inspections[0].steps) or "unchanged"
    values = {"damage": damage_text(inspections[0].steps), "words": words, "picture": inspections[0].picture.name}
    return fragment("card.html", models=models, python=python, style=asset("lab.css"), **values).encode()


def png(inspections: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """One PNG with before, after, difference, attention, label maps or boxes, one row per model."""
    rows = [_row(inspection, layer=layer, head=head) for inspection in inspections]
    columns = max(map(len, rows))
    figure = new_figure(columns * INCHES, len(inspections) * (INCHES + 0.6) + 0.3)
    figure.suptitle(_plain(", then ".join(step.words for step in inspections[0].steps) or "unchanged"), fontsize=9)
    axes = figure.subplots(len(inspections), columns, squeeze=False)
    for line, row, name in zip(axes, rows, names, strict=True):
        for axis, (title, image) in zip(line, row, strict=False):
            picture(axis, image, title=title)
        for axis in line:
            axis.set_axis_off()
        line[0].text(0, -0.12, _plain(name), transform=line[0].transAxes, fontsize=7, va="top")
    return _file(figure)


def _row(inspection: Inspection, *, layer: int, head: int) -> list[tuple[str, np.ndarray]]:
    changed, gain = annotate.difference(inspection.aligned.bytes, inspection.after.bytes)
    row = [
        (f"before{_answer(inspection, inspection.before)}", inspection.before.bytes),
        (f"after{_answer(inspection, inspection.after)}", inspection.after.bytes),
        (f"difference × {gain:.3g}", changed),
        *view_data.drawn_answers(inspection),
    ]
    if not inspection.after.attention:
        return row
    number, one = view_data.choose_layer_and_head(inspection, layer, head)
    maps = [
        view_data.received_attention(seen.attention[number], one) for seen in (inspection.aligned, inspection.after)
    ]
    low, high = view_data.bounds(maps)
    titles = [f"attention {when}, layer {number + 1}" for when in ("before", "after")]
    return [*row, *((title, annotate.heat(each, low=low, high=high)) for title, each in zip(titles, maps, strict=True))]


def _answer(inspection: Inspection, seen: Any) -> str:
    if not inspection.opened.task.scoring.one_class:
        return ""
    chances = probabilities(next(iter(seen.answers.values()))[0])
    return _plain(f": {inspection.opened.classes[int(chances.argmax())]} {100 * chances.max():.0f} %")


def _plain(text: str) -> str:
    """Shorten a text and escape dollar signs, which matplotlib reads as mathematics."""
    return text[:80].replace("$", r"\$")


def _file(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png")
    return file.getvalue()


FORMS: dict[str, Callable[..., bytes]] = {"picture.png": png, "card.html": card, "lines.py": lines}
