"""Compatibility of two record sets: data, protocol, seed, and versions of the libraries that make pixels must agree.

The model's own part may differ: its size, mean and std, its precision, torch and timm, and its runtime: changes of
these are what a gate tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.gate.paired_scores import PairedScores, Rows, names_digest
from holdfast.metrics.replicates import Columns
from holdfast.metrics.scoring.base import Key
from holdfast.records.class_map import answer_protocol, answer_protocol_words

PIXEL_MAKERS = ("holdfast", "numpy", "scipy", "pillow", "opencv")  # torch and timm belong to the model
_WORDS = {
    "task": "task",
    "stored_set": "data",
    "data_fingerprint": "data",
    "data_content": "data",
    "label": "protocol",
    "preset": "protocol",
    "frost": "protocol",
    "exif": "protocol",
    "steps": "protocol",
    "seed": "seed",
    "attack_batch_size": "protocol",
    "answers": "protocol",
    **{f"version of {name}": "version" for name in PIXEL_MAKERS},
}


@dataclass(frozen=True, eq=False)
class Pair:
    """Candidate and baseline on their common images and cells.

    Attributes:
        new: paired scores of the candidate.
        old: paired scores of the baseline.
        ids: ids of the common images.
        cells: common cells with the same definition.
        unlike: common cells with different definitions.
        columns: per-image values of both, new and old.
        of_sets: scores of a whole set of both; without replicates if the images differ.
        targets: targets of the images.
        rows: places of every cell's common images in ``ids``; empty if every cell has all of them.
    """

    new: PairedScores
    old: PairedScores
    ids: NDArray[np.str_]
    cells: tuple[str, ...]
    unlike: tuple[str, ...]
    columns: tuple[Columns, Columns]
    of_sets: tuple[Columns, Columns]
    targets: NDArray[Any] | None = None
    rows: Rows = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of common images of every cell."""
        return {cell: len(self.rows[cell]) if self.rows else len(self.ids) for cell in self.cells}

    @property
    def quantities(self) -> list[Key]:
        """Cells and quantities that both have."""
        return [*self.columns[0], *self.of_sets[0]]


def match_record_sets(new: Sequence[PairedScores], old: Sequence[PairedScores]) -> list[Pair]:
    """Pair every record set of the baseline with the one of the new model that has the same data and protocol."""
    return [_partner(each, new, several=len(old) > 1) for each in old]


def _partner(old: PairedScores, new: Sequence[PairedScores], *, several: bool) -> Pair:
    fitting = [each for each in new if not find_differences(each, old)]
    if len(fitting) > 1:
        raise HoldfastError(
            f"the new model must have one record set of {old.data!r}, got {len(fitting)} that match the baseline; "
            "name one of them: RUN/records/NAME"
        )
    if not fitting:
        nearest = min(new, key=lambda each: len(find_differences(each, old)))
        choice = "; of the baseline's record sets, RUN/records/NAME names one" if several else ""
        raise HoldfastError(f"{_refusal(nearest, old)}{choice}")
    return pair_images(fitting[0], old)


def check_comparable(header: Mapping[str, Any], old: PairedScores) -> None:
    """Raise an error for a header whose records cannot be compared with the baseline's."""
    new = PairedScores(header, {}, {}, 0, (), "")
    if find_differences(new, old):
        raise HoldfastError(_refusal(new, old))


def find_differences(new: PairedScores, old: PairedScores) -> dict[str, tuple[Any, Any]]:
    """Settings that differ between two record sets, with the values of both."""
    attacked = [name for name in new.cells if name in old.cells and old.cells[name].get("family", "attack") == "attack"]
    ours, theirs = (_identity(each, attacked=bool(attacked)) for each in (new, old))
    if None in (ours["data_content"], theirs["data_content"]):  # earlier records have no content digest
        ours["data_content"] = theirs["data_content"] = None
    if ours["label"] != theirs["label"]:  # which says it all
        ours["stored_set"] = theirs["stored_set"] = None
    return {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}


def _identity(scores: PairedScores, *, attacked: bool) -> dict[str, Any]:
    header = scores.header
    steps = header.get("preprocessing") or {}
    made = header.get("versions") or {}
    return {
        "task": scores.task,
        # C and C-bar of the same images differ in nothing else
        "stored_set": None if header.get("label") == "on-the-fly" else scores.data.partition(":")[0],
        **{key: header.get(key) for key in ("data_fingerprint", "data_content", "label", "preset")},
        **{key: header.get(key) for key in ("seed", "frost", "exif")},
        "steps": [steps.get("protocol"), steps.get("after_corruption"), steps.get("preparation", "benchmark")],
        "attack_batch_size": header.get("attack_batch_size") if attacked else None,
        "answers": answer_protocol(header),
        **{f"version of {name}": made.get(name) for name in PIXEL_MAKERS},
    }


