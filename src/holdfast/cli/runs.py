"""``holdfast runs``: a table of the runs in a folder with their progress and scores."""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from rich.markup import escape
from rich.table import Table

from holdfast.cli.console import print_table
from holdfast.errors import HoldfastError
from holdfast.io.validation import counted
from holdfast.io.yaml import read_yaml

RECIPE, LOG = "recipe.yaml", "log.jsonl"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast runs``."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)"
    )


def run(arguments: Namespace) -> None:
    """Print a table with a row per run."""
    if not arguments.folder.is_dir():
        raise HoldfastError(f"DIR must be a folder of runs, but {str(arguments.folder)!r} does not exist")
    rows = list(_rows(arguments.folder))
    if not rows:
        raise HoldfastError(f"DIR must hold runs ({RECIPE} or records/), but {str(arguments.folder)!r} has none")
    table = Table("run", "model", "data", "state", "score", "records", box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(escape, row))
    print_table(table)


def _rows(root: Path) -> Iterator[tuple[str, ...]]:
    folders = {path.parent for path in root.rglob(RECIPE)} | {path.parent for path in root.rglob("records")}
    # a recipe with phases stands above the runs that it was carried out as
    folders -= {folder for folder in folders if not (folder / LOG).exists() and any(folder.glob(f"*/{RECIPE}"))}
    for folder in sorted(folders):
        first_phase = folder.name.startswith("phase1-")  # LP-FT's stands in the folder of the second
        if first_phase or not any(parent in folders for parent in folder.parents if parent != root):
            yield (str(folder.relative_to(root)), *_training_columns(folder), _records_column(folder))


def _training_columns(folder: Path) -> tuple[str, str, str, str]:
    if not (folder / RECIPE).exists():
        return _evaluated_columns(folder)
    try:
        recipe: Any = read_yaml((folder / RECIPE).read_text(encoding="utf-8"), name=RECIPE) or {}
    except (OSError, HoldfastError):
        return ("–", "–", "unreadable recipe", "–")
    log = list(_log(folder / LOG))
    epochs = [line for line in log if line.get("event") == "epoch"]
    step = max((int(line["step"]) for line in log), default=0)
    ended = any(line.get("event") == "end" for line in log)
    state = "finished" if ended else f"unfinished, step {step}" if log else "not started"
    scores = {key: value for key, value in (epochs[-1] if epochs else {}).items() if isinstance(value, float)}
    score = next((f"{key} {value:.2f}" for key, value in scores.items()), "–")
    model, data = recipe.get("model") or {}, recipe.get("data") or {}
    return str(model.get("name") or model.get("init") or "–"), str(data.get("train", "–")), state, score


def _evaluated_columns(folder: Path) -> tuple[str, str, str, str]:
    """Model and data of records without a run: ``evaluate --model`` writes such folders."""
    for path in sorted((folder / "records").glob("*/evaluation.json")):
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
            return str(header["model"]), str(header["data"]), "evaluated only", _first_score(path.parent, header)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return "–", "–", "no results", "–"


def _first_score(folder: Path, header: dict[str, Any]) -> str:
    """Accuracy on clean images, else on the official set such as ImageNet-A that was evaluated."""
    from holdfast.metrics.scoring.base import SETS
    from holdfast.metrics.scoring.registry import scoring_of
    from holdfast.records.class_map import answers_in_short
    from holdfast.records.header import CLASSIFICATION
    from holdfast.records.records import read_records

    try:
        one_class = scoring_of(str(header.get("task", CLASSIFICATION))).one_class
    except HoldfastError:  # a task of a plug-in
        one_class = False
    if not one_class:  # other tasks have scores of sets of images
        return "–"
    cells = read_records(folder, cells=["clean", *SETS]).cells
    name = next((name for name in ("clean", *SETS) if name in cells), None)
    answers = f", {words}" if (words := answers_in_short(header)) else ""
    return "–" if name is None else f"{SETS.get(name, name)} {100 * cells[name].accuracy:.2f}{answers}"


def _records_column(folder: Path) -> str:
    """The record sets: data, and the number of cells of each; the full folder name where two are of the same data."""
    folders = [path.parent for path in sorted((folder / "records").glob("*/evaluation.json"))]
    data = Counter(map(_data_name, folders))
    found = []
    for records in folders:
        cells = {file.name.rsplit(".", 2)[0] for file in records.glob("[!.]*.[0-9]*.safetensors")}
        name = _data_name(records) if data[_data_name(records)] == 1 else records.name
        found.append(f"{name} ({counted(len(cells), 'cell')})")
    return ", ".join(found) or "–"


def _data_name(records: Path) -> str:
    return records.name.rsplit("-", 1)[0]


def _log(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # a kill can truncate the last line
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            yield entry
