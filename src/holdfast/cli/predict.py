"""``holdfast predict``: a model's predictions for image files, as a table, JSON, CSV or overlays."""

import csv
import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.markup import escape
from rich.table import Table

from holdfast.cli.console import piped_text, print_table
from holdfast.cli.shared_options import add_preprocessing, protocol_of, with_checkpoint
from holdfast.errors import HoldfastError
from holdfast.io import atomic

if TYPE_CHECKING:
    from holdfast.inference.predict import Prediction

FORMATS = ("table", "json", "csv")


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast predict``."""
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or folders of them")
    parser.add_argument("--model", required=True, help="a run's folder, or any model as in `holdfast evaluate --model`")
    parser.add_argument("--checkpoint", help="of a run: best, last or a weight file (default: the exported weights)")
    parser.add_argument("--top", type=int, default=5, help="number of predictions per image")
    parser.add_argument("--format", default="table", help="table, json or csv")
    parser.add_argument("--out", type=Path, help="the file to write (default: standard output)")
    parser.add_argument("--exif", default="apply", help="apply or ignore EXIF orientation")
    parser.add_argument(
        "--overlays",
        type=Path,
        metavar="DIR",
        help="also draw predictions over the images: label maps of segmenters, boxes and masks of detectors",
    )
    parser.add_argument(
        "--film", type=Path, metavar="FILE.webp", help="also write an animation of all images next to their overlays"
    )
    parser.add_argument("--fps", type=float, default=8.0, help="frames per second of the animation")
    parser.add_argument(
        "--class-names", type=Path, metavar="FILE", help="class names, one per line, for a model without its own"
    )
    parser.add_argument("--skip-bad", action="store_true", help="skip unreadable images, with a warning")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    add_preprocessing(parser)


def run(arguments: Namespace) -> None:
    """Predict, then print or write the table."""
    if arguments.format not in FORMATS:
        raise HoldfastError(f"--format must be one of {', '.join(FORMATS)}, got {arguments.format!r}")
    from holdfast.data.source import UnreadableImage
    from holdfast.inference.predict import predict

    protocol = protocol_of(arguments)
    drawings = {"overlays": arguments.overlays, "film": arguments.film, "fps": arguments.fps}
    names = _class_names(arguments.class_names) if arguments.class_names is not None else None
    options = {"top": arguments.top, "device": arguments.device, "protocol": protocol, "class_names": names}
    options |= {"skip_bad": arguments.skip_bad}
    try:
        found = predict(with_checkpoint(arguments.model, arguments.checkpoint), arguments.images, **options, **drawings)
    except UnreadableImage as error:
        raise HoldfastError(f"{error}; --skip-bad leaves such images out") from error
    if arguments.out is None and arguments.format == "table":
        print_table(_table(found))
    elif arguments.out is None:
        print({"json": _json, "csv": _csv}[arguments.format](found).rstrip("\n"))
    else:
        text = {"table": lambda rows: piped_text(_table(rows)), "json": _json, "csv": _csv}[arguments.format](found)
        atomic.write_text(arguments.out, text)
        print(f"written: {arguments.out}")
    for path in (arguments.overlays, arguments.film):
        if path is not None:
            print(f"written: {path}", file=sys.stderr)


def _class_names(path: Path) -> list[str]:
    try:
        names = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise HoldfastError(f"--class-names must be a text file with a name per line, got {str(path)!r}") from error
    if not names or not all(names):
        raise HoldfastError(f"--class-names must have a name on every line, got {str(path)!r}")
    return names


def _rows(found: "list[Prediction]") -> list[dict[str, object]]:
    return [{"image": each.image, "rank": rank, **row} for each in found for rank, row in enumerate(each.rows, 1)]


def _json(found: "list[Prediction]") -> str:
    return json.dumps([{"image": each.image, "answers": list(each.rows)} for each in found], indent=2) + "\n"


def _csv(found: "list[Prediction]") -> str:
    rows, text = _rows(found), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["image", "rank"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _table(found: "list[Prediction]") -> "Table":
    rows = _rows(found)
    table = Table(box=None, header_style="bold")
    for name, value in (rows[0] if rows else {"image": "", "rank": 0}).items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right", overflow="fold")
    for row in rows:
        table.add_row(
            *(f"{100 * value:.1f} %" if isinstance(value, float) else escape(str(value)) for value in row.values())
        )
    return table