def _refusal(new: PairedScores, old: PairedScores) -> str:
    found = find_differences(new, old)
    if "answers" in found:
        found.pop("data_fingerprint", None)  # it covers the labels, which are numbered by the answers
    words = list(dict.fromkeys(_WORDS[key] for key in found))
    details = "; ".join(
        f"{key.replace('_', ' ')} {ours!r:.60}, not {theirs!r:.60}"
        if key != "answers"
        else f"{answer_protocol_words(new.header)}, not {answer_protocol_words(old.header)}"
        for key, (ours, theirs) in found.items()
    )
    return (
        f"the new model must be evaluated with the data, protocol, seed and version of the baseline ({old.data!r}), "
        f"but these differ: {' and '.join(words)} ({details}); evaluate again, or save the baseline again"
    )


def pair_images(new: PairedScores, old: PairedScores) -> Pair:
    """Restrict both models to their common images, in one order."""
    if new.digest != old.digest:
        raise HoldfastError(f"the new model must be evaluated on the images of the baseline ({old.data!r}), got others")
    if new.header.get("train_domains") != old.header.get("train_domains"):  # the gap would be another for each
        new, old = (replace(each, header={**each.header, "train_domains": None}) for each in (new, old))
    assert new.ids is not None
    ours, theirs = new.ids, _ids(old, new)
    rows: dict[str, NDArray[np.int64]] = {}
    if new.rows or old.rows:
        common = {
            name: np.intersect1d(_of_cell(new, ours, name), _of_cell(old, theirs, name), assume_unique=True)
            for name in old.cells
            if name in new.cells
        }
        ids = np.unique(np.concatenate(list(common.values()))) if common else ours[:0]
        rows = {name: np.searchsorted(ids, each) for name, each in common.items()}
    else:
        ids = ours[np.isin(ours, theirs)]
    if not len(ids):
        raise HoldfastError(f"the new model must have an image in common with the baseline ({old.data!r}), got none")
    both = [name for name in old.cells if name in new.cells]
    alike = tuple(name for name in both if _definition(new.cells[name]) == _definition(old.cells[name]))
    unlike = tuple(name for name in both if name not in alike)
    known = set(new.quantities)
    shared = [key for key in old.quantities if key in known and key[0] in alike]
    columns = [
        {
            key: each.columns[key][np.searchsorted(_of_cell(each, names, key[0]), ids[rows[key[0]]] if rows else ids)]
            for key in shared
            if key in each.columns
        }
        for each, names in ((new, ours), (old, theirs))
    ]
    count = None if _same_images(new, old, ours, theirs) else 1  # replicates of other images are not paired
    of_sets = [{key: each.of_sets[key][:count] for key in shared if key in each.of_sets} for each in (new, old)]
    targets = None if new.targets is None else new.targets[np.searchsorted(ours, ids)]
    rows = {name: rows[name] for name in alike} if rows else {}
    return Pair(new, old, ids, alike, unlike, (columns[0], columns[1]), (of_sets[0], of_sets[1]), targets, rows)


def _of_cell(scores: PairedScores, ids: NDArray[np.str_], cell: str) -> NDArray[np.str_]:
    """Sorted ids of one cell's images."""
    return ids[scores.rows[cell]] if scores.rows else ids


def _same_images(new: PairedScores, old: PairedScores, ours: NDArray[np.str_], theirs: NDArray[np.str_]) -> bool:
    if not new.rows and not old.rows:
        return new.missing == old.missing
    if not np.array_equal(ours, theirs):
        return False
    cells = [name for name in old.cells if name in new.cells]
    return all(np.array_equal(_of_cell(new, ours, cell), _of_cell(old, theirs, cell)) for cell in cells)


def _ids(old: PairedScores, new: PairedScores) -> NDArray[np.str_]:
    """Ids of the baseline's images: a file stores only the missing ones, and the new model's records have all ids."""
    if old.ids is not None:
        return old.ids
    assert new.ids is not None
    everybody = sorted([*new.ids.tolist(), *new.missing])
    lacking = set(old.missing)
    if old.seen is not None and len(old.seen) == len(everybody):
        lacking = {name for name, seen in zip(everybody, old.seen, strict=True) if not seen}
    names = np.array([name for name in everybody if name not in lacking])
    if names_digest(everybody) != old.digest or len(names) != old.count:
        raise HoldfastError(
            f"the baseline of {old.data!r} is damaged: its numbers of images do not agree; save it again"
        )
    return names


def _definition(header: Mapping[str, Any]) -> dict[str, Any]:
    """Definition of a cell without the model's preprocessing, with tuples as lists, as in JSON."""
    return {key: _as_list(value) for key, value in header.items() if key != "preprocessing"}


def _as_list(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_list(each) for key, each in value.items()}
    return [_as_list(each) for each in value] if isinstance(value, list | tuple) else value
