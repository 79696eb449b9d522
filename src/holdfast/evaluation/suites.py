"""Suites: the protocols by name, as lists of cells."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from holdfast.attacks import PIXEL_PRESETS, PRESETS, LearnedOcclusion, Occlusion
from holdfast.attacks.patches import fitting_patch
from holdfast.corruptions import EXTRA, SEVERITIES, STANDARD, own_kinds, parameters, recorded_name
from holdfast.corruptions.sequences import EXTRA_SEQUENCES, SEQUENCE_PRESETS, TEST_SEQUENCES, frame_count
from holdfast.data import Source, Subset, open_data
from holdfast.data.stored import OFFICIAL as SETS
from holdfast.data.stored import Layout, OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.errors import HoldfastError
from holdfast.evaluation.attacking import fitting_definition
from holdfast.evaluation.cells import Cell, Plan, limited, shared_plan, stored_plan
from holdfast.evaluation.making import AsTheyAre, Corrupted, Film, Perturbed, Stored
from holdfast.evaluation.protocol import Steps
from holdfast.metrics.average_precision import COCO_C, COCO_C_FAN
from holdfast.metrics.iou import SEVERITY_RULES
from holdfast.names import chosen_names, file_name
from holdfast.records.cells import (
    CLEAN,
    CellSpec,
    attack_cell,
    corruption_cell,
    sequence_cell,
)
from holdfast.records.fingerprints import content_fingerprint
from holdfast.records.revisions import revised
from holdfast.tasks import Task, task_of

WNID = re.compile(r"n\d{8}")

# what is attacked with; the corruption model of the learned occlusion is fitted to a sample of the images before they
# are scored, in more passes than a whole data set would take
ATTACKS: dict[str, Any] = {**PRESETS, **PIXEL_PRESETS, "occlusion-learned": LearnedOcclusion(epochs=50)}
_ATTACK_LINES = {
    "fgsm": "FGSM, L∞ 1/255 (RVT)",
    "pgd5": "PGD, L∞ 1/255, 5 steps (RVT; AFAT's Table 3)",
    "pgd3-rvt-adv": "PGD, L∞ 4/255, 3 steps (RVT's test of adversarially trained networks)",
    "pgd5-rspc": "PGD, L∞ 8/255, 5 steps (AFAT's released code)",
    "segpgd5": "SegPGD, L∞ 1/255, 5 steps (segmentation)",
    "pgd20": "PGD, L∞ 8/255, 20 steps",
    "segpgd20": "SegPGD, L∞ 8/255, 20 steps (segmentation)",
    "patch-fool": "Patch-Fool, one patch, 250 steps",
    "patch-fool-sparse": "Patch-Fool, 250 pixels",
    "occlusion-random": "a tenth of the patches replaced by noise, 10 masks",
    "occlusion-learned": "the same where a corruption model wants it, fitted to the model and the images",
    "autoattack-imagenet": "AutoAttack, L∞ 4/255",
    "autoattack-cifar": "AutoAttack, L∞ 8/255",
    "autoattack-cifar-l2": "AutoAttack, L2 0.5",
}
STORED = {
    "imagenet-c": "ImageNet-C as stored: --data imagenet-c:DIR",
    "cifar-c": "CIFAR-10-C or CIFAR-100-C as stored: --data cifar10-c:DIR or cifar100-c:DIR",
    "imagenet-a": "ImageNet-A, 200 classes: --data imagenet-a:DIR",
    "imagenet-r": "ImageNet-R, 200 classes: --data imagenet-r:DIR",
    "imagenet-sketch": "ImageNet-Sketch: --data imagenet-sketch:DIR",
}
SUITES: dict[str, str] = {
    "clean": "the images as they are",
    "corruptions": "15 corruptions × 5 severities, on the fly (--extra: 19 × 5; of label maps the 16 of Cityscapes-C)",
    "corruptions-135": "the same corruptions at severities 1, 3 and 5 alone: quicker, and no mCE",
    "cityscapes-c": "Cityscapes-C: 16 corruptions, noise at severities 1–3, on the fly or from cityscapes-c:DIR",
    "own-corruptions": "every corruption that you registered × 5 severities, on the fly",
    "coco-c": "COCO-C: 15 corruptions × 5 severities of objects' images at their own size (Michaelis et al.)",
    "coco-c-fan": "the 16 kinds of FAN's Table 14 × 5 severities, likewise; not comparable with coco-c",
    "perturbations": "10 perturbation sequences (--extra: 14), on the fly or from imagenet-p:DIR, cifar10-p:DIR",
    **STORED,
    **{name: _ATTACK_LINES.get(name, f"the attack {type(attack).__name__}") for name, attack in ATTACKS.items()},
}
OF_OBJECTS = ("coco-c", "coco-c-fan")
OFFICIAL, ON_THE_FLY = "official", "on-the-fly"
CellsOf = Callable[[str, Any, Steps, bool], Iterable[Cell]]  # of a suite's name, a source, its steps, extra or not


@dataclass(frozen=True)
class EvaluationData:
    """What is evaluated on.

    Attributes:
        spec: how the records name it.
        label: the same as part of a folder's name.
        source: pictures to work on, or None for stored sets.
        stored: a stored set, or None.
    """

    spec: str
    label: str
    source: Source | None = None
    stored: OfficialSet | None = None

    @cached_property
    def pictures(self) -> Any:
        """The source itself, or the first cell of a stored set, to learn what its images are like; opened once."""
        return self.source if self.stored is None else self.stored.open(self.stored.cells[0])

    @property
    def task(self) -> Task:
        """What an answer to these data is."""
        return task_of(self.pictures)

    @property
    def protocol(self) -> str:
        """``official``, how our own ``holdfast corrupt`` made it, or ``on-the-fly``."""
        return (self.stored.made or OFFICIAL) if self.stored is not None else ON_THE_FLY


def open_evaluation_data(data: Source | str, *, limit: int | None = None, exif: str = "ignore") -> EvaluationData:
    """Open a data spec, or take a source as it is; of data with several splits the test split, unless it says."""
    if not isinstance(data, str):
        name = str(getattr(data, "name", type(data).__name__))
        return EvaluationData(name, _slug(name), source=_first(data, limit))
    if is_official(data):
        return EvaluationData(data, _slug(data), stored=open_official(data))
    source = open_data(data, split="test", exif=exif)
    if all(WNID.fullmatch(name) for name in source.classes):  # ImageNet's own folders: their ranks must be its classes
        check_imagenet_order(source.classes, name=data)
    return EvaluationData(data, _slug(data), source=_first(source, limit))


def parse_suites(suites: str | Sequence[str]) -> tuple[str, ...]:
    """Names of suites, from a comma list or a sequence; each once."""
    return chosen_names(suites, SUITES, one="suite", several="suites")


def assign(names: Sequence[str], specs: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Which of several data sets serves which suites; stored sequences go before sequences on the fly."""
    stored = {spec: open_official(spec).suite for spec in specs if is_official(spec)}
    served = {
        spec: tuple(
            name
            for name in names
            if (name == stored[spec] if spec in stored else name not in {*STORED, *stored.values()})
        )
        for spec in specs
    }
    for name in names:
        if not any(name in held for held in served.values()):
            needed = STORED[name].rpartition("--data ")[2] if name in STORED else "images, such as folder:DIR"
            raise HoldfastError(f"suite {name!r} needs --data {needed}, got {', '.join(map(repr, specs))}")
    for spec, held in served.items():
        if not held:
            raise HoldfastError(f"data {spec!r} serves none of the suites {', '.join(names)}")
    return list(served.items())


