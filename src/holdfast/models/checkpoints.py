"""Published weights: read them safely, whatever container and spelling they come in, and convert them once for all.

FAN, RVT, AFAT/RSPC and TAP+ADL released their weights as training checkpoints of several layouts. Reading goes through
timm's loader, which never runs code from a file.
"""

import logging
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from timm.models import load_state_dict
from timm.models._hub import save_for_hf
from torch import Tensor, nn

from holdfast import atomic
from holdfast.errors import HoldfastError
from holdfast.models import create_model, rvt
from holdfast.models.detector import Detector
from holdfast.models.fan import FAN, published_names
from holdfast.models.segmenter import Segmenter

logger = logging.getLogger(__name__)
State = dict[str, Tensor]

EMA_CONTAINERS = ("state_dict_ema", "model_ema")
ARGUMENTS_FROM_KEYS = {"rvt": rvt.arguments_from_keys}  # by what the names of the models of a file have in common
DERIVED = ("attn_mask", "relative_position_index")  # follow from the architecture, and from the image size


@dataclass(frozen=True)
class Loaded:
    """What a file brought: how many tensors were used, and which were left out and why."""

    used: int
    left_out: tuple[str, ...] = ()


def load_checkpoint(model: nn.Module, path: str | Path, *, ema: bool | None = None) -> Loaded:
    """Load a published or own checkpoint file into a model; either everything fits or nothing is changed.

    A head of another size is left out and the model keeps its own. An RVT gets the masks, the kind of MLP and of
    projections that the file's keys tell of, its masks interpolated to its grid.

    Args:
        model: one of ours, or any timm model.
        path: a ``.safetensors``, ``.pth`` or ``.pth.tar`` file.
        ema: True takes the averaged weights and insists on them, False the plain ones, None what the file has, averaged
            first.
    """
    state, file = read_weights(path, ema=ema), Path(path).name
    if isinstance(model, Detector) and not any(key.startswith("roi_heads.") for key in state):
        return _load_encoder(model.encoder, state, file=file)
    return _load(model, state, file=file)


def _load_encoder(encoder: nn.Module, state: State, *, file: str) -> Loaded:
    """A classifier's weights into the encoder of a detector, which has neither its head nor its last norm."""
    own = encoder.state_dict()
    lost = tuple(f"{name}." for name in ("norm", "fc_norm", "head", "cls_attn_blocks", "cls_token"))
    kept = {key: value for key, value in _rename(state).items() if key in own or not f"{key}.".startswith(lost)}
    return _load(encoder, kept, file=file)


def _load(model: nn.Module, state: State, *, file: str) -> Loaded:
    undo: list[tuple[nn.Module, str, Any]] = []
    try:
        if isinstance(model, Segmenter):
            state = _segmenter_state(state, model, file=file)
        elif type(model).__module__.startswith("holdfast.") and not isinstance(model, Detector):
            state = _rename(state)
        elif filter_fn := _timm_filter(model):
            state = filter_fn(state, model)
        if follow := _beside(type(model).__module__, "follow_keys"):
            state, undo = follow(model, state)
        state, left_out = _leave_out(state, model)
        _check_fit(state, model, file=file, may_miss={*left_out, *_fresh_head(state, model)})
    except HoldfastError:
        for owner, name, old in reversed(undo):
            setattr(owner, name, old)
        raise
    for key, why in left_out.items():
        logger.warning("%s: left out %s, %s", file, key, why)
    model.load_state_dict(state, strict=False)
    return Loaded(used=len(state), left_out=tuple(left_out))


