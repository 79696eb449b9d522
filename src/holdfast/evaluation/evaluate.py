"""``holdfast.evaluate``: any model, any data, any suites, and records that never have to be computed twice."""

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast import atomic
from holdfast.corruptions import recorded_name
from holdfast.data import Source, check_known_classes, turned_images
from holdfast.decoding import check_exif, turned_warning
from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import fitted_corruptors
from holdfast.evaluation.cells import Plan
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.loader import fitting_shard
from holdfast.evaluation.processes import Processes, together
from holdfast.evaluation.progress import Live
from holdfast.evaluation.protocol import Steps, largest_size, model_input
from holdfast.evaluation.runner import Key, Work, finished_units, run_units
from holdfast.evaluation.suites import EvaluationData, check_suites, make_plan, open_evaluation_data, parse_suites
from holdfast.models.corruptor import Corruptor
from holdfast.models.fingerprint import model_fingerprint
from holdfast.models.segmenter import windowed
from holdfast.models.specs import LoadedModel, architecture_of, load_model
from holdfast.records.fingerprints import content_fingerprint, data_fingerprint, fingerprint, versions
from holdfast.records.header import CLASSIFICATION, FOLDER, FORMAT, HEADER, read_header, write_header, write_images
from holdfast.records.records import Records, read_records
from holdfast.records.units import remove_leftovers

logger = logging.getLogger(__name__)


def evaluate(
    model: nn.Module | str | Path,
    data: Source | str,
    suites: str | Sequence[str] = "clean",
    *,
    out: Path | str | None = None,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    amp: bool = False,
    fresh: bool = False,
    extra: bool = False,
    stored_jpeg: bool = False,
    preset: str | None = None,
    size: int | tuple[int, int] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str | None = None,
    window: int | tuple[int, int] | None = None,
    stride: int | None = None,
    attack_batch_size: int = 64,
    shard_size: int | None = None,
    exif: str = "ignore",
    classes_differ: bool = False,
    show: bool | None = None,
) -> Records:
    """Measure a model on every cell of some suites and return what it said of every image.

    Run again, it continues: units that are on disk are read, not measured. Another model, data set, seed, way of
    preprocessing or version has another folder, so nothing is ever mixed.

    Args:
        model: a module, or ``run:DIR``, ``timm:NAME[@CHECKPOINT]``, ``local-dir:DIR``, ``python:module:function``.
        data: a spec such as ``digits``, ``folder:DIR``, ``imagenet-c:DIR``, or a source.
        suites: names of suites, see :data:`holdfast.evaluation.suites.SUITES`; a comma list or a sequence.
        out: the folder that gets ``records/``; the run's own for ``run:DIR``, else nothing is kept.
        limit: measure so many images only, every class in its share, chosen by their ids.
        seed: of corruptions and attacks.
        batch_size: images per forward pass; does not change results.
        workers: processes that read and corrupt images; None for as many as the machine can use, 0 for none.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``; a module stays where it is with ``auto``.
        amp: run the model in half precision (bfloat16 where there is, else float16); attacks stay in single.
        fresh: start over instead of continuing.
        extra: with the four extra corruptions, or perturbations.
        stored_jpeg: pass corrupted images through a JPEG of quality 85, as the stored ImageNet-C was.
        preset: the protocol: ``imagenet``, ``cifar``, ``tiny``, ``inception``, ``any``; chosen by the images unless
            given.
        size: height and width the model wants; from its timm configuration unless given.
        mean: subtracted from [0,1] pixels; likewise. A module without configuration gets the pixels themselves.
        std: divides them then.
        interpolation: brings protocol images to ``size``.
        window: height and width of sliding windows, for models of label maps; the model's own unless given.
        stride: pixels from one window to the next; three quarters of the window unless given.
        attack_batch_size: images that are attacked together; attacks are exact for a fixed one.
        shard_size: images per unit of work; None for 256, or fewer where they are large.
        exif: ``ignore`` rotations that EXIF data of a folder's images ask for, or ``apply`` them.
        classes_differ: measure a run also on data whose classes have other names than those it was trained on.
        show: show progress; None shows it on a terminal.
    """
    names = parse_suites(suites)
    _check_counts(batch_size=batch_size, attack_batch_size=attack_batch_size, shard_size=shard_size, workers=workers)
    opened = open_evaluation_data(data, limit=limit, exif=check_exif(exif))
    check_suites(names, opened)
    loaded = load_model(model)
    if window is not None:
        loaded = replace(loaded, model=windowed(loaded.model, window, stride))
    asked = adapted(loaded.model, opened)
    wanted = model_input(loaded.model, size=size, mean=mean, std=std, interpolation=interpolation)
    steps = opened.task.steps(opened.pictures, wanted, preset=_preset(preset, opened), stored_jpeg=stored_jpeg)
    plan = make_plan(names, opened, steps=steps, extra=extra, limit=limit)
    where = choose_device(device, loaded.model, fixed=not isinstance(model, nn.Module))
    with together() as processes, _evaluation_mode(asked):
        precision = _precision(amp, where)
        judge = Judge(asked, steps=steps, device=where, amp=precision)
        restricted = any(cell.restricted_to for cell in plan.cells)
        if not classes_differ:
            check_known_classes(loaded.classes, opened.pictures, data=opened.spec)
        plan.task.check_model(judge.probe, classes=plan.classes, restricted=restricted, data=opened.spec)
        settings: dict[str, Any] = {
            "seed": seed,
            "limit": limit,
            "amp": precision,
            "shard_size": shard_size or fitting_shard(steps.size or largest_size(opened.pictures)),
            "attack_batch_size": attack_batch_size,
            **({"exif": exif} if exif != "ignore" else {}),
        }
        header = _header(loaded, opened, plan, judge, steps=steps, settings=settings)
        with (
            _folder(out, loaded, header, processes) as folder,
            atomic.leaving_nothing(folder, unless=lambda: any(folder.glob("*.[0-9]*.safetensors"))),
        ):
            work = Work(
                plan,
                folder,
                header["fingerprint"],
                seed=seed,
                shard_size=settings["shard_size"],
                batch_size=batch_size,
                attack_batch_size=attack_batch_size,
                workers=_workers(workers, where, processes),
            )
            records = _measure(_Errand(work, header, judge, steps), processes, fresh=fresh, show=show)
        if opened.source is not None and (warning := turned_warning(turned_images(opened.source), exif=exif)):
            logger.warning(warning)
    return records if records.folder and records.folder.exists() else replace(records, folder=None)


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
)


