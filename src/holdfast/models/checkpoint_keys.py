"""Keys of state dictionaries: published names renamed to ours, for classifiers and segmenters."""

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models.fan import FAN, published_names
from holdfast.models.segmenter import Segmenter

State = dict[str, Tensor]


def rename_published(state: Mapping[str, Tensor]) -> State:
    """Published keys → ours: mmseg's prefix, an old name of the positional encoding, fused class attention."""
    if any(key.startswith("backbone.") for key in state):  # an mmseg or mmdet file, whose other keys are heads
        state = {key.removeprefix("backbone."): value for key, value in state.items() if key.startswith("backbone.")}
    return published_names(state)


def head_keys(model: nn.Module) -> set[str]:
    """The keys of a model's classifier."""
    cfg: Any = getattr(model, "default_cfg", None) or {}
    names = cfg.get("classifier") or "head"
    names = [names] if isinstance(names, str) else names
    return {f"{name}.{leaf}" for name in names for leaf in ("weight", "bias")}


def timm_filter(model: nn.Module) -> Callable[..., State] | None:
    """timm's ``checkpoint_filter_fn`` of a timm model, which also interpolates position embeddings."""
    return beside(type(model).__module__, "checkpoint_filter_fn")


def beside(module: str, name: str) -> Callable[..., Any] | None:
    """A function from a model's own module, such as timm's ``checkpoint_filter_fn``; None if there is none.

    ``follow_keys(model, state)`` gives one of our models the modules that a file's keys imply, and returns the state
    that then fits it and the modules that were replaced.
    """
    return getattr(sys.modules[module], name, None)


def segmenter_state(state: Mapping[str, Tensor], model: Segmenter, *, file: str) -> State:
    """The state of a segmenter from any file: a released one, one of ours, or a classifier's for the encoder alone."""
    head = _rename_head({key: value for key, value in state.items() if key.startswith("decode_head.")})
    _check_positions(state, model, file=file)
    backbone = {key: value for key, value in state.items() if not key.startswith(("decode_head.", "auxiliary_head."))}
    encoder: nn.Module = model.backbone
    if type(encoder).__module__.startswith("holdfast."):
        backbone = rename_published(backbone)
    else:
        backbone = {key.removeprefix("backbone."): value for key, value in backbone.items()}
        if not head and (filter_fn := timm_filter(encoder)):
            backbone = filter_fn(backbone, encoder)
    own = encoder.state_dict()
    if not head:  # a classifier: keys that the pruned encoder lacks are dropped
        pruned = head_keys(encoder) | {key for key in backbone if key.startswith(("norm.", "fc_norm.", "head."))}
        backbone = {key: value for key, value in backbone.items() if key in own or key not in pruned}
    return {**{f"backbone.{key}": value for key, value in backbone.items()}, **head}


def segmenter_arguments(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """Arguments of `holdfast.segmenter` that a file's keys imply; None if it holds no segmenter."""
    head = _rename_head({key: value for key, value in state.items() if key.startswith("decode_head.")})
    if "decode_head.linear_pred.weight" in head and "decode_head.linear_fuse.conv.weight" in head:
        classes, width = len(head["decode_head.linear_pred.weight"]), len(head["decode_head.linear_fuse.conv.weight"])
        return {"head": "segformer", "num_classes": classes, "width": width}
    if "decode_head.up_convs.0.0.conv.weight" in head:
        first = head["decode_head.up_convs.0.0.conv.weight"]
        return {"head": "setr", "num_classes": len(head["decode_head.conv_seg.weight"]), "width": len(first)}
    return None


def fresh_head(state: Mapping[str, Tensor], model: nn.Module) -> set[str]:
    """The head's keys of a segmenter whose encoder is loaded from a classifier: they keep their initial values."""
    if not isinstance(model, Segmenter) or any(key.startswith("decode_head.") for key in state):
        return set()
    return {key for key in model.state_dict() if key.startswith("decode_head.")}


def _rename_head(state: State) -> State:
    """Published keys of SegFormer's head → ours, without its unused convolution."""
    renamed = {re.sub(r"\.hybrid_embed_(c\d|fuse)\.", r".linear_\1.", key): value for key, value in state.items()}
    if any(".linear_fuse." in key for key in renamed):
        used = any(".linear_pred." in key for key in renamed)
        renamed = {
            key.replace(".conv_seg.", ".linear_pred."): value
            for key, value in renamed.items()
            if not (used and ".conv_seg." in key)
        }
    return renamed


def _check_positions(state: Mapping[str, Tensor], model: Segmenter, *, file: str) -> None:
    released = "decode_head.conv_seg.weight" in state and "decode_head.linear_fuse.conv.weight" in state
    if released and isinstance(model.backbone, FAN) and model.backbone.pos_embed.floor:
        raise HoldfastError(
            f"{file} was trained with the un-floored positional encoding: build the segmenter with pos_floor=False, "
            "its default"
        )