def convert_checkpoint(path: str | Path, out: str | Path, *, model: str, ema: bool | None = None) -> nn.Module:
    """Write a checkpoint as a folder that ``timm.create_model("local-dir:OUT", pretrained=True)`` loads.

    The number of classes, RVT's masks and kind of MLP, and convolutional projections are read off the file's keys.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HoldfastError(f"OUT must be a new or empty folder, got {str(out)!r}")
    state = read_weights(path, ema=ema)
    arguments = architecture_arguments(_rename(state), model)
    built = create_model(model, **arguments)
    _load(built, state, file=Path(path).name)
    arguments.pop("num_classes", None)  # timm's config has it anyway
    try:
        with atomic.new_folder(out) as unfinished:
            save_for_hf(built, str(unfinished), model_args=arguments or None, safe_serialization=True)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HoldfastError(f"OUT {str(out)!r} cannot be written ({reason})") from error
    return built


def read_weights(path: str | Path, *, ema: bool | None = None) -> State:
    """The tensors of a checkpoint file by name, without ``module.`` prefixes; nothing in the file is run."""
    path = Path(path)
    if not path.is_file():
        raise HoldfastError(f"no checkpoint file at {str(path)!r}")
    try:
        if ema and not _has_ema(path):
            raise HoldfastError(f"{path.name} holds no averaged (EMA) weights; leave out ema=True or --ema")
        state = load_state_dict(str(path), use_ema=ema is not False)
    except HoldfastError:
        raise
    except Exception as error:  # a broken file can raise anything on its way through zip, pickle and torch
        if "weights_only" in str(error):
            raise HoldfastError(
                f"{path.name} was refused: it holds Python objects beside weights, and reading those could run code"
            ) from error
        raise HoldfastError(
            f"{path.name} cannot be read as a checkpoint: it is damaged or of another format"
        ) from error
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise HoldfastError(f"{path.name} holds no weights under state_dict, state_dict_ema or model, nor at its top")
    empty = next((key for key, value in tensors.items() if value.numel() == 0), None)
    if empty is not None:  # its shape could be anything, and a model of that shape would take any amount of memory
        raise HoldfastError(f"{path.name} must hold weights, but {empty} is empty, {tuple(tensors[empty].shape)}")
    return tensors


def _has_ema(path: Path) -> bool:
    if path.suffix == ".safetensors":
        return False
    with torch.serialization.safe_globals([Namespace]):  # the arguments that timm's saver adds, as timm's loader does
        content = torch.load(path, map_location="meta", weights_only=True)
    return isinstance(content, dict) and any(content.get(name) is not None for name in EMA_CONTAINERS)


# ---------------------------------------------------------------------- spellings


def _rename(state: Mapping[str, Tensor]) -> State:
    """Published spellings → ours: mmseg's prefix, an old name of the positions, fused class attention."""
    if any(key.startswith("backbone.") for key in state):  # an mmseg or mmdet file: the rest is its heads
        state = {key.removeprefix("backbone."): value for key, value in state.items() if key.startswith("backbone.")}
    return published_names(state)


def _segmenter_state(state: Mapping[str, Tensor], model: Segmenter, *, file: str) -> State:
    """Any file as a segmenter's: a released one, one of ours, or a classifier's for the encoder alone."""
    head = _rename_head({key: value for key, value in state.items() if key.startswith("decode_head.")})
    _check_positions(state, model, file=file)
    backbone = {key: value for key, value in state.items() if not key.startswith(("decode_head.", "auxiliary_head."))}
    encoder: nn.Module = model.backbone
    if type(encoder).__module__.startswith("holdfast."):
        backbone = _rename(backbone)
    else:
        backbone = {key.removeprefix("backbone."): value for key, value in backbone.items()}
        if not head and (filter_fn := _timm_filter(encoder)):
            backbone = filter_fn(backbone, encoder)
    own = encoder.state_dict()
    if not head:  # a classifier: what the encoder has lost stays behind
        pruned = _head_keys(encoder) | {key for key in backbone if key.startswith(("norm.", "fc_norm.", "head."))}
        backbone = {key: value for key, value in backbone.items() if key in own or key not in pruned}
    return {**{f"backbone.{key}": value for key, value in backbone.items()}, **head}


def segmenter_arguments(state: Mapping[str, Tensor]) -> dict[str, Any] | None:
    """What a file's keys say about a segmenter, as arguments of `holdfast.segmenter`; None if it is none."""
    head = _rename_head({key: value for key, value in state.items() if key.startswith("decode_head.")})
    if "decode_head.linear_pred.weight" in head and "decode_head.linear_fuse.conv.weight" in head:
        classes, width = len(head["decode_head.linear_pred.weight"]), len(head["decode_head.linear_fuse.conv.weight"])
        return {"head": "segformer", "num_classes": classes, "width": width}
    if "decode_head.up_convs.0.0.conv.weight" in head:
        first = head["decode_head.up_convs.0.0.conv.weight"]
        return {"head": "setr", "num_classes": len(head["decode_head.conv_seg.weight"]), "width": len(first)}
    return None


