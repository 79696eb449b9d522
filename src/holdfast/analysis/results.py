"""What an analysis found: arrays and a header in one file, from which every figure is drawn again without a model.

``RUN/analysis/<data>-<fingerprint>/<analysis>.safetensors``, renamed into place; the header is JSON in the file's
metadata. This module needs no torch.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from holdfast._deprecated import renamed
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.io.validation import file_name

FOLDER, ENDING = "analysis", ".safetensors"


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """One analysis of one model on one data set.

    Attributes:
        kind: the analysis, such as ``stability``.
        header: plain data: ``label`` (the model's name in figures), model, data, their fingerprints, ``settings``,
            versions, and what the analysis adds (``layers``, ``cells`` …).
        arrays: what was measured; each analysis says what it keeps.
    """

    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def label(self) -> str:
        """The model's name in figures and tables."""
        return str(self.header.get("label", "model"))


def result_folder(out: Path, data: str, fingerprint: str) -> Path:
    """Where the results of one data set are kept below a run's folder."""
    short = hashlib.blake2b(fingerprint.encode(), digest_size=4).hexdigest()
    plain = file_name(data, allowed="-_")
    return out / FOLDER / f"{plain.strip('-')[-60:] or 'data'}-{short}"


def save_result(folder: Path, result: AnalysisResult) -> Path:
    """Write one result in one move, in the place of an earlier one."""
    path = folder / f"{result.kind}{ENDING}"
    arrays = {name: np.ascontiguousarray(array) for name, array in result.arrays.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            told = json.dumps({"kind": result.kind, "header": dict(result.header)}, sort_keys=True)
            # a single entry: safetensors writes several in any order, and equal results should be equal files
            temporary.write_bytes(save(arrays, metadata={"result": told}))
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error
    return path


def load_result(path: Path) -> AnalysisResult:
    """Read one result."""
    try:
        with safe_open(path, framework="numpy") as file:
            told = json.loads((file.metadata() or {})["result"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = dict(told["header"])
        _check_shape(header)
        return AnalysisResult(str(told["kind"]), header, arrays)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise HoldfastError(f"{str(path)!r} must be a result of holdfast analyze; it cannot be read as one") from error


def _check_shape(header: dict[str, Any]) -> None:
    """Refuse a header whose parts are not what everybody who reads it takes them for."""
    for part in ("settings", "cost", "preprocessing", "versions"):
        if not isinstance(header.get(part), dict | None):
            raise TypeError(f"{part} must be a mapping")
    layers = header.get("layers")
    if layers is not None and not (isinstance(layers, list) and all(isinstance(layer, dict) for layer in layers)):
        raise TypeError("layers must be a list of mappings")


def load_results(folder: Path | str) -> list[AnalysisResult]:
    """All results of known analyses below a folder: a run's, its ``analysis/``, or one data set's; sorted by path."""
    from holdfast.analysis.registry import ANALYSES

    root = Path(folder).expanduser()
    inner = root / FOLDER if (root / FOLDER).is_dir() else root
    if not inner.is_dir():
        raise HoldfastError(f"results must be in a folder, but {str(root)!r} is not there")
    paths = [path for path in sorted(inner.rglob(f"*{ENDING}")) if not path.name.startswith(".")]
    return [load_result(path) for path in paths if path.stem in ANALYSES]


__getattr__ = renamed(__name__)
