"""What every reader of weight files asks: published spellings, timm's own key fixes, a classifier's keys."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from holdfast.models.fan import published_names

State = dict[str, Tensor]


def rename_published(state: Mapping[str, Tensor]) -> State:
    """Published spellings → ours: mmseg's prefix, an old name of the positions, fused class attention."""
    if any(key.startswith("backbone.") for key in state):  # an mmseg or mmdet file: the rest is its heads
        state = {key.removeprefix("backbone."): value for key, value in state.items() if key.startswith("backbone.")}
    return published_names(state)


def head_keys(model: nn.Module) -> set[str]:
    """The keys of a model's classifier."""
    cfg: Any = getattr(model, "default_cfg", None) or {}
    names = cfg.get("classifier") or "head"
    names = [names] if isinstance(names, str) else names
    return {f"{name}.{leaf}" for name in names for leaf in ("weight", "bias")}


def timm_filter(model: nn.Module) -> Callable[..., State] | None:
    """timm's own key fix-ups for its own model, which also interpolate positions to the model's resolution."""
    return beside(type(model).__module__, "checkpoint_filter_fn")


def beside(module: str, name: str) -> Callable[..., Any] | None:
    """What stands beside a model in its own file, such as timm's ``checkpoint_filter_fn``; None if nothing does.

    ``follow_keys(model, state)`` gives one of our models the parts that a file's keys tell of, and returns the state
    that then fits it, and what was there before.
    """
    return getattr(sys.modules[module], name, None)
