"""Study files in YAML: rows, seeds and evaluation. Imports no torch.

A study has a recipe, values common to all rows, and rows that override them; or a ``sweep`` of recipe values, whose
grid defines the rows; with ``leave_out`` in it, a row is trained on all domains of the test data but one. Every row is
trained once per seed and evaluated on the same test images. A row can start from another one: ``{name}`` in its values
is the run folder of that row, or of one of the ``steps``, which are trained but not evaluated. With ``extends``, a
study inherits everything it does not override, except claims; rows and steps only if it has neither rows nor a sweep.
"""

import graphlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, nearest
from holdfast.evaluation.config import PREPARATIONS
from holdfast.io.validation import file_name
from holdfast.io.yaml import read_yaml
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import load_recipe, merge

SHAPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "recipe": (str, "the name of a recipe"),
    "test": (str, "a data spec"),
    "extends": (str, "the name of a study"),
    "common": (Mapping, "recipe values"),
    "rows": (Mapping, "recipe values by name"),
    "steps": (Mapping, "recipe values by name"),
    "sweep": (Mapping, "lists of recipe values by path"),
    "seeds": (list, "a list of whole numbers"),
    "suites": (list, "a list of names"),
    "analyses": (list, "a list of names"),
    "shifts": (Mapping, "data specs by name"),
    "claims": (list, "a list of claims"),
    "limit": (int, "a whole number"),
    "preparation": (str, "model or benchmark"),
}
LEAVE_OUT = "leave_out"  # axis of a sweep: domains of the test data that the row is not trained on
REFERENCE = re.compile(r"\{([^{}]+)\}")  # {row}: the folder of that row's run with the same seed


@dataclass(frozen=True)
class Claim:
    """A claim of a paper: ``row`` has a higher (or lower) ``column`` than ``against``."""

    says: str
    row: str
    against: str
    column: str
    expects: str = "higher"

    def __post_init__(self) -> None:
        if self.expects not in ("higher", "lower"):
            raise HoldfastError(f"expects of a claim must be 'higher' or 'lower', got {self.expects!r}")


@dataclass(frozen=True)
class Study:
    """Contents of a study file.

    Attributes:
        name: the file's name, or that of a shipped study.
        title: its first comment line.
        recipe: the shipped recipe or YAML file that all rows start from.
        common: recipe values of all rows.
        rows: recipe values of each row, by the row's name.
        steps: recipe values of runs that rows start from and that are not evaluated.
        seeds: each row is trained once per seed.
        test: the test data, never used for model selection.
        limit: number of test images, stratified; null for all.
        suites: suites, as for ``holdfast evaluate``.
        analyses: analyses, as for ``holdfast analyze``.
        shifts: natural shifts: further data by name, evaluated without corruptions.
        claims: claims to be tested.
        preparation: preprocessing of clean images, ``model`` or ``benchmark``, as in `holdfast.EvalProtocol`.
    """

    name: str
    title: str
    recipe: str
    rows: Mapping[str, Mapping[str, Any]]
    test: str
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    limit: int | None = None
    suites: tuple[str, ...] = ("clean", "corruptions")
    analyses: tuple[str, ...] = ()
    shifts: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    preparation: str = PREPARATIONS[0]

    def recipe_of(self, name: str, seed: int, *, folders: Mapping[str, Path] | None = None) -> Recipe:
        """The complete recipe of one run of a row or step.

        Args:
            name: the row or step.
            seed: its seed.
            folders: folders of the runs that it starts from; None leaves the references unresolved.
        """
        values = self._values(name)
        if folders is not None:
            values = _fill_references(values, folders)
        return load_recipe(self.recipe, merge(merge(self.common, values), {"seed": seed}))

    def needs(self, name: str) -> list[str]:
        """The rows and steps whose runs this row or step starts from."""
        return list(dict.fromkeys(_references(self._values(name))))

    def _values(self, name: str) -> Mapping[str, Any]:
        return self.rows[name] if name in self.rows else self.steps[name]


def study_names() -> list[str]:
    """The shipped studies, such as ``cifar10/main``."""
    root = _study_folder()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def headline(name: str) -> str:
    """The first comment line of a study: its question."""
    return _title(_text(_find(name)))


