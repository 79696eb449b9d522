"""Analysis results: arrays and a header in one file, from which all figures can be drawn without the model.

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
        arrays: the measured values; each analysis documents its own.
    """

    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def label(self) -> str:
        """The model's name in figures and tables."""
        return str(self.header.get("label", "model"))


def result_folder(out: Path, data: str, fingerprint: str) -> Path:
    """The folder of the results on one data set, within a run folder."""
    short = hashlib.blake2b(fingerprint.encode(), digest_size=4).hexdigest()
    plain = file_name(data, allowed="-_")
    return out / FOLDER / f"{plain.strip('-')[-60:] or 'data'}-{short}"


def save_result(folder: Path, result: AnalysisResult) -> Path:
    """Write one result atomically; replaces an earlier one."""
    path = folder / f"{result.kind}{ENDING}"
    arrays = {name: np.ascontiguousarray(array) for name, array in result.arrays.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(path) as temporary:
            metadata = json.dumps({"kind": result.kind, "header": dict(result.header)}, sort_keys=True)
            # a single entry: safetensors writes several in arbitrary order, and equal results should give equal files
            temporary.write_bytes(save(arrays, metadata={"result": metadata}))
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error
    return path


def load_result(path: Path) -> AnalysisResult:
    """Read one result from its file."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})["result"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        header = dict(metadata["header"])
        _check_shape(header)
        return AnalysisResult(str(metadata["kind"]), header, arrays)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise HoldfastError(f"{str(path)!r} cannot be read as a result of holdfast analyze: delete it") from error


def _check_shape(header: dict[str, Any]) -> None:
    """Raise an error for a header whose fields have the wrong types."""
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
        raise HoldfastError(f"results must be in a folder, but {str(root)!r} does not exist")
    paths = [path for path in sorted(inner.rglob(f"*{ENDING}")) if not path.name.startswith(".")]
    return [load_result(path) for path in paths if path.stem in ANALYSES]


__getattr__ = renamed(__name__)