def _fresh_head(state: Mapping[str, Tensor], model: nn.Module) -> set[str]:
    """The head of a segmenter whose encoder starts from a classifier: it keeps its own start."""
    if not isinstance(model, Segmenter) or any(key.startswith("decode_head.") for key in state):
        return set()
    return {key for key in model.state_dict() if key.startswith("decode_head.")}


def _rename_head(state: State) -> State:
    """Published spellings of SegFormer's head → the released one; its unused convolution goes."""
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
            f"{file} was trained with positions without floor: build the segmenter with pos_floor=False, its default"
        )


def architecture_arguments(state: Mapping[str, Tensor], model: str) -> dict[str, Any]:
    """What a file's keys say about the architecture, as keyword arguments of the model of that name."""
    arguments: dict[str, Any] = {}
    if "head.weight" in state and state["head.weight"].ndim:
        arguments["num_classes"] = len(state["head.weight"])
    if any(".patch_reasoning." in key or key.endswith(".attn.fc.weight") for key in state):
        arguments["conv_qkv"] = True
    for family, told in ARGUMENTS_FROM_KEYS.items():
        if family in model:
            arguments |= told(state)
    return arguments


# ---------------------------------------------------------------------- fitting a file to a model


def _leave_out(state: Mapping[str, Tensor], model: nn.Module) -> tuple[State, dict[str, str]]:
    """The state without what the model need not take, and the reasons for what a user should know of."""
    own = model.state_dict()
    left_out: dict[str, str] = {}
    head = _head_keys(model)
    if any(key in own and state[key].shape != own[key].shape for key in head & state.keys()):
        left_out = {key: f"its shape is {tuple(state[key].shape)}" for key in sorted(head & state.keys())}
    elif not head & state.keys():  # a backbone without a classifier: mmseg, features
        left_out = dict.fromkeys(
            sorted({*head, "norm.weight", "norm.bias"} & own.keys() - state.keys()), "the file has none"
        )
    kept = {k: v for k, v in state.items() if k not in left_out and k.rpartition(".")[-1] not in DERIVED}
    return kept, left_out


def _head_keys(model: nn.Module) -> set[str]:
    cfg: Any = getattr(model, "default_cfg", None) or {}
    names = cfg.get("classifier") or "head"
    names = [names] if isinstance(names, str) else names
    return {f"{name}.{leaf}" for name in names for leaf in ("weight", "bias")}


def _timm_filter(model: nn.Module) -> Callable[..., State] | None:
    """timm's own key fix-ups for its own model, which also interpolate positions to the model's resolution."""
    return _beside(type(model).__module__, "checkpoint_filter_fn")


def _beside(module: str, name: str) -> Callable[..., Any] | None:
    """What stands beside a model in its own file, such as timm's ``checkpoint_filter_fn``; None if nothing does.

    ``follow_keys(model, state)`` gives one of our models the parts that a file's keys tell of, and returns the state
    that then fits it, and what was there before.
    """
    return getattr(sys.modules[module], name, None)


def _check_fit(state: Mapping[str, Tensor], model: nn.Module, *, file: str, may_miss: Iterable[str]) -> None:
    """Refuse a file that does not fill the model, naming the first few keys of each complaint."""
    own = model.state_dict()
    needed = {key for key in own if key.rpartition(".")[-1] not in (*DERIVED, "num_batches_tracked")} - set(may_miss)
    complaints = {
        "missing": sorted(needed - state.keys()),
        "unexpected": sorted(state.keys() - own.keys()),
        "of another shape": sorted(key for key in own.keys() & state.keys() if own[key].shape != state[key].shape),
    }
    told = [f"{len(keys)} {what} ({_first(keys)})" for what, keys in complaints.items() if keys]
    if told:
        raise HoldfastError(f"{file} does not fit {type(model).__name__}: {'; '.join(told)}")


def _first(keys: list[str], count: int = 3) -> str:
    return ", ".join(keys[:count]) + (", …" if len(keys) > count else "")
