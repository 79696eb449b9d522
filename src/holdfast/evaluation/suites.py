"""Evaluation suites: published protocols by name, as lists of cells."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.attacks import LearnedOcclusion, Occlusion
from holdfast.attacks.patch_selection import fitting_patch
from holdfast.benchmarks import BENCHMARKS, benchmark_suites, benchmarks_of
from holdfast.cells import CLEAN, CellSpec, attack_cell, corruption_cell, sequence_cell
from holdfast.corruptions import EXTRA, FUNCTIONS, SEVERITIES, STANDARD, own_kinds, parameters, recorded_name
from holdfast.corruptions.c_bar_severities import C_BAR_PRESETS, C_BAR_SUITES
from holdfast.corruptions.sequences import EXTRA_SEQUENCES, SEQUENCE_PRESETS, TEST_SEQUENCES, frame_count
from holdfast.data import Source
from holdfast.data.class_labels import labels_by_folder
from holdfast.data.domains import domains_of
from holdfast.data.fingerprints import content_fingerprint
from holdfast.data.official_sets import OFFICIAL as SETS
from holdfast.data.official_sets import OfficialSet, StoredLayout, is_official, open_official
from holdfast.errors import HoldfastError
from holdfast.evaluation.attack_cells import fitting_definition
from holdfast.evaluation.attack_specs import (
    ATTACKS,
    AttackSuite,
    all_different,
    attack_from_object,
    attacks_from_text,
    checked_attack,
    is_attack_text,
    named_attack,
    plain,
)
from holdfast.evaluation.cell_images import CleanImages, CorruptedImages, PerturbedImages, SequenceImages, StoredImages
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.plan import Cell, Plan, shared_plan, stored_plan
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.io.validation import chosen_names, comma_list, file_name
from holdfast.records.compatibility import with_revision
from holdfast.registry import STORED, SUITES, warn_of_order
from holdfast.runtime.plugins import code_fingerprint
from holdfast.tasks import task_named, task_of
from holdfast.tasks.base import Task

Suite = str | AttackSuite
QUICK_SEVERITY = 3
CellsOf = Callable[[str, Any, Preprocessing, bool], Iterable[Cell]]  # (suite name, source, preprocessing steps, extra)


def parse_suites(suites: Any) -> tuple[Suite, ...]:
    """Parse suites from a comma list, an attack with settings, an attack object, or a sequence of these; each once."""
    if isinstance(suites, str) and is_attack_text(suites):
        return all_different(attacks_from_text(suites))
    if isinstance(suites, str):
        _refuse_kinds(suites)
        return chosen_names(suites, SUITES | benchmark_suites(), one="suite", several="suites")
    if isinstance(suites, AttackSuite) or callable(suites):
        return (suites if isinstance(suites, AttackSuite) else attack_from_object(suites),)
    if isinstance(suites, Mapping) or not isinstance(suites, Iterable):
        raise HoldfastError(f"suites must be names, attacks or a sequence of both, got {type(suites).__name__}")
    found = all_different(suite for part in suites if part != "" for suite in parse_suites(part))
    return found or chosen_names("", SUITES, one="suite", several="suites")


def _refuse_kinds(suites: str) -> None:
    """Raise an error for the name of a corruption, which a newcomer may take for a suite."""
    for name in comma_list(suites):
        if name in FUNCTIONS and name not in SUITES:
            raise HoldfastError(f"{name!r} is a corruption, not a suite; the suite 'corruptions' measures it")


def assign(names: Sequence[Suite], specs: Sequence[str]) -> list[tuple[str, tuple[Suite, ...]]]:
    """Assign suites to several data sets; stored sequences are preferred to sequences generated on the fly."""
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
            raise HoldfastError(f"suite {str(name)!r} needs --data {needed}, got {', '.join(map(repr, specs))}")
    for spec, held in served.items():
        if not held:
            raise HoldfastError(f"data {spec!r} is used by none of the suites {', '.join(map(str, names))}: omit it")
    return list(served.items())


def check_suites(names: Sequence[Suite], data: EvaluationData) -> None:
    """Raise an error for suites that cannot be measured on the data."""
    for name in names:
        if data.stored is not None and name != data.stored.suite:
            raise HoldfastError(
                f"suite {str(name)!r} cannot be measured on the stored set {data.spec!r}, "
                f"which is scored by the suite {data.stored.suite!r}"
            )
        if name in benchmark_suites() and data.task is not (task := task_named(BENCHMARKS[str(name)].task)):
            raise HoldfastError(f"suite {name!r} needs {task.evaluation.needs}, got {data.spec!r}")
        if data.stored is None and name in STORED:
            needed = STORED[name].rpartition("--data ")[2]
            raise HoldfastError(f"suite {name!r} needs the stored set, --data {needed}, got {data.spec!r}")


def make_plan(
    names: Sequence[Suite], data: EvaluationData, *, steps: Preprocessing, extra: bool, limit: int | None
) -> Plan:
    """Make the plan: all images and cells of these suites, which `check_suites` has checked, on these data."""
    if data.stored is not None:
        return _stored_plan(data.stored, steps=steps, extra=extra, limit=limit)

    def cells(source: Any) -> list[Cell]:
        made: dict[str, tuple[Suite, Cell]] = {}  # suites may share cells
        for name in names:
            for cell in _cells_of(name)(name, source, steps, extra):
                made.setdefault(cell.name, (name, cell))
        defined = [(cell, {"suite": str(name), **_definition(cell, steps)}) for name, cell in made.values()]
        return [replace(cell, definition=with_revision(said, cell.spec, preset=steps.preset)) for cell, said in defined]

    return shared_plan(data.source, cells)


def _definition(cell: Cell, steps: Preprocessing) -> dict[str, Any]:
    """The cell's definition with the preprocessing steps of its images."""
    taken = steps.cell_steps(way) if (way := getattr(cell.make, "way", None)) is not None else []
    return {**cell.definition, **({"preprocessing": taken} if taken else {})}