@dataclass(frozen=True)
class _Errand:
    work: Work
    header: dict[str, Any]
    judge: Judge
    steps: Steps


def _measure(errand: _Errand, processes: Processes, *, fresh: bool, show: bool | None) -> Records:
    work, plan = errand.work, errand.work.plan
    keys = work.units()
    mine = [keys[number] for number in processes.share(len(keys))]
    if processes.first:
        _prepare_folder(errand, fresh=fresh)
    processes.meet()
    total = sum(len(plan.rows(shard, work.shard_size)) for shard, _ in mine)
    imagenet = plan.classes == 1000 and errand.steps.preset == "imagenet"
    with Live(total=total, imagenet=imagenet, show=show if processes.first else False) as live:
        done = finished_units(work, errand.judge.views, repair=processes.first, watcher=live)
        processes.meet()  # damaged files are set aside before anybody writes
        live.looked_at(sum(len(plan.rows(shard, work.shard_size)) for shard, cell in mine if (shard, cell) in done))
        todo = [key for key in mine if key not in done]
        corruptors = _fitted(errand, todo, processes)
        if todo:
            run_units(work, todo, judge=errand.judge, steps=errand.steps, watcher=live, corruptors=corruptors)
    processes.meet()
    records = read_records(work.folder, cells=[cell.name for cell in plan.cells])
    if records.excluded and processes.first:
        shown = ", ".join(records.excluded[:3]) + (" …" if len(records.excluded) > 3 else "")
        logger.warning(
            "%d of %d images could not be read and count in no cell: %s", len(records.excluded), len(plan.ids), shown
        )
    if plan.missing and processes.first:
        shown = ", ".join(plan.missing[:5]) + (" …" if len(plan.missing) > 5 else "")
        logger.warning("the result is partial: %d cells are missing in the stored set: %s", len(plan.missing), shown)
    return records


def _fitted(errand: _Errand, todo: Sequence[Key], processes: Processes) -> dict[str, Corruptor]:
    """What learned attacks learn before the units; every process asks, since they wait for each other."""
    work = errand.work
    wanted = {work.plan.cells[cell].name for _, cell in (todo if processes.count == 1 else work.units())}
    return fitted_corruptors(
        work.plan,
        [cell for cell in work.plan.cells if cell.name in wanted],
        errand.judge,
        steps=errand.steps,
        seed=work.seed,
        batch_size=work.attack_batch_size,
        folder=work.folder,
        processes=processes,
    )