def check_suites(names: Sequence[str], data: EvaluationData) -> None:
    """Refuse suites that the data cannot serve."""
    for name in names:
        if data.stored is not None and name != data.stored.suite:
            raise HoldfastError(
                f"suite {name!r} cannot be measured on the stored set {data.spec!r}, "
                f"which is scored by the suite {data.stored.suite!r}"
            )
        if name in OF_OBJECTS and data.task.name != "detection":
            raise HoldfastError(
                f"suite {name!r} needs data with objects, such as coco:IMAGES,ANNOTATIONS, got {data.spec!r}"
            )
        if data.stored is None and name in STORED:
            needed = STORED[name].rpartition("--data ")[2]
            raise HoldfastError(f"suite {name!r} needs the stored set, --data {needed}, got {data.spec!r}")


def make_plan(names: Sequence[str], data: EvaluationData, *, steps: Steps, extra: bool, limit: int | None) -> Plan:
    """All images and cells of these suites on these data."""
    check_suites(names, data)
    if data.stored is not None:
        return _stored_plan(data.stored, extra=extra, limit=limit)

    def cells(source: Any) -> list[Cell]:
        made: dict[str, tuple[str, Cell]] = {}  # suites may share cells
        for name in names:
            for cell in _CELLS.get(name, _attacked)(name, source, steps, extra):
                made.setdefault(cell.name, (name, cell))
        told = [(cell, {"suite": name, **cell.definition}) for name, cell in made.values()]
        return [replace(cell, definition=revised(said, cell.spec, preset=steps.preset)) for cell, said in told]

    return shared_plan(data.source, cells)


