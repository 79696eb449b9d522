"""Shape bias on cue conflict stimuli (Geirhos et al., ICLR 2019): S / (S + T) over the images whose cues differ.

S images are answered with the class of their shape, T with that of their texture. Everything else, and every image
whose shape and texture are of one class, does not count.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.cells import CellSpec
from holdfast.metrics.corruption import Values
from holdfast.metrics.scoring.base import Compute, Key, Means, ScoreDefinition, column
from holdfast.published.cue_names import cues_of
from holdfast.records.records import CellRecord

KIND = "cue-conflict"
SHAPE, TEXTURE, CUE, CONFLICT = "shape", "texture", "cue", "conflict"
OF = " of "


def cue_columns(cell: CellRecord) -> dict[str, NDArray[np.float64]]:
    """0/1 per image: whether its cues differ, whether the answer is one of them, and which, also by class of shape."""
    labels = cell.header.get("labels") or {}
    cues = [cues_of(str(id)) for id in cell.ids]
    shapes, textures = ([getattr(each, name, "") for each in cues] for name in ("shape", "texture"))
    conflict = np.array([one != other for one, other in zip(shapes, textures, strict=True)])
    texture = conflict & (cell.predictions == np.array([labels.get(name, -1) for name in textures]))
    shape = conflict & (cell.predictions == cell.targets)
    found = {CONFLICT: conflict, SHAPE: shape, TEXTURE: texture, CUE: shape | texture}
    for name in sorted(set(shapes)):
        inside = np.array([each == name for each in shapes])
        found |= {kind + OF + name: inside & found[kind] for kind in (SHAPE, TEXTURE, CUE)}
    return {name: values.astype(np.float64) for name, values in found.items()}


def cue_scores(cells: Sequence[CellSpec], *, columns: Collection[Key]) -> list[ScoreDefinition]:
    """Shape bias, how often either cue is the answer, and the shape bias of every class of shape."""
    cell = next((cell.name for cell in cells if cell.family == "set" and cell.kind == KIND), "")
    if (cell, CUE) not in columns:
        return []
    among, by = "the images whose shape and texture differ", "answers with the shape by those with either cue"
    found = [
        _score(cell, "shape_bias", "shape bias", f"{by}, {among}", SHAPE, CUE),
        _score(cell, "cue_accuracy", "cue accuracy", f"answers with the shape or the texture, {among}", CUE, CONFLICT),
        _score(cell, "shape_answers", "answers shape", f"answers with the shape, {among}", SHAPE, CONFLICT),
        _score(cell, "texture_answers", "answers texture", f"answers with the texture, {among}", TEXTURE, CONFLICT),
    ]
    classes = sorted(q.removeprefix(CUE + OF) for name, q in columns if name == cell and q.startswith(CUE + OF))
    for name in classes:
        text = f"shape bias among the shapes of {name}"
        about = {"table": "shape_bias", "kind": name}
        found.append(_score(cell, f"shape_bias/{name}", name, text, SHAPE + OF + name, CUE + OF + name, **about))
    return found


def _score(cell: str, name: str, label: str, text: str, part: str, whole: str, **about: Any) -> ScoreDefinition:
    """The share of one quantity in another, in percent."""
    above, below = column(cell, part), column(cell, whole)
    about |= {"family": "shape", "cells": (cell,), "reads": (above, below), "among": below}
    return ScoreDefinition(name, label, "%", "", text, _share(above, below), **about)  # neither cue is the better one


def _share(above: Key, below: Key) -> Compute:
    def compute(means: Means) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):  # without an answer of either cue there is no bias
            return 100 * np.asarray(means[above]) / np.asarray(means[below])

    return compute