def _say_if_begun_before(folder: Path, header: dict[str, Any]) -> None:
    """Records of an earlier format stay readable, but are not continued: the one sentence about it."""
    same = ("model", "data", "seed", "limit", "preset")
    for path in sorted(folder.parent.glob(f"*/{HEADER}")):
        with suppress(HoldfastError):
            before = read_header(path.parent)
            if before.get("format", 0) < FORMAT and all(before.get(key) == header[key] for key in same):
                logger.warning(
                    "%s was measured by an earlier Holdfast: it stays readable, and this evaluation starts anew in %s",
                    path.parent.name,
                    folder.name,
                )


def _prepare_folder(errand: _Errand, *, fresh: bool) -> None:
    folder = errand.work.folder
    if not folder.exists():
        _say_if_begun_before(folder, errand.header)
    try:
        if fresh and (folder / HEADER).exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        write_images(folder, errand.work.plan.ids, errand.work.plan.truth)
        write_header(folder, errand.header)
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(folder)!r} ({error.strerror})") from error


def _header(
    loaded: LoadedModel,
    data: EvaluationData,
    plan: Plan,
    judge: Judge,
    *,
    steps: Steps,
    settings: dict[str, Any],
) -> dict[str, Any]:
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
        **({} if plan.task.name == CLASSIFICATION else {"class_names": list(data.pictures.classes)}),
        "views": list(judge.views),
        "preset": steps.preset,
        "preprocessing": steps.record(),
        "frost": recorded_name("frost"),
        "versions": versions(),
        **settings,
    }
    return {**header, "fingerprint": fingerprint({key: header[key] for key in FINGERPRINTED if key in header})}


@contextmanager
def _folder(
    out: Path | str | None, loaded: LoadedModel, header: dict[str, Any], processes: Processes
) -> Iterator[Path]:
    name = f"{header['data_label']}-{header['fingerprint'][:8]}"
    root = Path(out).expanduser() if out is not None else loaded.folder
    if root is not None:
        yield root / FOLDER / name
    elif processes.count > 1:
        raise HoldfastError(f"out must be a folder that all {processes.count} processes can write to, got none")
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
            yield Path(temporary) / FOLDER / name


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def _preset(asked: str | None, data: EvaluationData) -> str | None:
    if data.stored is None:
        return asked
    if asked not in (None, data.stored.preset):
        raise HoldfastError(f"preset of {data.spec!r} is {data.stored.preset!r} by its making, got {asked!r}")
    return data.stored.preset


def adapted(model: nn.Module, data: EvaluationData) -> nn.Module:
    """The model as the data must ask it: itself, unless the task has a say."""
    adapt = getattr(data.task, "adapted", None)
    return model if adapt is None else adapt(model, data.pictures)


def choose_device(asked: str, model: nn.Module, *, fixed: bool) -> torch.device:
    """Where to run: what was asked for; ``auto`` leaves a module where it is, unless it is ``fixed`` to be moved."""
    own = next((parameter.device for parameter in model.parameters()), None)
    if asked == "auto" and not fixed and own is not None:
        return own
    if asked in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if asked == "auto":
        return torch.device("cpu")
    try:
        device = torch.device(asked)
        torch.empty(1, device=device)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise HoldfastError(f"device must be one that torch can use here, got {asked!r} ({reason})") from error
    return device


def _precision(amp: bool, device: torch.device) -> str:
    if not amp:
        return "no"
    return "float16" if device.type == "cuda" and not torch.cuda.is_bf16_supported() else "bfloat16"


def _workers(asked: int | None, device: torch.device, processes: Processes) -> int:
    if asked is not None:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    mine = max(1, cores // processes.count)
    return min(8, mine) if device.type != "cpu" else max(1, mine // 2)


def _check_counts(*, batch_size: int, attack_batch_size: int, shard_size: int | None, workers: int | None) -> None:
    for name, value in (
        ("batch_size", batch_size),
        ("attack_batch_size", attack_batch_size),
        ("shard_size", shard_size),
    ):
        if value is not None and value < 1:
            raise HoldfastError(f"{name} must be at least 1, got {value}")
    if workers is not None and workers < 0:
        raise HoldfastError(f"workers must be 0 or more, got {workers}")
