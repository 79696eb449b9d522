"""Where the records of an evaluation go, and what their header says."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.corruptions import recorded_name
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Plan
from holdfast.evaluation.evaluation_data import EvaluationData
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.processes import Processes
from holdfast.evaluation.protocol import Steps
from holdfast.models.fingerprint import model_fingerprint
from holdfast.models.specs import LoadedModel, architecture_of
from holdfast.own_code import plugins_told
from holdfast.records.fingerprints import content_fingerprint, data_fingerprint, fingerprint, versions
from holdfast.records.header import FOLDER, FORMAT, HEADER, read_header, write_header, write_images
from holdfast.records.units import remove_leftovers

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
)


def _say_if_begun_before(folder: Path, header: dict[str, Any]) -> None:
    """Records of an earlier format or another preparation stay readable, but are not continued: a sentence about it."""
    same = ("model", "data", "seed", "limit", "preset")
    for path in sorted(folder.parent.glob(f"*/{HEADER}")):
        with suppress(HoldfastError):
            before = read_header(path.parent)
            if not all(before.get(key) == header[key] for key in same):
                continue
            if before.get("format", 0) < FORMAT:
                why = "by an earlier Holdfast"
            elif before.get("preprocessing") != header["preprocessing"]:
                why = "on images that were prepared otherwise"
            else:
                continue
            logger.warning(
                "%s was measured %s: it stays readable, and this evaluation starts anew in %s",
                *(path.parent.name, why, folder.name),
            )


def prepare_folder(folder: Path, header: dict[str, Any], plan: Plan, *, fresh: bool) -> None:
    """Make the folder of a record set, with its images and its header."""
    if not folder.exists():
        _say_if_begun_before(folder, header)
    try:
        if fresh and (folder / HEADER).exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        write_images(folder, plan.ids, plan.truth)
        write_header(folder, header)
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error


def make_header(
    loaded: LoadedModel,
    data: EvaluationData,
    plan: Plan,
    judge: Judge,
    *,
    steps: Steps,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """What the record set says of itself."""
    content = content_fingerprint(data.source) if data.source is not None else ""  # stored cells have one each
    header = {
        "format": FORMAT,
        "task": plan.task.name,
        "model": loaded.name,
        "architecture": architecture_of(loaded.model),
        "model_fingerprint": model_fingerprint(loaded.model, judge.views),
        "data": data.spec,
        "data_label": data.label,
        "data_fingerprint": data_fingerprint(plan.ids, plan.truth, content=content),
        "label": data.protocol,
        "partial": list(plan.missing),
        "images": len(plan.ids),
        "classes": plan.classes,
        "class_names": list(data.pictures.classes),
        "views": list(judge.views),
        "preset": steps.preset,
        "preprocessing": steps.record(),
        "frost": recorded_name("frost"),
        "versions": versions(),
        **plugins_told(),
        **settings,
    }
    return {**header, "fingerprint": fingerprint({key: header[key] for key in FINGERPRINTED if key in header})}


@contextmanager
def record_folder(
    out: Path | str | None, loaded: LoadedModel, header: dict[str, Any], processes: Processes
) -> Iterator[Path]:
    """Where the records go: below ``out``, else into the run; a folder for the time being where there is neither."""
    name = f"{header['data_label']}-{header['fingerprint'][:8]}"
    root = Path(out).expanduser() if out is not None else loaded.folder
    if root is not None:
        yield root / FOLDER / name
    elif processes.count > 1:
        raise HoldfastError(f"out must be a folder that all {processes.count} processes can write to, got none")
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            yield Path(temporary) / FOLDER / name
