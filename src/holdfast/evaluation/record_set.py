"""Folder and header of a record set: fingerprint, resuming, and setting outdated records aside."""

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.corruptions import recorded_name
from holdfast.data.domains import trained_domains
from holdfast.data.fingerprints import content_fingerprint, data_fingerprint, fingerprint, versions
from holdfast.data.imagenet_classes import display_names
from holdfast.errors import HoldfastError
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.normalized_model import NormalizedModel
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.io import atomic
from holdfast.models.factory import LoadedModel, architecture_of
from holdfast.models.fingerprint import first_fingerprint, has_own_code
from holdfast.models.output_probe import same_answers
from holdfast.records.header import FOLDER, FORMAT, HEADER, read_header, write_header, write_images
from holdfast.records.model_files import model_files_digest
from holdfast.records.round_files import ROUNDS, has_rounds
from holdfast.runtime.device import Processes
from holdfast.runtime.plugins import plugins_header

logger = logging.getLogger(__name__)

# header keys that enter the fingerprint, by which record sets are kept apart; the other keys are informative
FINGERPRINTED = (
    "format",
    "task",
    "model_fingerprint",
    "data_fingerprint",
    "views",
    "seed",
    "preset",
    "preprocessing",
    "frost",
    "amp",
    "attack_batch_size",
    "shard_size",
    "versions",
    "exif",  # only if applied
    "plugins",  # only if there are any
    "batch_size",  # only of models whose predictions depend on it
    "data_content",  # only of data in files
    "class_map",  # only if the model has other outputs than the data's classes
)
_START_OVER = "it stays readable, and this evaluation starts over"
_CHANGED = {  # what to say if one of the keys changed, the first that did
    "model_fingerprint": "with other weights, settings or code of this model: measuring again",
    "data_content": "on other contents of these files: measuring again",
    "plugins": "with other plug-ins, or other code of them: measuring again",
    "preprocessing": f"with other preprocessing: {_START_OVER}",
    "versions": f"with other versions of Holdfast or its libraries: {_START_OVER}",
}
LATER = ("batch_size", "data_content")  # keys that earlier versions did not record
OF_BEFORE = ("model_fingerprint", *LATER)  # keys that earlier versions computed differently, or did not record
UNITS = "*.[0-9]*.safetensors"


def prepare_folder(folder: Path, header: dict[str, Any], plan: Plan, *, tolerance: float, fresh: bool) -> None:
    """Make the folder of a record set and write its image list and header.

    Records are set aside and measured again if the model's predictions changed by more than ``tolerance``.
    """
    if not folder.exists():
        _warn_of_earlier_records(folder, header)
    try:
        if fresh and (folder / HEADER).exists():
            shutil.rmtree(folder)
        header = _with_recorded_answers(folder, header, tolerance=tolerance)
        folder.mkdir(parents=True, exist_ok=True)
        atomic.remove_leftovers([*folder.glob(".*.tmp"), *(folder / ROUNDS).glob(".*.tmp")])
        write_images(folder, plan.ids, plan.truth)
        write_header(folder, header)
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error
    if header["probe"]["random"]:
        logger.warning(
            "the model is random: its predictions of the same image differ each time, so the records are one sample"
        )


def _with_recorded_answers(folder: Path, header: dict[str, Any], *, tolerance: float) -> dict[str, Any]:
    """Header with the recorded probe predictions, if the model still reproduces them."""
    if not any(folder.glob(UNITS)) and not has_rounds(folder):
        return header
    recorded = None
    with suppress(HoldfastError):
        before = read_header(folder)
        if "probe" not in before and header["fingerprint"] != _fingerprint(header):
            reason = "resuming, because weights, settings, names and sizes agree"
            logger.warning("%s was measured by an earlier version of Holdfast: %s", folder.name, reason)
            return header
        recorded = before.get("probe")
    if same_answers(recorded, header["probe"], tolerance=tolerance):
        return {**header, "probe": recorded}
    why = "have no predictions to compare with" if recorded is None else "were measured with other predictions than"
    logger.warning("the records in %s %s now: kept as %s; measuring again", folder.name, why, _set_aside(folder).name)
    return header


def _set_aside(folder: Path) -> Path:
    """Rename a record folder so that it is kept but never read; returns the new path."""
    number = 0
    while (target := folder.with_name(f"{folder.name}.before{number or ''}")).exists():
        number += 1
    with suppress(FileNotFoundError):
        os.replace(folder / HEADER, folder / f"{HEADER}.before")
    os.replace(folder, target)
    return target


def _warn_of_earlier_records(folder: Path, header: dict[str, Any]) -> None:
    """Warn if records of the same model and data exist that cannot be resumed, and say why."""
    same = ("model", "data", "seed", "limit", "preset")
    names: dict[str, list[str]] = {}
    for path, before in _beside(folder.parent):
        if all(before.get(key) == header[key] for key in same):
            names.setdefault(_why_not_resumed(before, header), []).append(path.name)
    for why, each in names.items():
        logger.warning("%s was measured %s in %s", ", ".join(each), why, folder.name)


