"""Where the records of an evaluation go, and what their header says."""

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
from holdfast.errors import HoldfastError
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.plan import Plan
from holdfast.evaluation.preprocessing import PreprocessingSteps
from holdfast.inference.normalized_model import NormalizedModel
from holdfast.models.factory import LoadedModel, architecture_of
from holdfast.models.fingerprint import first_fingerprint, has_own_code
from holdfast.models.output_probe import same_answers
from holdfast.records.fingerprints import content_fingerprint, data_fingerprint, fingerprint, versions
from holdfast.records.header import FOLDER, FORMAT, HEADER, read_header, write_header, write_images
from holdfast.records.shard_files import remove_leftovers
from holdfast.runtime.device import Processes
from holdfast.runtime.plugins import plugins_header

logger = logging.getLogger(__name__)

# what records are kept apart by; the rest of the header is for people
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
    "exif",  # only where it is applied
    "plugins",  # only where there are any
    "batch_size",  # only of models whose answers depend on it
    "data_content",  # only of data in files
)
LATER = ("batch_size", "data_content")  # which records of before do not have
OF_BEFORE = ("model_fingerprint", *LATER)  # which they have otherwise, or not at all
UNITS = "*.[0-9]*.safetensors"


def prepare_folder(folder: Path, header: dict[str, Any], plan: Plan, *, tolerance: float, fresh: bool) -> None:
    """Make the folder of a record set, with its images and its header.

    Records of a model that answers otherwise now, beyond ``tolerance``, are set aside, to be measured again.
    """
    if not folder.exists():
        _say_if_begun_before(folder, header)
    try:
        if fresh and (folder / HEADER).exists():
            shutil.rmtree(folder)
        header = _with_recorded_answers(folder, header, tolerance=tolerance)
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        write_images(folder, plan.ids, plan.truth)
        write_header(folder, header)
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error
    if header["probe"]["random"]:
        logger.warning("the model is random: it answers the same image differently each time, so records are one draw")


def _with_recorded_answers(folder: Path, header: dict[str, Any], *, tolerance: float) -> dict[str, Any]:
    """The header with the answers that the records were begun with, if the model still gives them."""
    if not any(folder.glob(UNITS)):
        return header
    recorded = None
    with suppress(HoldfastError):
        before = read_header(folder)
        if "probe" not in before and header["fingerprint"] != _fingerprint(header):
            told = "it goes on, since weights, settings, names and sizes agree"
            logger.warning("%s was measured by an earlier Holdfast: %s", folder.name, told)
            return header
        recorded = before.get("probe")
    if same_answers(recorded, header["probe"], tolerance=tolerance):
        return {**header, "probe": recorded}
    why = "cannot be compared with" if recorded is None else "were measured when the model answered otherwise than"
    logger.warning("the records in %s %s now: kept as %s and measured again", folder.name, why, _set_aside(folder).name)
    return header


def _set_aside(folder: Path) -> Path:
    """Rename records, so that they are never read again but can be looked at; returns their new place."""
    number = 0
    while (target := folder.with_name(f"{folder.name}.before{number or ''}")).exists():
        number += 1
    with suppress(FileNotFoundError):
        os.replace(folder / HEADER, folder / f"{HEADER}.before")
    os.replace(folder, target)
    return target


def _say_if_begun_before(folder: Path, header: dict[str, Any]) -> None:
    """Records that are not continued, though they have the names of what is measured now, in a sentence."""
    same = ("model", "data", "seed", "limit", "preset")
    earlier, other, images, prepared = [], [], [], []
    for path, before in _beside(folder.parent):
        if not all(before.get(key) == header[key] for key in same):
            continue
        if "probe" not in before:
            earlier.append(path.name)
        elif before.get("model_fingerprint") != header["model_fingerprint"]:
            other.append(path.name)
        elif before.get("data_content") != header.get("data_content"):
            images.append(path.name)
        elif before.get("preprocessing") != header["preprocessing"]:
            prepared.append(path.name)
    if earlier:
        logger.warning(
            "%s was measured by an earlier Holdfast: it stays readable, and this evaluation starts anew in %s",
            ", ".join(earlier),
            folder.name,
        )
    if other:
        logger.warning(
            "%s was measured with other weights, settings or code of this model: it is measured again, in %s",
            ", ".join(other),
            folder.name,
        )
    if images:
        logger.warning(
            "%s was measured on other contents of these files: they are measured again, in %s",
            ", ".join(images),
            folder.name,
        )
    if prepared:
        logger.warning(
            "%s was measured on images that were prepared otherwise: it stays readable, and this evaluation starts "
            "anew in %s",
            ", ".join(prepared),
            folder.name,
        )