def _clean(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    domains = list(domains_of(source))
    yield Cell(CLEAN, CleanImages(), source, {"suite": name, **({"domains": domains} if domains else {})})


def _cells_of_corruptions(
    name: str, source: Source, steps: Preprocessing, extra: bool, *, severities: Sequence[int] = SEVERITIES
) -> Iterator[Cell]:
    """Cells under the name ``corruptions`` even for fewer severities, so that both suites share their records."""
    kinds = kinds_of(task_of(source), extra=extra)
    yield from _corruption_cells("corruptions", source, steps, dict.fromkeys(kinds, severities))


def _cells_of_quick(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    """Clean images and every kind at one severity, under the names of the suites that have these cells."""
    task = task_of(source)
    yield from _clean("clean", source, steps, extra)
    yield from _corruption_cells(
        _benchmark_suite(task), source, steps, dict.fromkeys(kinds_of(task, extra=extra), (QUICK_SEVERITY,))
    )


def expand_standard(names: Iterable[Suite], task: Task, *, gradients: bool) -> tuple[Suite, ...]:
    """Replace ``standard`` by the suites that it stands for: a task's benchmark and, with gradients, its attack."""
    attack = task.evaluation.standard_attack if gradients else ""
    whole = ("clean", _benchmark_suite(task), *([attack] if attack else []))
    return tuple(dict.fromkeys(each for name in names for each in (whole if name == "standard" else (name,))))


def _benchmark_suite(task: Task) -> str:
    """Suite of the first benchmark of a task; ``corruptions`` for those whose cells it measures."""
    row = next(iter(benchmarks_of(task.name)), None)
    return row.name if row is not None and row.suite else "corruptions"


def kinds_of(task: Task, *, extra: bool = False) -> tuple[str, ...]:
    """Corruption kinds of a task; segmentation omits those that would move pixels away from their labels."""
    return tuple(task.evaluation.corruption_kinds(extra))


def _cells_of_benchmark(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    row = BENCHMARKS[name]
    if row.presets and steps.preset not in row.presets:  # a kind that two benchmarks share may differ between them
        other = next(rival for rival in row.rivals if steps.preset in BENCHMARKS[rival].presets)
        raise HoldfastError(
            f"suite {name!r} needs one of the presets {', '.join(row.presets)}, got {steps.preset!r}; "
            f"use suite {other!r} for that one"
        )
    yield from _corruption_cells(name, source, steps, row.cells)


def _corruption_cells(
    name: str, source: Source, steps: Preprocessing, severities: Mapping[str, Sequence[int]]
) -> Iterator[Cell]:
    for kind, chosen in severities.items():
        for severity in chosen:
            settings = plain(parameters(kind, severity, preset=steps.preset))
            definition = {"suite": name, "drawn": recorded_name(kind), "parameters": settings}
            definition |= {"code": code_fingerprint(FUNCTIONS[kind])} if kind in own_kinds() else {}
            yield Cell(corruption_cell(kind, severity), CorruptedImages(kind, severity), source, definition)


def selection_kinds(task: Task, *, preset: str) -> tuple[str, ...]:
    """Kinds that ``holdfast improve`` chooses by and does not report: C-bar's, or the extra ones of dense tasks."""
    if not task.scoring.one_class:  # C-bar moves pixels away from their labels and boxes
        return EXTRA
    return next(C_BAR_SUITES[name] for name, presets in C_BAR_PRESETS.items() if preset in presets)


def _selection(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    kinds = selection_kinds(task_of(source), preset=str(steps.preset))
    yield from _corruption_cells(name, source, steps, dict.fromkeys(kinds, (QUICK_SEVERITY,)))


def _own_corruptions(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    if not own_kinds():
        raise HoldfastError(
            "suite 'own-corruptions' needs a custom corruption: "
            "register one with holdfast.corruptions.register_corruption"
        )
    yield from _corruption_cells(name, source, steps, dict.fromkeys(own_kinds(), SEVERITIES))


def _sequences(name: str, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    if steps.preset not in SEQUENCE_PRESETS:
        known = ", ".join(SEQUENCE_PRESETS)
        raise HoldfastError(f"suite 'perturbations' needs one of the presets {known}, got {steps.preset!r}")
    for kind in TEST_SEQUENCES + EXTRA_SEQUENCES if extra else TEST_SEQUENCES:
        frames = frame_count(kind, preset=steps.preset)
        yield Cell(sequence_cell(kind), PerturbedImages(kind), source, {"suite": name, "frames": frames})


def _cells_of_attack(suite: AttackSuite, source: Source, steps: Preprocessing, extra: bool) -> Iterator[Cell]:
    attack, cell = suite.attack, attack_cell(suite.name)
    if isinstance(attack, Occlusion | LearnedOcclusion) and "patch_size" not in suite.settings:
        if steps.size is None:
            raise HoldfastError(f"suite {suite.name!r} needs images of one size: set size")
        attack = replace(attack, patch_size=fitting_patch(steps.size))
    definition = replace(suite, attack=attack).definition
    if isinstance(attack, LearnedOcclusion):
        definition |= fitting_definition(attack)
    yield Cell(cell, CleanImages(), source, definition, attack=attack)


def _cells_of(suite: Suite) -> Callable[..., Iterable[Cell]]:
    if isinstance(suite, AttackSuite):
        return _cells_of_attack
    if suite in _CELLS:
        return _CELLS[suite]
    if suite in benchmark_suites():
        return _cells_of_benchmark
    if suite not in ATTACKS:
        raise HoldfastError(f"suite {suite!r} has no cells: register it with register_suite or register_attack")
    return lambda name, source, steps, extra: _cells_of_attack(named_attack(name), source, steps, extra)


_CELLS: dict[str, CellsOf] = {
    "clean": _clean,
    "corruptions": _cells_of_corruptions,
    "corruptions-135": partial(_cells_of_corruptions, severities=BENCHMARKS["corruptions-135"].cells[STANDARD[0]]),
    "selection": _selection,
    "perturbations": _sequences,
    "own-corruptions": _own_corruptions,
    "quick": _cells_of_quick,
}


def register_suite(name: str, cells: Any, line: Any) -> None:
    """Register a suite.

    Args:
        name: its name, as in ``--suite``.
        line: one-line description for ``holdfast list suites``.
        cells: ``cells(name, source, steps, extra)`` returns its cells for a data source. A new kind of cell is a class
            with ``repeated`` and ``pieces`` like those of `holdfast.evaluation.cell_images`.
    """
    if isinstance(cells, str):
        warn_of_order("register_suite", "(name, cells, line)")
        cells, line = line, cells
    _check_new(name)
    SUITES[name], _CELLS[name] = line, cells


def register_attack(name: str, attack: Any, line: str) -> None:
    """Register an attack as a suite of its name.

    ``attack`` is called with a model of [0,1] images, images and labels, and by keyword, if it takes them, with
    ``seed``, ``ids`` and ``goal``; it returns images, or a result with an attribute ``images``. Records keep the
    settings of a dataclass, which ``--attack NAME:KEY=VALUE`` changes, and a digest of the code of every attack.
    """
    _check_new(name)
    SUITES[name], ATTACKS[name] = str(line), checked_attack(attack)


def register_official(name: str, look: Any, line: Any) -> None:
    """Register a stored test set: as ``--data NAME:DIR``, and as the suite of that name that scores it.

    ``look(name, folder)`` describes its cells and how to open them, see `holdfast.data.OfficialSet`.
    """
    if isinstance(look, str):
        warn_of_order("register_official", "(name, look, line)")
        look, line = line, look
    _check_new(name)
    if name in SETS:
        raise HoldfastError(f"data {name!r} is already registered: choose another name")
    SETS[name] = StoredLayout(line, look)
    STORED[name] = SUITES[name] = f"{line}: --data {name}:DIR"


def _check_new(name: str) -> None:
    if name != file_name(name) or not name:
        raise HoldfastError(
            f"name must consist of letters, digits and -, because it is used in file names, got {name!r}"
        )
    if name in SUITES | benchmark_suites():
        raise HoldfastError(f"suite {name!r} is already registered: choose another name")


def _stored_plan(stored: OfficialSet, *, steps: Preprocessing, extra: bool, limit: int | None) -> Plan:
    specs = [cell for cell in stored.cells if extra or stored.extras or not _is_extra(cell)]
    cells = [_stored_cell(stored, spec) for spec in specs]
    cells = [replace(cell, definition=_definition(cell, steps)) for cell in cells]
    return stored_plan(cells, limit=limit, missing=stored.missing)


def _stored_cell(stored: OfficialSet, spec: CellSpec) -> Cell:
    source: Any = stored.open(spec)
    content = content_fingerprint(source, sample=64)  # a sample of 64 files, because there are tens of cells
    definition: dict[str, Any] = {"suite": stored.suite, "set": stored.name, "content": content}
    if spec.family == "sequence":
        return Cell(spec, SequenceImages(), source, {**definition, "frames": source.frame_count})
    if spec.family == "corruption":
        return Cell(spec, StoredImages(), source, definition)
    if stored.whole_images:
        definition |= {"preprocessing": ["the whole image at the model's size"], "labels": labels_by_folder(source)}
        return Cell(spec, StoredImages(way=None), source, definition)
    return Cell(spec, CleanImages(), source, definition)


def _is_extra(cell: CellSpec) -> bool:
    return cell.kind in {"corruption": EXTRA, "sequence": EXTRA_SEQUENCES}.get(cell.family, ())
