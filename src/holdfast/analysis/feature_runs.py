"""The feature measures over a data set: noise decay with significant eigenvalues, and grouping."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.analysis.attention_runs import Found, Tick
from holdfast.analysis.grouping import group_tokens
from holdfast.analysis.noise_decay import CHANNELS_LAST, as_tokens, outputs_of, relative_change, significant_eigenvalues
from holdfast.analysis.settings import Settings
from holdfast.analysis.subject import Subject, as_bytes
from holdfast.attacks import draws
from holdfast.errors import HoldfastError

MOST_PREFIXES = 8  # class and register tokens in front of a grid


def run_noise_decay(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``change`` and ``eigenvalues`` (images, modules), ``tokens`` (modules,): how many eigenvalues exist."""
    names = list(settings.modules) or _with_tokens(subject)
    change, eigenvalues, tokens = [], [], np.zeros(len(names), dtype=np.int32)
    for batch in subject.batches():
        images = subject.model.normalise(subject.clean(batch))
        noise = draws.normal(images, seed=subject.seed, ids=list(batch.ids), purpose="noise-decay")
        with outputs_of(subject.inner, names) as seen:
            subject.model.model(images)
            clean = dict(seen)
            subject.model.model(images + settings.noise_std * noise)
            check_reached(seen, names)
        change.append(torch.stack([relative_change(clean[name], seen[name]) for name in names], dim=1).cpu().numpy())
        grids = [grid_tokens(clean[name], subject.inner, name, images)[0] for name in names]
        counts = [significant_eigenvalues(each, epsilon=settings.epsilon) for each in grids]
        eigenvalues.append(torch.stack(counts, dim=1).int().cpu().numpy())
        tokens[:] = [each.shape[1] for each in grids]
        tick(len(batch.ids))
    facts = {"modules": names, "noise_std": settings.noise_std, "epsilon": settings.epsilon}
    return facts, {"change": np.concatenate(change), "eigenvalues": np.concatenate(eigenvalues), "tokens": tokens}


def run_grouping(subject: Subject, settings: Settings, tick: Tick) -> Found:
    """Arrays: ``images/clean``, ``images/corrupted``; ``groups/clean/<module>`` … (images, rows, columns).

    Modules whose output is no grid of enough tokens are left out.
    """
    names = list(settings.modules) or _with_tokens(subject)
    states: dict[str, Any] = {"clean": subject.clean, "corrupted": lambda b: subject.corrupted(b, settings.cells[0])}
    parts: dict[str, list[np.ndarray]] = {}
    for batch in subject.batches(subject.some(settings.pictures)):
        for state, pixels_of in states.items():
            pixels = pixels_of(batch)
            parts.setdefault(f"images/{state}", []).append(as_bytes(pixels))
            with outputs_of(subject.inner, names) as seen:
                subject.model(pixels)
                check_reached(seen, names)
            names = [name for name in names if _can_group(subject.inner, name, seen[name], pixels, settings.clusters)]
            if not names:
                raise HoldfastError(f"grouping needs modules with at least {settings.clusters} tokens, found none")
            for number, name in enumerate(names):
                groups = _groups(seen[name], subject.inner, name, pixels, clusters=settings.clusters)
                parts.setdefault(f"groups/{state}/{number}", []).append(groups)
        tick(len(batch.ids))
    facts = {"modules": names, "clusters": settings.clusters, "cell": settings.cells[0]}
    return facts, {name: np.concatenate(rows) for name, rows in parts.items()}


def grid_tokens(features: Tensor, model: nn.Module, name: str, images: Tensor) -> tuple[Tensor, tuple[int, int] | None]:
    """A module's tokens without class and register tokens, (B, N, C), and their grid where it is known."""
    last = isinstance(model.get_submodule(name), CHANNELS_LAST)
    tokens, grid = as_tokens(features, channels_last=last)
    if grid is None and (found := find_grid(tokens.shape[1], (images.shape[-2], images.shape[-1]))) is not None:
        prefix, grid = found
        tokens = tokens[:, prefix:]
    return tokens, grid


def find_grid(count: int, size: tuple[int, int]) -> tuple[int, tuple[int, int]] | None:
    """How many tokens stand in front of a grid with the image's proportions, and the grid; None if there is none."""
    for prefix in range(MOST_PREFIXES + 1):
        rows = round(((count - prefix) * size[0] / size[1]) ** 0.5) if count > prefix else 0
        columns = rows * size[1] // size[0]
        if rows and rows * columns == count - prefix and rows * size[1] == columns * size[0]:
            return prefix, (rows, columns)
    return None


def check_reached(seen: dict[str, Tensor], names: list[str]) -> None:
    """Refuse modules that the forward pass does not call."""
    for name in names:
        if name not in seen:
            raise HoldfastError(f"modules must take part in the forward pass, but {name!r} is never called")


def _with_tokens(subject: Subject) -> list[str]:
    """The blocks whose outputs are tokens or maps: a home-made network may have others."""
    names = subject.blocks
    with outputs_of(subject.inner, names) as seen:
        subject.model(subject.clean(next(subject.batches(subject.some(1)))))
    return [name for name in names if name in seen and seen[name].ndim in (3, 4)]


def _can_group(model: nn.Module, name: str, features: Tensor, images: Tensor, clusters: int) -> bool:
    tokens, grid = grid_tokens(features, model, name, images)
    return grid is not None and tokens.shape[1] > clusters


def _groups(features: Tensor, model: nn.Module, name: str, images: Tensor, *, clusters: int) -> np.ndarray:
    tokens, grid = grid_tokens(features, model, name, images)
    assert grid is not None
    return np.stack([group_tokens(each, clusters=clusters).reshape(grid) for each in tokens]).astype(np.uint8)