def load_study(
    name: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    rows: Sequence[str] = (),
    seeds: Sequence[int] = (),
    test: str | None = None,
    limit: int | None = None,
) -> Study:
    """Load a study by its shipped name or from a YAML file.

    Args:
        name: ``cifar10/main``, or a file.
        overrides: recipe values that replace those common to all rows, as nested dictionaries.
        rows: only these rows.
        seeds: these seeds instead of the study's.
        test: other test data.
        limit: another number of test images; 0 for all.
    """
    text = _text(_find(name))
    path = Path(name)  # error messages name a shipped study as the user did
    values = _resolve_extends(_read_study(text, path), path)
    values["test"] = test or values["test"]
    steps, every_row = values.get("steps") or {}, _rows(values, path)
    _check_references(steps | every_row, path)
    _check_folders([*steps, *every_row], path)
    values["rows"] = _choose_rows(every_row, rows, path)
    # rows that were not selected remain available for others to start from
    values["steps"] = {**steps, **{name: row for name, row in every_row.items() if name not in values["rows"]}}
    claims = [_claim(claim, rows=every_row, path=path) for claim in values.get("claims") or ()]
    study = Study(
        name=str(name).removesuffix(".yaml").strip("/").replace("/", "-"),
        title=_title(text),
        **values
        | {
            "common": merge(values.get("common", {}), overrides or {}),
            "seeds": _seeds(seeds or values.get("seeds", Study.seeds), path),
            "limit": values.get("limit") if limit is None else limit or None,
            "suites": tuple(values.get("suites", Study.suites)),
            "analyses": tuple(values.get("analyses", ())),
            "claims": tuple(claim for claim in claims if {claim.row, claim.against} <= set(values["rows"])),
        },
    )
    if study.limit is not None and (not _is_count(study.limit) or study.limit < 1):
        raise HoldfastError(f"limit of a study must be at least 1 test image, got {study.limit}")
    if study.preparation not in PREPARATIONS:
        raise HoldfastError(
            f"preparation of study {str(path)!r} must be one of {', '.join(PREPARATIONS)}, got {study.preparation!r}"
        )
    for run in (*study.steps, *study.rows):
        study.recipe_of(run, study.seeds[0])  # finds misspelt keys before the first run
    return study


def row_file_name(row: str) -> str:
    """Turn a row's name into a safe file name without path separators."""
    return file_name(row, allowed="=.+-").lstrip(".") or "run"


def _resolve_extends(values: dict[str, Any], path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Merge a study's values with those of the study that it extends."""
    if "extends" in values:
        parent = _find(values.pop("extends"))
        if parent.resolve() in above:
            raise HoldfastError(f"study {str(path)!r} extends itself through {str(parent)!r}")
        inherited = _resolve_extends(_read_study(_text(parent), parent), parent, (*above, parent.resolve()))
        common = merge(inherited.get("common", {}), values.get("common", {}))
        own = {"claims"} | ({"rows", "steps", "sweep"} if {"rows", "sweep"} & set(values) else set())
        inherited = {key: value for key, value in inherited.items() if key not in own}
        values = {**inherited, **values, "common": common}
    missing = [key for key in ("recipe", "test") if key not in values]
    if missing:
        raise HoldfastError(f"study {str(path)!r} must name {' and '.join(missing)}")
    if not (values.get("rows") or values.get("sweep")):
        raise HoldfastError(f"study {str(path)!r} must name rows or a sweep")
    return values


def _read_study(text: str, path: Path) -> dict[str, Any]:
    values = read_yaml(text, name=f"study {str(path)!r}")
    known = {item.name for item in fields(Study)} - {"name", "title"} | {"sweep", "extends"}
    if not isinstance(values, dict):
        raise HoldfastError(f"study {str(path)!r} must hold keys such as recipe and rows, got {type(values).__name__}")
    for key in values:
        if key not in known:
            raise HoldfastError(f"unknown study key {key!r} in {str(path)!r}{nearest(str(key), known)}")
        kind, words = SHAPES[key]
        if values[key] is not None and not isinstance(values[key], kind):
            raise HoldfastError(f"{key} of study {str(path)!r} must be {words}, got {values[key]!r}")
    for key in ("suites", "analyses"):
        if not all(isinstance(name, str) for name in values.get(key) or ()):
            raise HoldfastError(f"{key} of study {str(path)!r} must be a list of names, got {values[key]!r}")
    return {key: value for key, value in values.items() if value is not None or key == "limit"}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"study {str(path)!r} cannot be read ({' '.join(str(error).split())})") from error


def _seeds(seeds: Sequence[Any], path: Path) -> tuple[int, ...]:
    """Check seeds: at least one, and no duplicates, which would narrow intervals without new information."""
    if not seeds or not all(_is_count(seed) and seed >= 0 for seed in seeds):
        raise HoldfastError(f"seeds of study {str(path)!r} must be whole numbers from 0, got {list(seeds)}")
    if len(set(seeds)) < len(seeds):
        raise HoldfastError(f"seeds of study {str(path)!r} must differ, got {list(seeds)}")
    return tuple(seeds)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _claim(values: Any, *, rows: Mapping[str, Any], path: Path) -> Claim:
    """Parse a claim and check its rows; ``studies.checks`` checks its column."""
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        raise HoldfastError(f"every claim of study {str(path)!r} must hold texts such as says and row, got {values!r}")
    try:
        claim = Claim(**values)
    except TypeError as error:
        raise HoldfastError(
            f"every claim of study {str(path)!r} must hold says, row, against and column ({error})"
        ) from error
    for row in (claim.row, claim.against):
        if row not in rows:
            hint = nearest(row, rows) or f"; it has {', '.join(map(repr, rows))}"
            raise HoldfastError(f"claim {claim.says!r} of study {str(path)!r} names no row of it: {row!r}{hint}")
    return claim