def _clean(name: str, source: Source, steps: Steps, extra: bool) -> Iterator[Cell]:
    yield Cell(CLEAN, AsTheyAre(), source, {"suite": name})


def _corrupted(
    name: str, source: Source, steps: Steps, extra: bool, *, severities: Sequence[int] = SEVERITIES
) -> Iterator[Cell]:
    """By the name of the whole suite, of which fewer severities are a part: what is measured is never done twice."""
    of_task = getattr(task_of(source), "corruption_kinds", None)  # where some would move pixels from their labels
    kinds = of_task(extra) if of_task is not None else STANDARD + EXTRA if extra else STANDARD
    yield from _corruption_cells("corruptions", source, steps, dict.fromkeys(kinds, severities))


def _cityscapes_c(name: str, source: Source, steps: Steps, extra: bool) -> Iterator[Cell]:
    if task_of(source).name != "segmentation":
        raise HoldfastError("suite 'cityscapes-c' needs label maps, such as cityscapes:DIR or scenes")
    yield from _corruption_cells(name, source, steps, SEVERITY_RULES["paper"])


def _kinds(name: str, source: Source, steps: Steps, extra: bool, *, kinds: Sequence[str]) -> Iterator[Cell]:
    yield from _corruption_cells(name, source, steps, dict.fromkeys(kinds, SEVERITIES))


def _corruption_cells(
    name: str, source: Source, steps: Steps, severities: Mapping[str, Sequence[int]]
) -> Iterator[Cell]:
    for kind, chosen in severities.items():
        for severity in chosen:
            settings = _plain(parameters(kind, severity, preset=steps.preset))
            definition = {"suite": name, "drawn": recorded_name(kind), "parameters": settings}
            yield Cell(corruption_cell(kind, severity), Corrupted(kind, severity), source, definition)


def _own_corruptions(name: str, source: Source, steps: Steps, extra: bool) -> Iterator[Cell]:
    if not own_kinds():
        raise HoldfastError("suite 'own-corruptions' needs a corruption of your own, see holdfast.corruptions.register")
    yield from _corruption_cells(name, source, steps, dict.fromkeys(own_kinds(), SEVERITIES))


def _sequences(name: str, source: Source, steps: Steps, extra: bool) -> Iterator[Cell]:
    if steps.preset not in SEQUENCE_PRESETS:
        known = ", ".join(SEQUENCE_PRESETS)
        raise HoldfastError(f"suite 'perturbations' needs one of the presets {known}, got {steps.preset!r}")
    for kind in TEST_SEQUENCES + EXTRA_SEQUENCES if extra else TEST_SEQUENCES:
        frames = frame_count(kind, preset=steps.preset)
        yield Cell(sequence_cell(kind), Perturbed(kind), source, {"suite": name, "frames": frames})


def _attacked(name: str, source: Source, steps: Steps, extra: bool) -> Iterator[Cell]:
    attack = ATTACKS[name]
    if isinstance(attack, Occlusion | LearnedOcclusion):
        if steps.size is None:
            raise HoldfastError(f"suite {name!r} needs images of one size; set size")
        attack = replace(attack, patch_size=fitting_patch(steps.size))
    definition = {"suite": name, "attack": type(attack).__name__, "settings": _plain(asdict(attack))}
    if isinstance(attack, LearnedOcclusion):
        definition |= fitting_definition()
    yield Cell(attack_cell(name), AsTheyAre(), source, definition, attack=attack)


