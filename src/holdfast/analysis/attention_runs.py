"""The attention measures over a data set: stability, occlusion, overfocusing, head diversity."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from holdfast.analysis.diversity import head_similarity, mean_pairwise
from holdfast.analysis.overfocus import overfocus
from holdfast.analysis.settings import Settings
from holdfast.analysis.stability import image_scores, layer_cosines
from holdfast.analysis.subject import Batch, Subject, describe_layers, padded
from holdfast.attacks.occlusion import Occlusion, occluded
from holdfast.attacks.patches import fitting_patch
from holdfast.attention import AttentionHandle

Arrays = dict[str, np.ndarray]
Found = tuple[dict[str, Any], Arrays]  # what the header gets, and the arrays
Tick = Callable[[int], None]  # called with a number of images (or images × passes) when they are done


def run_stability(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Cosines of every image, cell, layer and head, and whether the answers are right.

    Arrays: ``flattened`` and ``row_wise`` (cells, images, layers, heads), NaN beyond a layer's heads; ``right``
    (1 + cells, images), the clean images first.
    """
    parts: dict[str, list[np.ndarray]] = {"flattened": [], "row_wise": [], "right": []}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        logits, clean = subject.look(subject.clean(batch))
        layers = describe_layers(clean)
        right, flattened, row_wise = [_right(logits, batch)], [], []
        for cell in settings.cells:
            logits, corrupted = subject.look(subject.corrupted(batch, cell))
            cosines = layer_cosines(clean, corrupted)
            flattened.append(padded([layer.flattened for layer in cosines]))
            row_wise.append(padded([layer.row_wise for layer in cosines]))
            right.append(_right(logits, batch))
        for name, rows in (("flattened", flattened), ("row_wise", row_wise), ("right", right)):
            parts[name].append(np.stack(rows))
        tick(len(batch.ids))
    return {"layers": layers, "cells": list(settings.cells)}, _joined(parts, axis=1)


def run_occlusion(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Every image under many random masks (AFAT, Fig. 1, 3 and 8): one stability score and one answer per mask.

    Arrays: ``scores`` and ``right`` (images, masks), ``right_clean`` (images,). Without attention that we can read,
    scores are NaN and the accuracies still tell.
    """
    attack = Occlusion(settings.ratio, _patch_size(subject, settings), settings.masks)
    parts: dict[str, list[np.ndarray]] = {"scores": [], "right": [], "right_clean": []}
    for batch in subject.batches(subject.some(settings.occlusion_images)):
        pixels = subject.clean(batch)
        logits, clean = _maybe_look(subject, pixels)
        parts["right_clean"].append(_right(logits, batch))
        scores, right = [], []
        for covered in occluded(attack, subject.model, pixels, seed=subject.seed, names=list(batch.ids)):
            logits, corrupted = _maybe_look(subject, covered)
            scores.append(_scores(clean, corrupted, images=len(pixels)))
            right.append(_right(logits, batch))
            tick(len(batch.ids))
        parts["scores"].append(np.stack(scores, axis=1))
        parts["right"].append(np.stack(right, axis=1))
    facts = {"ratio": settings.ratio, "patch_size": attack.patch_size, "fill": attack.fill, "masks": settings.masks}
    return facts, _joined(parts, axis=0)


def run_overfocus(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``effective_tokens``, ``top_share``, ``column_concentration``, each (images, layers, heads)."""
    parts: dict[str, list[np.ndarray]] = {"effective_tokens": [], "top_share": [], "column_concentration": []}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        _, handles = subject.look(subject.clean(batch))
        layers = describe_layers(handles)
        measured = [overfocus(handle, top=settings.top) for handle in handles]
        for name, rows in parts.items():
            rows.append(padded([getattr(layer, name) for layer in measured]))
        tick(len(batch.ids))
    return {"layers": layers, "top": settings.top}, _joined(parts, axis=0)


def run_diversity(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``similarity`` (images, layers), and ``matrix/<layer>`` (heads, heads), the mean over the images."""
    similarity: list[np.ndarray] = []
    sums: list[torch.Tensor] = []
    layers: list[dict[str, Any]] = []
    for batch in subject.batches():
        _, handles = subject.look(subject.clean(batch))
        layers = describe_layers(handles)
        each = [head_similarity(handle) for handle in handles]
        similarity.append(torch.stack([mean_pairwise(layer) for layer in each], dim=1).cpu().numpy())
        totals = [layer.sum(dim=0).double().cpu() for layer in each]
        sums = totals if not sums else [old + new for old, new in zip(sums, totals, strict=True)]
        tick(len(batch.ids))
    joined = np.concatenate(similarity)
    matrices = {f"matrix/{n}": (total / len(joined)).float().numpy() for n, total in enumerate(sums)}
    return {"layers": layers}, {"similarity": joined, **matrices}


def _right(logits: torch.Tensor, batch: Batch) -> np.ndarray:
    return (logits.argmax(dim=1) == batch.targets).cpu().numpy()


def _joined(parts: dict[str, list[np.ndarray]], *, axis: int) -> Arrays:
    return {name: np.concatenate(rows, axis=axis) for name, rows in parts.items()}


def _maybe_look(subject: Subject, pixels: torch.Tensor) -> tuple[torch.Tensor, list[AttentionHandle]]:
    return subject.look(pixels) if subject.has_attention else (subject.model(pixels), [])


def _scores(clean: list[AttentionHandle], corrupted: list[AttentionHandle], *, images: int) -> np.ndarray:
    if not clean:
        return np.full(images, np.nan, dtype=np.float32)
    return image_scores([layer.flattened for layer in layer_cosines(clean, corrupted)]).cpu().numpy()


def _patch_size(subject: Subject, settings: Settings) -> int:
    """What was asked for, else what fits the image."""
    return settings.patch_size if settings.patch_size is not None else fitting_patch(subject.steps.size)