def _beside(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(root.glob(f"*/{HEADER}")):
        with suppress(HoldfastError):
            yield path.parent, read_header(path.parent)


def make_header(
    loaded: LoadedModel,
    data: EvaluationData,
    plan: Plan,
    judge: NormalizedModel,
    *,
    steps: PreprocessingSteps,
    settings: dict[str, Any],
    out: Path | str | None,
) -> dict[str, Any]:
    """What the record set says of itself."""
    content = content_fingerprint(data.source) if data.source is not None else ""  # stored cells have one each
    identity, answers = judge.identify(loaded.model, batch_size=settings.get("batch_size", 2))
    header = {
        "format": FORMAT,
        "task": plan.task.name,
        "model": loaded.name,
        "architecture": architecture_of(loaded.model),
        "model_fingerprint": identity,
        "data": data.spec,
        "data_label": data.label,
        "data_fingerprint": data_fingerprint(plan.ids, plan.truth, content=content),
        "label": data.protocol,
        "partial": list(plan.missing),
        "images": len(plan.ids),
        "classes": data.class_count,
        "class_names": list(data.pictures.classes),
        **({"labels": data.labels} if data.labels else {}),
        "views": list(judge.views),
        "preset": steps.preset,
        "preprocessing": steps.record(),
        "frost": recorded_name("frost"),
        "versions": versions(),
        "probe": answers,
        **({"data_content": files} if (files := data.content) else {}),
        **plugins_header(),
        **settings,
    }
    return {**header, "fingerprint": _first_name(header, loaded, judge, out) or _fingerprint(header)}


def _fingerprint(header: dict[str, Any]) -> str:
    return fingerprint({key: header[key] for key in FINGERPRINTED if key in header})


def _first_name(
    header: dict[str, Any], loaded: LoadedModel, judge: NormalizedModel, out: Path | str | None
) -> str | None:
    """The fingerprint of records that an earlier Holdfast began, if all agrees that it knew.

    It did not look at code, so records of models with code of one's own are never among them.
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
    went_on = [before for before in found if all(before.get(key) == header.get(key) for key in OF_BEFORE)]
    begun = [before for before in found if "probe" not in before and not any(key in before for key in LATER)]
    if not went_on and begun and not has_own_code(loaded.model):
        first = first_fingerprint(loaded.model, judge.views)
        went_on = [before for before in begun if before.get("model_fingerprint") == first]
    return str(went_on[0]["fingerprint"]) if went_on else None


def _root(out: Path | str | None, loaded: LoadedModel) -> Path | None:
    return Path(out).expanduser() if out is not None else loaded.folder


def _folder_name(header: dict[str, Any], digest: str) -> str:
    return f"{header['data_label']}-{digest[:8]}"


@contextmanager
def record_folder(
    out: Path | str | None, loaded: LoadedModel, header: dict[str, Any], processes: Processes
) -> Iterator[Path]:
    """Where the records go: below ``out``, else into the run; a folder for the time being where there is neither."""
    name, root = _folder_name(header, header["fingerprint"]), _root(out, loaded)
    if root is not None:
        yield root / FOLDER / name
    elif processes.count > 1:
        raise HoldfastError(f"out must be a folder that all {processes.count} processes can write to, got none")
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            yield Path(temporary) / FOLDER / name
