"""Result files of a study: per-image correctness and measures of one run, enough for all scores and intervals."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from holdfast.cells import CLEAN, CellSpec, attack_cell, corruption_cell, spec_of
from holdfast.corruptions.severities import ALL, SEVERITIES
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.records.header import CLASSIFICATION
from holdfast.studies.config import Study, row_file_name

# Part of every key. Values at their defaults are not, so a new recipe value leaves all keys as they are; but whoever
# changes what a default is or means must raise this by hand, because the results of before are then of another run.
DEFAULTS = 1
# no result depends on these: how images are loaded, whether they may be downloaded, and when a warning is printed
HARMLESS = (("data", "workers"), ("data", "download"), ("model", "needs_init"))
MEASURED = ("test", "limit", "suites", "analyses", "shifts", "preparation")


@dataclass(frozen=True, eq=False)
class RunResult:
    """Result of one row with one seed.

    Attributes:
        row: the row's name.
        seed: its seed.
        right: per cell, the fraction of correct predictions of every image, (N,).
        measures: per analysis measure, one value per image, (N,), or one for all, (1,).
        header: plain data: fingerprint, test data, number of parameters, processor hours, versions.
        traces: logged values of the training, step and value, (T, 2), by name.
        draws: for tasks with scores of whole sets, per quantity one row per cell: the score and its jackknife
            replicates, (cells, 1 + groups), if the header has ``replicates``; bootstrap draws before.
            See `holdfast.studies.measure_run`.
        figures: further values per cell for the page, (cells, …).
    """

    row: str
    seed: int
    right: Mapping[str, np.ndarray]
    measures: Mapping[str, np.ndarray]
    header: Mapping[str, Any]
    traces: Mapping[str, np.ndarray] = field(default_factory=dict)
    draws: Mapping[str, np.ndarray] = field(default_factory=dict)
    figures: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The task; results of earlier versions are of classification."""
        return str(self.header.get("task", CLASSIFICATION))

    @property
    def cells(self) -> list[CellSpec]:
        """The cells; results of earlier versions store only their names."""
        stored = self.header.get("cells", {})
        known = {name: spec_of({"cell": name, **plain}) for name, plain in stored.items()}
        names = self.header.get("cell_order", self.right)
        return [known.get(name) or NAMED_BEFORE.get(name) or attack_cell(name) for name in names]


# cells of results that store only names
NAMED_BEFORE = {
    cell.name: cell for cell in (CLEAN, *(corruption_cell(kind, severity) for kind in ALL for severity in SEVERITIES))
}


