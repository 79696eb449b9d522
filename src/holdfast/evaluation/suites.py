"""Suites: the protocols by name, as lists of cells."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.attacks import PRESETS, LearnedOcclusion, Occlusion
from holdfast.corruptions import EXTRA, SEVERITIES, STANDARD, parameters, recorded_name
from holdfast.corruptions.sequences import EXTRA_SEQUENCES, SEQUENCE_PRESETS, TEST_SEQUENCES, frame_count
from holdfast.data import Source, Subset, open_data
from holdfast.data.stored import OfficialSet, check_imagenet_order, is_official, open_official
from holdfast.errors import HoldfastError
from holdfast.evaluation.cells import Cell, Plan, limited, shared_plan, stored_plan
from holdfast.evaluation.protocol import Preprocessing
from holdfast.names import chosen_names, file_name
from holdfast.records.fingerprints import content_fingerprint
from holdfast.records.revisions import revised

WNID = re.compile(r"n\d{8}")

# what is attacked with; the corruption model of the learned occlusion is fitted to each shard before it is scored, in
# more passes than a whole data set would take
ATTACKS: dict[str, Any] = {**PRESETS, "occlusion-learned": LearnedOcclusion(epochs=50)}
_ATTACK_LINES = {
    "fgsm": "FGSM, L∞ 1/255 (RVT)",
    "pgd5": "PGD, L∞ 1/255, 5 steps (RVT; AFAT's Table 3)",
    "pgd3-rvt-adv": "PGD, L∞ 4/255, 3 steps (RVT's test of adversarially trained networks)",
    "pgd5-rspc": "PGD, L∞ 8/255, 5 steps (AFAT's released code)",
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
    "corruptions": "15 corruptions × 5 severities, on the fly (--extra: 19 × 5)",
    "perturbations": "10 perturbation sequences (--extra: 14), on the fly or from imagenet-p:DIR, cifar10-p:DIR",
    **STORED,
    **{name: _ATTACK_LINES.get(name, f"the attack {type(attack).__name__}") for name, attack in ATTACKS.items()},
}
OFFICIAL, ON_THE_FLY = "official", "on-the-fly"


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

    @property
    def protocol(self) -> str:
        """``official`` or ``on-the-fly``."""
        return OFFICIAL if self.stored is not None else ON_THE_FLY


def open_evaluation_data(data: Source | str, *, limit: int | None = None) -> EvaluationData:
    """Open a data spec, or take a source as it is; of data with several splits the test split, unless it says."""
    if not isinstance(data, str):
        name = str(getattr(data, "name", type(data).__name__))
        return EvaluationData(name, _slug(name), source=_first(data, limit))
    if is_official(data):
        return EvaluationData(data, _slug(data), stored=open_official(data))
    source = open_data(data, split="test")
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
        if data.stored is None and name in STORED:
            needed = STORED[name].rpartition("--data ")[2]
            raise HoldfastError(f"suite {name!r} needs the stored set, --data {needed}, got {data.spec!r}")


def make_plan(
    names: Sequence[str], data: EvaluationData, *, steps: Preprocessing, extra: bool, limit: int | None
) -> Plan:
    """All images and cells of these suites on these data."""
    check_suites(names, data)
    if data.stored is not None:
        return _stored_plan(data.stored, extra=extra, limit=limit)

    def cells(source: Any) -> list[Cell]:
        made = [cell for name in names for cell in _CELLS.get(name, _attacked)(name, source, steps, extra)]
        return [replace(cell, definition=revised(cell.definition, preset=steps.preset)) for cell in made]

    return shared_plan(data.source, cells)


def fitting_patch(size: tuple[int, int]) -> int:
    """The patch of an occlusion: 16 px where that gives a fine grid, else an eighth of a small image, so 4 of 32."""
    common = gcd(*size)
    if common % 16 == 0 and common >= 112:
        return 16
    wanted = common / (8 if common < 112 else 14)
    return min((d for d in range(1, common + 1) if common % d == 0), key=lambda d: (abs(d - wanted), d))


def _clean(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    yield Cell("clean", "clean", source, {"suite": name})


def _corrupted(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    for kind in STANDARD + EXTRA if extra else STANDARD:
        for severity in SEVERITIES:
            settings = _plain(parameters(kind, severity, preset=steps.preset))
            definition = {"suite": name, "kind": recorded_name(kind), "severity": severity, "parameters": settings}
            yield Cell(f"{kind}/{severity}", "corrupted", source, definition, kind=kind, severity=severity)


def _sequences(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    if steps.preset not in SEQUENCE_PRESETS:
        known = ", ".join(SEQUENCE_PRESETS)
        raise HoldfastError(f"suite 'perturbations' needs one of the presets {known}, got {steps.preset!r}")
    for kind in TEST_SEQUENCES + EXTRA_SEQUENCES if extra else TEST_SEQUENCES:
        frames = frame_count(kind, preset=steps.preset)
        yield Cell(f"sequence/{kind}", "sequence", source, {"suite": name, "kind": kind, "frames": frames}, kind=kind)


def _attacked(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    attack = ATTACKS[name]
    if isinstance(attack, Occlusion | LearnedOcclusion):
        attack = replace(attack, patch_size=fitting_patch(steps.size))
    definition = {"suite": name, "attack": type(attack).__name__, "settings": _plain(asdict(attack))}
    yield Cell(name, "attacked", source, definition, attack=attack)


_CELLS: dict[str, Callable[[str, Any, Preprocessing, bool], Iterator[Cell]]] = {
    "clean": _clean,
    "corruptions": _corrupted,
    "perturbations": _sequences,
}


def _stored_plan(stored: OfficialSet, *, extra: bool, limit: int | None) -> Plan:
    names = [name for name in stored.cells if extra or _is_standard(name)]
    return stored_plan([_stored_cell(stored, name) for name in names], limit=limit, missing=stored.missing)


def _stored_cell(stored: OfficialSet, name: str) -> Cell:
    source: Any = stored.open(name)
    content = content_fingerprint(source, sample=64)  # of tens of cells, so not all files of each
    definition: dict[str, Any] = {"suite": stored.suite, "set": stored.name, "content": content}
    if name.startswith("sequence/"):
        kind = name.removeprefix("sequence/")
        definition |= {"kind": kind, "frames": source.frame_count}
        return Cell(name, "film", source, definition, kind=kind)
    if "/" in name:
        kind, _, severity = name.partition("/")
        definition |= {"kind": kind, "severity": int(severity)}
        return Cell(name, "stored", source, definition, kind=kind, severity=int(severity))
    return Cell(name, "clean", source, definition, restricted_to=stored.restricted_to)


def _is_standard(cell: str) -> bool:
    kind = cell.removeprefix("sequence/").partition("/")[0]
    return kind not in (EXTRA_SEQUENCES if cell.startswith("sequence/") else EXTRA)


def _first(source: Source, limit: int | None) -> Source:
    if limit is None:
        return source
    ids = [source.id(index) for index in range(len(source))]
    rows = limited(ids, np.asarray(source.targets), limit)
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
