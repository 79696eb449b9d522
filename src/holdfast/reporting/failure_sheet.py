"""One picture of a model's failures, from the examples kept beside its records: for a comment or a summary of CI."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from holdfast.io import atomic
from holdfast.plotting.files import printable
from holdfast.records.examples import Example, read_examples
from holdfast.records.records import Records

COLUMNS = 6


def failure_sheet(sets: Sequence[Records], out: Path, *, count: int = 12) -> int:
    """Draw the first examples of some record sets as PNG and return how many; writes nothing without examples."""
    found = [(records, each) for records in sets for each in _examples(records)][:count]
    if not found:
        return 0
    from matplotlib.figure import Figure  # imported late: half a second

    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(1.7 * columns, 2.1 * rows), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, (records, example) in zip(axes, found, strict=False):
        axis.imshow(Image.open(io.BytesIO(example.picture)).convert("RGB"))
        axis.set_title(printable(_caption(records, example)), fontsize=8, parse_math=False)
    with atomic.replace_file(out) as temporary:
        figure.savefig(temporary, format="png")
    return len(found)


def _examples(records: Records) -> list[Example]:
    return read_examples(records.folder, fingerprint=str(records.header.get("fingerprint", "")))


def _caption(records: Records, example: Example) -> str:
    """The cell and, for classes, the true and the predicted one."""
    cell = records.cells.get(example.cell)
    rows = [] if cell is None else (cell.ids == example.id).nonzero()[0].tolist()
    if cell is None or not rows or "predictions" not in cell.fields:
        return f"{example.cell}\n{example.id[-24:]}"
    names = records.header.get("class_names") or ()
    numbers = int(cell.targets[rows[0]]), int(cell.predictions[rows[0]])
    true, predicted = (str(names[n])[:16] if 0 <= n < len(names) else str(n) for n in numbers)
    return f"{example.cell}\n{true} → {predicted}"
