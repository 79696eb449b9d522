"""A study as YAML: which rows, over which seeds, measured how. Without torch.

A study names a recipe, values common to all rows, and rows that differ from it; or a ``sweep`` of recipe values, whose
grid makes the rows. Every row is trained once per seed and measured on the same test images. ``extends`` takes
everything that a study does not say itself from another one, except its rows and claims.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from holdfast.errors import HoldfastError, nearest
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import load_recipe, merge


@dataclass(frozen=True)
class Claim:
    """Something a paper says: ``row`` has a higher (or lower) ``column`` than ``against``."""

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
    """What a study's file says.

    Attributes:
        name: the file's name, or that of a shipped study.
        title: its first comment line.
        recipe: the shipped recipe or YAML file that all rows start from.
        common: recipe values of all rows.
        rows: recipe values of each row, by the row's name.
        seeds: each row is trained once per seed.
        test: the data that are measured on; never those that anything is chosen on.
        limit: how many of the test images, stratified; null for all.
        suites: what is measured, as for ``holdfast evaluate``.
        analyses: what is analysed, as for ``holdfast analyze``.
        claims: what the table is to judge.
    """

    name: str
    title: str
    recipe: str
    rows: Mapping[str, Mapping[str, Any]]
    test: str
    common: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    limit: int | None = None
    suites: tuple[str, ...] = ("clean", "corruptions")
    analyses: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()

    def recipe_of(self, row: str, seed: int) -> Recipe:
        """The complete recipe of one run."""
        return load_recipe(self.recipe, merge(merge(self.common, self.rows[row]), {"seed": seed}))


def study_names() -> list[str]:
    """The shipped studies, such as ``cifar10/main``."""
    root = _shipped()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def headline(name: str) -> str:
    """The first comment line of a study: what it asks."""
    return _title(_find(name).read_text(encoding="utf-8"))


def load_study(
    name: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    rows: Sequence[str] = (),
    seeds: Sequence[int] = (),
    test: str | None = None,
    limit: int | None = None,
) -> Study:
    """A study by its shipped name or from a YAML file.

    Args:
        name: ``cifar10/main``, or a file.
        overrides: recipe values that replace those common to all rows, as nested dictionaries.
        rows: only these rows.
        seeds: these seeds instead of the study's.
        test: other test data.
        limit: another number of test images.
    """
    text, path = (
        _find(name).read_text(encoding="utf-8"),
        Path(name),
    )  # sentences name a shipped study as it was asked for
    values = _extended(_read(text, path), path)
    values["rows"] = _chosen(_rows(values, path), rows, path)
    claims = [Claim(**claim) for claim in values.get("claims", ())]
    study = Study(
        name=str(name).removesuffix(".yaml").strip("/").replace("/", "-"),
        title=_title(text),
        **values
        | {
            "common": merge(values.get("common", {}), overrides or {}),
            "seeds": tuple(seeds or values.get("seeds", Study.seeds)),
            "test": test or values["test"],
            "limit": limit or values.get("limit"),
            "suites": tuple(values.get("suites", Study.suites)),
            "analyses": tuple(values.get("analyses", ())),
            "claims": tuple(claim for claim in claims if {claim.row, claim.against} <= set(values["rows"])),
        },
    )
    for row in study.rows:
        study.recipe_of(row, study.seeds[0])  # a misspelt key is found before the first run
    return study


def _extended(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """The study's values, completed by those of the study that it extends."""
    if "extends" in values:
        parent = _find(values.pop("extends"))
        inherited = _extended(_read(parent.read_text(encoding="utf-8"), parent), parent)
        common = merge(inherited.get("common", {}), values.get("common", {}))
        inherited = {key: value for key, value in inherited.items() if key not in ("rows", "sweep", "claims")}
        values = {**inherited, **values, "common": common}
    missing = [key for key in ("recipe", "test") if key not in values]
    if missing:
        raise HoldfastError(f"study {str(path)!r} must name {' and '.join(missing)}")
    if not (values.get("rows") or values.get("sweep")):
        raise HoldfastError(f"study {str(path)!r} must name rows or a sweep")
    return values


def _read(text: str, path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise HoldfastError(f"study {str(path)!r} must be YAML ({' '.join(str(error).split())})") from error
    known = {item.name for item in fields(Study)} - {"name", "title"} | {"sweep", "extends"}
    if not isinstance(values, dict):
        raise HoldfastError(f"study {str(path)!r} must hold keys such as recipe and rows, got {type(values).__name__}")
    for key in values:
        if key not in known:
            raise HoldfastError(f"unknown study key {key!r} in {str(path)!r}{nearest(str(key), known)}")
    return values


def _rows(values: dict[str, Any], path: Path) -> dict[str, Mapping[str, Any]]:
    """The rows, times the grid of the sweep."""
    rows, sweep = values.get("rows") or {"": {}}, values.pop("sweep", None) or {}
    if not all(isinstance(row, Mapping) for row in rows.values()):
        raise HoldfastError(f"every row of study {str(path)!r} must hold recipe values, {{}} for none")
    grid = itertools.product(*([(key, value) for value in choices] for key, choices in sweep.items()))
    points = [dict(point) for point in grid]
    return {
        " ".join(filter(None, [name, *(f"{_short(key)}={value}" for key, value in point.items())])): merge_all(
            row, *(_nested(key, value) for key, value in point.items())
        )
        for name, row in rows.items()
        for point in points
    }


def merge_all(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, later ones first."""
    merged: dict[str, Any] = {}
    for value in values:
        merged = merge(merged, value)
    return merged


def _chosen(rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], path: Path) -> dict[str, Mapping[str, Any]]:
    for name in names:
        if name not in rows:
            hint = nearest(name, rows) or f"; it has {', '.join(map(repr, rows))}"
            raise HoldfastError(f"study {str(path)!r} has no row {name!r}{hint}")
    return {name: rows[name] for name in names or rows}


def _short(path: str) -> str:
    """``objective.options.afat.weight`` → ``afat.weight``: the last two parts say enough in a table."""
    return ".".join(path.split(".")[-2:])


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def _title(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _find(name: str | Path) -> Path:
    shipped = _shipped() / f"{name}.yaml"
    path = shipped if shipped.is_file() else Path(name)
    if not path.is_file():
        hint = nearest(str(name), study_names()) or f"; shipped are {', '.join(study_names())}"
        raise HoldfastError(f"unknown study {str(name)!r}{hint}")
    return path


def _shipped() -> Path:
    return Path(str(resources.files("holdfast.studies")))
