"""``holdfast runs``: a table of the runs in a folder with their progress and scores."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from holdfast.errors import HoldfastError

RECIPE, LOG = "recipe.yaml", "log.jsonl"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast runs``."""
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)"
    )


def run(arguments: Namespace) -> None:
    """Print a table with a row per run."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if not arguments.folder.is_dir():
        raise HoldfastError(f"DIR must be a folder of runs, but {str(arguments.folder)!r} does not exist")
    rows = list(_rows(arguments.folder))
    if not rows:
        raise HoldfastError(f"DIR must hold runs ({RECIPE} or records/), but {str(arguments.folder)!r} has none")
    table = Table("run", "model", "data", "state", "score", "records", box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)


def _rows(root: Path) -> Iterator[tuple[str, ...]]:
    folders = {path.parent for path in root.rglob(RECIPE)} | {path.parent for path in root.rglob("records")}
    # a recipe with phases stands above the runs that it was carried out as
    folders -= {folder for folder in folders if not (folder / LOG).exists() and any(folder.glob(f"*/{RECIPE}"))}
    for folder in sorted(folders):
        first_phase = folder.name.startswith("phase1-")  # LP-FT's stands in the folder of the second
        if first_phase or not any(parent in folders for parent in folder.parents if parent != root):
            yield (str(folder.relative_to(root)), *_training_columns(folder), _records_column(folder))


def _training_columns(folder: Path) -> tuple[str, str, str, str]:
    from holdfast.io.yaml import read_yaml

    try:
        recipe: Any = read_yaml((folder / RECIPE).read_text(encoding="utf-8"), name=RECIPE) or {}
    except (OSError, HoldfastError):
        return ("–", "–", "–", "–")
    log = list(_log(folder / LOG))
    epochs = [line for line in log if line.get("event") == "epoch"]
    step = max((int(line["step"]) for line in log), default=0)
    state = "finished" if any(line.get("event") == "end" for line in log) else f"step {step}" if log else "not started"
    scores = {key: value for key, value in (epochs[-1] if epochs else {}).items() if isinstance(value, float)}
    score = next((f"{key} {value:.2f}" for key, value in scores.items()), "–")
    model, data = recipe.get("model") or {}, recipe.get("data") or {}
    return str(model.get("name") or model.get("init") or "–"), str(data.get("train", "–")), state, score


def _records_column(folder: Path) -> str:
    """The record sets: data, and the number of cells of each."""
    found = []
    for path in sorted((folder / "records").glob("*/evaluation.json")):
        cells = {file.name.rsplit(".", 2)[0] for file in path.parent.glob("[!.]*.[0-9]*.safetensors")}
        found.append(f"{path.parent.name.rsplit('-', 1)[0]} ({len(cells)} cells)")
    return ", ".join(found) or "–"


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