def _check_folders(runs: Sequence[str], path: Path) -> None:
    """Refuse rows whose names map to the same folder."""
    first: dict[str, str] = {}
    for run in runs:
        other = first.setdefault(row_file_name(run).casefold(), run)
        if other != run:
            raise HoldfastError(
                f"rows {other!r} and {run!r} of study {str(path)!r} would share the folder {row_file_name(run)!r}"
            )


def _rows(values: dict[str, Any], path: Path) -> dict[str, Mapping[str, Any]]:
    """The product of the rows and the grid of the sweep."""
    rows, sweep = values.get("rows") or {"": {}}, values.pop("sweep", None) or {}
    for key in (*rows, *(values.get("steps") or {}), *sweep):
        if not isinstance(key, str):
            raise HoldfastError(f"rows, steps and sweeps of study {str(path)!r} must have texts as names, got {key!r}")
    if not all(isinstance(choices, list) and choices for choices in sweep.values()):
        raise HoldfastError(f"every value of the sweep of study {str(path)!r} must be a list of choices")
    if not all(isinstance(run, Mapping) for run in (*rows.values(), *(values.get("steps") or {}).values())):
        raise HoldfastError(f"every row and step of study {str(path)!r} must hold recipe values, {{}} for none")
    axes = [[_point(key, choice, values["test"], path) for choice in choices] for key, choices in sweep.items()]
    grid = list(itertools.product(*axes))
    return {
        " ".join(filter(None, [name, *(label for label, _ in point)])): merge_all(row, *(value for _, value in point))
        for name, row in rows.items()
        for point in grid
    }


def _point(key: str, choice: Any, test: str, path: Path) -> tuple[str, dict[str, Any]]:
    """Label and recipe values of one choice of a sweep."""
    if key != LEAVE_OUT:
        return f"{_short(key)}={choice}", _nest_value(key, choice)
    kind, _, rest = test.partition(":")
    if kind != "domains" or not isinstance(choice, str):
        raise HoldfastError(
            f"{LEAVE_OUT} of study {str(path)!r} must list domains of test data domains:DIR, got {choice!r} of {test!r}"
        )
    words = [word for word in rest.split(",") if "=" not in word]  # without split=… of the test images
    data = f"{kind}:{','.join([*words, f'-{choice}'])}"
    return f"without {choice}", {"data": {"train": data, "val": data}}


def _check_references(runs: Mapping[str, Any], path: Path) -> None:
    """Refuse references to unknown rows, and cycles."""
    starts = {name: _references(values) for name, values in runs.items()}
    for name, others in starts.items():
        for other in others:
            if other not in runs:
                hint = nearest(other, runs) or f"; it has {', '.join(map(repr, runs))}"
                raise HoldfastError(
                    f"study {str(path)!r} has no row or step {other!r} for {name!r} to start from{hint}"
                )
    try:
        graphlib.TopologicalSorter(starts).prepare()
    except graphlib.CycleError as error:
        circle = " from ".join(reversed(error.args[1]))
        raise HoldfastError(f"rows of study {str(path)!r} start from each other in a cycle: {circle}") from error


def _references(values: Any) -> list[str]:
    """All names in braces in nested values."""
    if isinstance(values, Mapping):
        return [name for value in values.values() for name in _references(value)]
    if isinstance(values, list):
        return [name for value in values for name in _references(value)]
    return REFERENCE.findall(values) if isinstance(values, str) else []


def _fill_references(values: Any, folders: Mapping[str, Path]) -> Any:
    if isinstance(values, Mapping):
        return {key: _fill_references(value, folders) for key, value in values.items()}
    if isinstance(values, list):
        return [_fill_references(value, folders) for value in values]
    return REFERENCE.sub(lambda found: str(folders[found[1]]), values) if isinstance(values, str) else values


def merge_all(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested dictionaries; later ones take precedence."""
    merged: dict[str, Any] = {}
    for value in values:
        merged = merge(merged, value)
    return merged


def _choose_rows(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], path: Path
) -> dict[str, Mapping[str, Any]]:
    for name in names:
        if name not in rows:
            hint = nearest(name, rows) or f"; it has {', '.join(map(repr, rows))}"
            raise HoldfastError(f"study {str(path)!r} has no row {name!r}{hint}")
    return {name: rows[name] for name in names or rows}


def _short(path: str) -> str:
    """``objective.options.afat.weight`` → ``afat.weight``: the last two parts suffice in a table."""
    return ".".join(path.split(".")[-2:])


def _nest_value(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def _title(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _find(name: str | Path) -> Path:
    shipped = _study_folder() / f"{name}.yaml"
    path = shipped if os.path.isfile(shipped) else Path(name)
    if not os.path.isfile(path):
        hint = nearest(str(name), study_names()) or f"; shipped studies are {', '.join(study_names())}"
        raise HoldfastError(f"unknown study {str(name)!r}{hint}")
    return path


def _study_folder() -> Path:
    return Path(str(resources.files("holdfast.studies")))