def _why_not_resumed(before: dict[str, Any], header: dict[str, Any]) -> str:
    if "probe" not in before:
        return f"by an earlier version of Holdfast: {_START_OVER}"
    changed = [key for key in FINGERPRINTED if before.get(key) != header.get(key)]
    known = [words for key, words in _CHANGED.items() if key in changed]
    return known[0] if known else f"with another {' and '.join(changed).replace('_', ' ') or 'header'}: {_START_OVER}"


def _beside(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(root.glob(f"*/{HEADER}")):
        with suppress(HoldfastError):
            yield path.parent, read_header(path.parent)


def make_header(
    loaded: LoadedModel,
    data: EvaluationData,
    plan: Plan,
    normalized_model: NormalizedModel,
    *,
    steps: Preprocessing,
    settings: dict[str, Any],
    out: Path | str | None,
) -> dict[str, Any]:
    """Build the header of a record set."""
    content = (
        content_fingerprint(data.source) if data.source is not None else ""
    )  # of stored sets every cell records its own
    identity, answers = normalized_model.identify(loaded.model, batch_size=settings.get("batch_size", 2))
    header = {
        "format": FORMAT,
        "task": plan.task.name,
        "model": loaded.name,
        "architecture": architecture_of(loaded.model),
        "model_fingerprint": identity,
        **({"model_files": model_files_digest(loaded.folder)} if loaded.folder and loaded.own_weights else {}),
        "data": data.spec,
        "data_label": data.label,
        "data_fingerprint": data_fingerprint(plan.ids, plan.truth, content=content),
        "label": data.protocol,
        "partial": list(plan.missing),
        "images": len(plan.ids),
        "classes": data.class_count,
        "class_names": list(display_names(data.pictures.classes)),
        **({"labels": data.labels} if data.labels else {}),
        **({"train_domains": list(trained)} if (trained := trained_domains(data.source, loaded.folder)) else {}),
        **({"class_map": data.class_map.record()} if data.class_map is not None else {}),
        "views": list(normalized_model.views),
        "preset": steps.preset,
        "preprocessing": steps.record(),
        "frost": recorded_name("frost"),
        "versions": versions(),
        "probe": answers,
        **({"data_content": files} if (files := data.content) else {}),
        **plugins_header(),
        **settings,
    }
    return {
        **header,
        "fingerprint": _earlier_fingerprint(header, loaded, normalized_model, out) or _fingerprint(header),
    }


def _fingerprint(header: dict[str, Any]) -> str:
    return fingerprint({key: header[key] for key in FINGERPRINTED if key in header})


def _earlier_fingerprint(
    header: dict[str, Any], loaded: LoadedModel, normalized_model: NormalizedModel, out: Path | str | None
) -> str | None:
    """Fingerprint of records that an earlier version began, if everything it recorded agrees.

    Earlier versions did not record code, so models with custom code never match.
    """
    root = _root(out, loaded)
    if root is None or (root / FOLDER / _folder_name(header, _fingerprint(header))).exists():
        return None
    keys = [key for key in FINGERPRINTED if key not in OF_BEFORE]
    known = json.dumps({key: header.get(key) for key in keys}, sort_keys=True)
    found = [
        before
        for path, before in _beside(root / FOLDER)
        if path.name == _folder_name(header, str(before["fingerprint"]))
        and known == json.dumps({key: before.get(key) for key in keys}, sort_keys=True)
    ]
    resumable = [before for before in found if all(before.get(key) == header.get(key) for key in OF_BEFORE)]
    begun = [before for before in found if "probe" not in before and not any(key in before for key in LATER)]
    if not resumable and begun and not has_own_code(loaded.model):
        first = first_fingerprint(loaded.model, normalized_model.views)
        resumable = [before for before in begun if before.get("model_fingerprint") == first]
    return str(resumable[0]["fingerprint"]) if resumable else None


def _root(out: Path | str | None, loaded: LoadedModel) -> Path | None:
    return Path(out).expanduser() if out is not None else loaded.folder


def _folder_name(header: dict[str, Any], digest: str) -> str:
    return f"{header['data_label']}-{digest[:8]}"


@contextmanager
def record_folder(
    out: Path | str | None, loaded: LoadedModel, header: dict[str, Any], processes: Processes
) -> Iterator[Path]:
    """Folder of the records: below ``out``, else in the run folder, else a temporary folder."""
    name, root = _folder_name(header, header["fingerprint"]), _root(out, loaded)
    if root is not None:
        yield root / FOLDER / name
    elif processes.count > 1:
        raise HoldfastError(
            f"out must be a folder that all {processes.count} processes can write to, got none: give --out"
        )
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            yield Path(temporary) / FOLDER / name