_CELLS: dict[str, CellsOf] = {
    "clean": _clean,
    "corruptions": _corrupted,
    "corruptions-135": partial(_corrupted, severities=(1, 3, 5)),
    "cityscapes-c": _cityscapes_c,
    "coco-c": partial(_kinds, kinds=COCO_C),
    "coco-c-fan": partial(_kinds, kinds=COCO_C_FAN),
    "perturbations": _sequences,
    "own-corruptions": _own_corruptions,
}


def register_suite(name: str, line: str, cells: CellsOf) -> None:
    """Make a suite known by one row.

    Args:
        name: as in ``--suite``.
        line: what it measures, for ``holdfast list suites``.
        cells: ``cells(name, source, steps, extra)`` gives its cells of a data source. A new kind of cell is a class
            with ``repeated`` and ``pieces`` like those of :mod:`holdfast.evaluation.making`.
    """
    _check_new(name)
    SUITES[name], _CELLS[name] = line, cells


def register_attack(name: str, attack: Any, line: str) -> None:
    """Make an attack a suite of its name.

    ``attack`` is a dataclass, so that records can say what it was; it is called with a model of [0,1] images, images
    and labels, by keyword ``seed`` and, if it takes them, ``ids`` and ``goal``; its result has ``images``.
    """
    _check_new(name)
    if not is_dataclass(attack) or isinstance(attack, type) or not callable(attack):
        raise HoldfastError(f"attack must be an object of a dataclass that can be called, got {attack!r}")
    SUITES[name], ATTACKS[name] = line, attack


def register_official(name: str, line: str, look: Callable[[str, Path], OfficialSet]) -> None:
    """Make a stored test set known: as ``--data NAME:DIR``, and as the suite of that name that scores it.

    ``look(name, folder)`` says what is there and how it is opened, see :class:`holdfast.data.OfficialSet`.
    """
    _check_new(name)
    if name in SETS:
        raise HoldfastError(f"data {name!r} is registered already; choose another name")
    SETS[name] = Layout(line, look)
    STORED[name] = SUITES[name] = f"{line}: --data {name}:DIR"


def _check_new(name: str) -> None:
    if name != file_name(name) or not name:
        raise HoldfastError(f"name must be letters, digits and -, because files are called so, got {name!r}")
    if name in SUITES:
        raise HoldfastError(f"suite {name!r} is registered already; choose another name")


def _stored_plan(stored: OfficialSet, *, extra: bool, limit: int | None) -> Plan:
    cells = [cell for cell in stored.cells if extra or stored.extras or not _is_extra(cell)]
    return stored_plan([_stored_cell(stored, cell) for cell in cells], limit=limit, missing=stored.missing)


def _stored_cell(stored: OfficialSet, spec: CellSpec) -> Cell:
    source: Any = stored.open(spec)
    content = content_fingerprint(source, sample=64)  # of tens of cells, so not all files of each
    definition: dict[str, Any] = {"suite": stored.suite, "set": stored.name, "content": content}
    if spec.family == "sequence":
        return Cell(spec, Film(), source, {**definition, "frames": source.frame_count})
    if spec.family == "corruption":
        return Cell(spec, Stored(), source, definition)
    return Cell(spec, AsTheyAre(), source, definition, restricted_to=stored.restricted_to)


def _is_extra(cell: CellSpec) -> bool:
    return cell.kind in {"corruption": EXTRA, "sequence": EXTRA_SEQUENCES}.get(cell.family, ())


def _first(source: Source, limit: int | None) -> Source:
    if limit is None:
        return source
    ids = [source.id(index) for index in range(len(source))]
    rows = limited(ids, task_of(source).strata(source), limit)
    return source if len(rows) == len(source) else Subset(source, rows)


def _slug(spec: str) -> str:
    name, _, rest = spec.partition(":")
    words = [name, *([Path(rest).stem] if rest else [])]
    return file_name("-".join(words)).strip("-.")


def _plain(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    return values
