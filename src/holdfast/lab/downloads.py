"""What people take away: a picture, a page that needs nothing else, and the Python lines that reproduce it."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.lab import view_data
from holdfast.lab.edits import damage_text
from holdfast.lab.inspect import Inspection, probabilities
from holdfast.lab.opened_model import asked_values
from holdfast.lab.templates import asset, fragment
from holdfast.plotting import annotate
from holdfast.plotting.style import DPI, new_figure, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = 1.9  # of one picture


def lines(looks: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """Python that reproduces the answers and the stability."""
    first = looks[0]
    image = _number(first)
    text = fragment(
        "lines.py.j2",
        models=[repr(name) for name in names],
        data=repr(first.lens.data.spec),
        image=image,
        name=repr(first.picture.name),
        damage=repr(damage_text(first.steps)),
        options=_options(first),
        protocol=bool(asked_values(first.lens.protocol)),
    )
    return text.encode()


def _number(look: Inspection) -> int | None:
    source = look.lens.source
    return next((n for n in range(len(source)) if source.id(n) == look.picture.name), None)


def _options(look: Inspection) -> str:
    """What `open_lens` needs to open the same again."""
    lens, protocol = look.lens, asked_values(look.lens.protocol)
    learned = any(step.kind == "learned" for step in look.steps)
    given = {"seed": lens.seed or None, "limit": lens.limit, "corruptor": lens.corruptor_file if learned else None}
    said = [f", {name}={value!r}" for name, value in given.items() if value is not None]
    if protocol:
        said.append(f", protocol=EvalProtocol({', '.join(f'{name}={value!r}' for name, value in protocol.items())})")
    return "".join(said)


def card(looks: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """A self-contained page."""
    models = [
        {
            "name": name,
            **view_data.shots(look),
            "said": view_data.answers(look),
            "attention": view_data.attention(look, layer=layer, head=head),
            "inside": view_data.inside(look, layer=layer, head=head),
        }
        for name, look in zip(names, looks, strict=True)
    ]
    python = lines(looks, layer=layer, head=head, names=names).decode()
    words = ", then ".join(step.words for step in looks[0].steps) or "as it is"
    values = {"damage": damage_text(looks[0].steps), "words": words, "picture": looks[0].picture.name}
    return fragment("card.html", models=models, python=python, style=asset("lab.css"), **values).encode()


def png(looks: Sequence[Inspection], *, layer: int, head: int, names: Sequence[str]) -> bytes:
    """Before, after, difference, attention, label maps or boxes side by side, a row per model."""
    rows = [_row(look, layer=layer, head=head) for look in looks]
    columns = max(map(len, rows))
    figure = new_figure(columns * INCHES, len(looks) * (INCHES + 0.6) + 0.3)
    figure.suptitle(_plain(", then ".join(step.words for step in looks[0].steps) or "as it is"), fontsize=9)
    axes = figure.subplots(len(looks), columns, squeeze=False)
    for line, row, name in zip(axes, rows, names, strict=True):
        for axis, (title, image) in zip(line, row, strict=False):
            picture(axis, image, title=title)
        for axis in line:
            axis.set_axis_off()
        line[0].text(0, -0.12, _plain(name), transform=line[0].transAxes, fontsize=7, va="top")
    return _file(figure)


def _row(look: Inspection, *, layer: int, head: int) -> list[tuple[str, np.ndarray]]:
    changed, gain = annotate.difference(look.aligned.bytes, look.after.bytes)
    row = [
        (f"before{_answer(look, look.before)}", look.before.bytes),
        (f"after{_answer(look, look.after)}", look.after.bytes),
        (f"difference × {gain:.3g}", changed),
        *view_data.drawn_answers(look),
    ]
    if not look.after.attention:
        return row
    number, one = view_data.choose_layer_and_head(look, layer, head)
    maps = [view_data.received_attention(seen.attention[number], one) for seen in (look.aligned, look.after)]
    low, high = view_data.bounds(maps)
    said = [f"attention {when}, layer {number + 1}" for when in ("before", "after")]
    return [*row, *((title, annotate.heat(each, low=low, high=high)) for title, each in zip(said, maps, strict=True))]


def _answer(look: Inspection, seen: Any) -> str:
    if look.lens.task.name != "classification":
        return ""
    chances = probabilities(next(iter(seen.answers.values()))[0])
    return _plain(f": {look.lens.classes[int(chances.argmax())]} {100 * chances.max():.0f} %")


def _plain(text: str) -> str:
    """Not read as mathematics, and not too long."""
    return text[:80].replace("$", r"\$")


def _file(figure: "Figure") -> bytes:
    file = io.BytesIO()
    figure.savefig(file, dpi=DPI, format="png")
    return file.getvalue()


FORMS: dict[str, Callable[..., bytes]] = {"picture.png": png, "card.html": card, "lines.py": lines}