def fingerprint(study: Study, row: str, seed: int) -> str:
    """The key of a run's result: everything that it depends on; of the recipe what differs from the defaults."""
    recipe = changed_values(study.recipe_of(row, seed))
    for section, name in HARMLESS:
        recipe.get(section, {}).pop(name, None)
    content = {
        "defaults": DEFAULTS,
        "recipe": {section: values for section, values in recipe.items() if values != {}},
        "measured": {name: getattr(study, name) for name in MEASURED},
        "starts": [fingerprint(study, other, seed) for other in study.needs(row)],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def changed_values(section: Any) -> dict[str, Any]:
    """The values of a recipe or section that differ from the defaults; an optional section counts if it is there."""
    defaults = type(section)()
    changed: dict[str, Any] = {}
    for item in dataclasses.fields(section):
        value, default = getattr(section, item.name), getattr(defaults, item.name)
        if not dataclasses.is_dataclass(value):
            changed |= {item.name: value} if value != default else {}
        elif (inner := changed_values(value)) or default is None:
            changed[item.name] = inner
    return changed


def result_path(folder: Path, row: str, seed: int) -> Path:
    """Path of a run's result."""
    return folder / "results" / f"{row_file_name(row)}-seed{seed}.safetensors"


def write_result(path: Path, result: RunResult) -> None:
    """Write one result atomically."""
    arrays = dict(_pack_answers(cell, values) for cell, values in result.right.items())
    arrays |= {f"measure/{name}": values.astype(np.float32) for name, values in result.measures.items()}
    arrays |= {f"trace/{name}": values.astype(np.float32) for name, values in result.traces.items()}
    arrays |= {f"draws/{name}": values.astype(np.float32) for name, values in result.draws.items()}
    arrays |= {f"figure/{name}": values.astype(np.float32) for name, values in result.figures.items()}
    images = len(next(iter(result.right.values()), ()))
    header = {"row": result.row, "seed": result.seed, "images": images, **result.header, "checksum": _checksum(arrays)}
    metadata = {"holdfast": json.dumps(header, sort_keys=True, ensure_ascii=False)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as unfinished:
            unfinished.write_bytes(save(arrays, metadata=metadata))
    except OSError as error:
        out = str(path.parent.parent)
        raise HoldfastError(f"out must be a writable folder, got {out!r} ({error.strerror})") from error


def read_result(path: Path) -> RunResult:
    """Read one result; raises an error for any other file."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["holdfast"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.pop("checksum", None) not in (None, _checksum(arrays)):
            raise ValueError("its content does not match its checksum")
        return _result(header, arrays)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise HoldfastError(
            f"{str(path)!r} cannot be read as a result of a study; delete it and rerun the study"
        ) from error


def _result(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> RunResult:
    right = {
        name.partition("/")[2]: _unpack_answers(values, header["images"]) if name.startswith("bits/") else values
        for name, values in arrays.items()
        if name.startswith(("bits/", "share/"))
    }
    measures, traces, draws, figures = (
        {name.removeprefix(kind): values for name, values in arrays.items() if name.startswith(kind)}
        for kind in ("measure/", "trace/", "draws/", "figure/")
    )
    if (counts := header.get("replicates")) is not None:
        shifts = {name: int(groups) for name, groups in counts["shifts"].items()}
        header["replicates"] = {"groups": int(counts["groups"]), "shifts": shifts}
    return RunResult(str(header.pop("row")), int(header.pop("seed")), right, measures, header, traces, draws, figures)


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name}\0{arrays[name].dtype.str}\0{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _pack_answers(cell: str, values: np.ndarray) -> tuple[str, np.ndarray]:
    """Pack correctness into bits; fractions over several masks are stored as floats."""
    if np.isin(values, (0.0, 1.0)).all():
        return f"bits/{cell}", np.packbits(values.astype(bool))
    return f"share/{cell}", values.astype(np.float32)


def _unpack_answers(bits: np.ndarray, images: int) -> np.ndarray:
    if len(bits) != -(-images // 8):  # a count from a damaged header could allocate any amount of memory
        raise ValueError(f"{images} images do not fit {len(bits)} bytes of bits")
    return np.unpackbits(bits, count=images).astype(np.float64)


def result_of(folder: Path, study: Study, row: str, seed: int) -> RunResult | None:
    """The result of a run, if it exists and its fingerprint matches the study."""
    path = result_path(folder, row, seed)
    if not path.is_file():
        return None
    result = read_result(path)
    return result if result.header.get("fingerprint") == fingerprint(study, row, seed) else None


def adopt(folder: Path, study: Study, missing: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Copy missing results from neighbouring studies with the same fingerprint; return the copied runs."""
    if not missing:
        return []
    beside = {}
    for path in sorted(folder.resolve().parent.glob("*/results/*.safetensors")):
        with contextlib.suppress(HoldfastError):  # a damaged file of another study is reported there
            result = read_result(path)
            beside[result.header.get("fingerprint")] = result
    adopted = []
    for row, seed in missing:
        if same := beside.get(fingerprint(study, row, seed)):
            write_result(result_path(folder, row, seed), replace(same, row=row))
            adopted.append((row, seed))
    return adopted


def all_results(folder: Path, study: Study) -> dict[str, list[RunResult]]:
    """All finished runs by row, in the order of seeds, without cells that were corrected between runs."""
    found = {row: [result_of(folder, study, row, seed) for seed in study.seeds] for row in study.rows}
    return measured_alike({row: kept for row, runs in found.items() if (kept := [r for r in runs if r is not None])})


def measured_alike(results: Mapping[str, Sequence[RunResult]]) -> dict[str, list[RunResult]]:
    """Drop cells whose definition was corrected between two runs, see `holdfast.records`."""
    revisions = [run.header.get("revisions", {}) for runs in results.values() for run in runs]
    named = dict.fromkeys(name for each in revisions for name in each)
    unlike = [name for name in named if len({each.get(name, 1) for each in revisions}) > 1]
    return {row: [_without(run, unlike) if unlike else run for run in runs] for row, runs in results.items()}


def _without(run: RunResult, cells: Sequence[str]) -> RunResult:
    order = [cell.name for cell in run.cells]
    places = [place for place, name in enumerate(order) if name not in cells]
    header = {**run.header, "left_out": sorted({cell.kind or cell.name for cell in run.cells if cell.name in cells})}
    if "cell_order" in run.header:
        header["cell_order"] = [order[place] for place in places]
    return replace(
        run,
        right={name: values for name, values in run.right.items() if name not in cells},
        header=header,
        draws={name: values[places] for name, values in run.draws.items()},
        figures={name: values[places] for name, values in run.figures.items()},
    )
