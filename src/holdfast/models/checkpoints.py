"""Published checkpoints: safe reading of all their containers and key layouts, and conversion to timm's format.

FAN, RVT, AFAT/RSPC and TAP+ADL released their weights as training checkpoints of several layouts. They are read by
timm's loader, which never runs code from a file.
"""

import logging
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from timm.models import load_state_dict
from timm.models._hub import save_for_hf
from torch import Tensor, nn

from holdfast._deprecated import renamed
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.models import create_model, rvt
from holdfast.models.checkpoint_keys import (
    State,
    beside,
    fresh_head,
    head_keys,
    rename_published,
    segmenter_state,
    timm_filter,
)
from holdfast.models.detector import Detector
from holdfast.models.segmenter import Segmenter

logger = logging.getLogger(__name__)

EMA_CONTAINERS, RAW_CONTAINERS = ("state_dict_ema", "model_ema"), ("state_dict", "model")
ARGUMENTS_FROM_KEYS = {"rvt": rvt.arguments_from_keys}  # by prefix of the model names
DERIVED = ("attn_mask", "relative_position_index")  # buffers that follow from the architecture and the image size


@dataclass(frozen=True)
class LoadedWeights:
    """Result of loading a file: the number of tensors used, and the tensors left out with reasons."""

    used: int
    left_out: tuple[str, ...] = ()


def load_checkpoint(model: nn.Module, path: str | Path, *, ema: bool | None = None) -> LoadedWeights:
    """Load a published or own checkpoint file into a model; if it does not fit, the model is unchanged.

    A head of another size is left out and the model keeps its own. An RVT gets the masks, MLPs and projections that the
    file's keys imply, with masks interpolated to its grid.

    Args:
        model: one of ours, or any timm model.
        path: a ``.safetensors``, ``.pth`` or ``.pth.tar`` file.
        ema: True requires the averaged weights, False takes the raw ones, None prefers the averaged ones.
    """
    state, file = read_weights(path, ema=ema), Path(path).name
    if ema is None and holds_ema(path, beside_raw=True):
        logger.warning("%s: holds raw and averaged (EMA) weights; loading the averaged ones", file)
    if isinstance(model, Detector) and not any(key.startswith("roi_heads.") for key in state):
        return _load_encoder(model.encoder, state, file=file)
    return _load(model, state, file=file)


def fill_exactly(model: nn.Module, path: str | Path) -> None:
    """Load a file that must hold exactly the model's weights: every tensor is used and every weight is set."""
    _load(model, read_weights(path), file=Path(path).name, exactly=True)


def _load_encoder(encoder: nn.Module, state: State, *, file: str) -> LoadedWeights:
    """Load a classifier's weights into the encoder of a detector, which has neither its head nor its last norm."""
    own = encoder.state_dict()
    lost = tuple(f"{name}." for name in ("norm", "fc_norm", "head", "cls_attn_blocks", "cls_token"))
    kept = {
        key: value for key, value in rename_published(state).items() if key in own or not f"{key}.".startswith(lost)
    }
    return _load(encoder, kept, file=file)


def _load(model: nn.Module, state: State, *, file: str, exactly: bool = False) -> LoadedWeights:
    undo: list[tuple[nn.Module, str, Any]] = []
    sizes = {key: value.numel() for key, value in state.items()}
    try:
        if isinstance(model, Segmenter):
            state = segmenter_state(state, model, file=file)
        elif type(model).__module__.startswith("holdfast.") and not isinstance(model, Detector):
            state = rename_published(state)
        elif filter_fn := timm_filter(model):
            state = filter_fn(state, model)
        if follow := beside(type(model).__module__, "follow_keys"):
            state, undo = follow(model, state)
        state, left_out = _leave_out(state, model)
        added = _poolings_to_learn(state, model)
        may_miss = {*left_out, *added, *fresh_head(state, model)}
        if exactly and may_miss:
            key = min(may_miss)
            why = left_out.get(key, "the file has none")
            raise HoldfastError(f"{file} must hold all weights of the run's model, but {key} does not fit ({why})")
        if exactly:
            _check_not_resampled(state, sizes, file=file)
        _check_fit(state, model, file=file, may_miss=may_miss)
    except HoldfastError:
        for owner, name, old in reversed(undo):
            setattr(owner, name, old)
        raise
    for key, why in left_out.items():
        logger.warning("%s: left out %s, %s", file, key, why)
    if added:
        logger.warning("%s: has no TAP weights; the model's TAP keeps its initial ones", file)
    model.load_state_dict(state, strict=False)
    return LoadedWeights(used=len(state), left_out=tuple(left_out))


def convert_checkpoint(path: str | Path, out: str | Path, *, model: str, ema: bool | None = None) -> nn.Module:
    """Write a checkpoint as a folder that ``timm.create_model("local-dir:OUT", pretrained=True)`` loads.

    The number of classes, RVT's masks and MLPs, and convolutional projections are inferred from the file's keys.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HoldfastError(f"OUT must be a new or empty folder, got {str(out)!r}")
    state = read_weights(path, ema=ema)
    arguments = architecture_arguments(rename_published(state), model)
    built = create_model(model, **arguments)
    _load(built, state, file=Path(path).name)
    arguments.pop("num_classes", None)  # already in timm's config
    try:
        with atomic.new_folder(out) as unfinished:
            save_for_hf(built, str(unfinished), model_args=arguments or None, safe_serialization=True)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HoldfastError(f"OUT {str(out)!r} cannot be written ({reason})") from error
    return built


def read_weights(path: str | Path, *, ema: bool | None = None) -> State:
    """The tensors of a checkpoint file by name, without ``module.`` prefixes; no code in the file is run."""
    path = Path(path)
    if not path.is_file():
        raise HoldfastError(f"no checkpoint file at {str(path)!r}")
    try:
        if ema and not _containers(path) & {*EMA_CONTAINERS}:
            raise HoldfastError(f"{path.name} holds no averaged (EMA) weights; omit ema=True or --ema")
        with warnings.catch_warnings():  # torch warns of old pickle protocols in files that it then refuses
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            state = load_state_dict(str(path), use_ema=ema is not False)
    except HoldfastError:
        raise
    except Exception as error:  # a damaged file can raise anything in zip, pickle and torch
        if "weights_only" in str(error):
            raise HoldfastError(
                f"{path.name} was refused: it holds Python objects beside weights, and loading those could run code"
            ) from error
        raise HoldfastError(
            f"{path.name} cannot be read as a checkpoint: it is damaged or in another format"
        ) from error
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise HoldfastError(
            f"{path.name} holds no weights under state_dict, state_dict_ema or model, nor at its top level"
        )
    empty = next((key for key, value in tensors.items() if value.numel() == 0), None)
    if empty is not None:  # its shape is arbitrary, and a model of that shape could take any amount of memory
        raise HoldfastError(f"{path.name} must hold weights, but {empty} is empty, {tuple(tensors[empty].shape)}")
    return tensors


def holds_ema(path: str | Path, *, beside_raw: bool = False) -> bool:
    """Whether a file holds averaged weights; with ``beside_raw`` only if it holds raw ones as well."""
    try:
        there = _containers(Path(path))
    except Exception:  # a damaged file can raise anything; read_weights reports it
        return False
    return bool(there & {*EMA_CONTAINERS}) and (not beside_raw or bool(there & {*RAW_CONTAINERS}))


def _containers(path: Path) -> set[str]:
    if path.suffix == ".safetensors":
        return set()
    with torch.serialization.safe_globals(
        [Namespace]
    ):  # training arguments that timm's saver adds; its loader allows them, too
        content = torch.load(path, map_location="meta", weights_only=True)
    return {name for name in content if content[name] is not None} if isinstance(content, dict) else set()


# ---------------------------------------------------------------------- architecture from keys


def architecture_arguments(state: Mapping[str, Tensor], model: str) -> dict[str, Any]:
    """Keyword arguments of the model of that name that a file's keys imply."""
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
    """The state without tensors that the model does not need, and the reasons that a user should know."""
    own = model.state_dict()
    left_out: dict[str, str] = {}
    head = head_keys(model)
    if any(key in own and state[key].shape != own[key].shape for key in head & state.keys()):
        left_out = {key: f"its shape is {tuple(state[key].shape)}" for key in sorted(head & state.keys())}
    elif not head & state.keys():  # a backbone without a classifier, as in mmseg files
        left_out = dict.fromkeys(
            sorted({*head, "norm.weight", "norm.bias"} & own.keys() - state.keys()), "the file has none"
        )
    kept = {k: v for k, v in state.items() if k not in left_out and k.rpartition(".")[-1] not in DERIVED}
    return kept, left_out


def _poolings_to_learn(state: Mapping[str, Tensor], model: nn.Module) -> set[str]:
    """The keys of a model's TAP if the file was trained without it."""
    own = {key for key in model.state_dict() if ".dilation_predictor." in key}
    return own if not own & state.keys() else set()


def _check_fit(state: Mapping[str, Tensor], model: nn.Module, *, file: str, may_miss: Iterable[str]) -> None:
    """Raise an error for a file that does not fit the model, with the first keys of each problem."""
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


def _check_not_resampled(state: Mapping[str, Tensor], sizes: Mapping[str, int], *, file: str) -> None:
    """Raise an error for weights that were interpolated, as timm does for other image or patch sizes."""
    changed = sorted(key for key, value in state.items() if sizes.get(key, value.numel()) != value.numel())
    changed = [key for key in changed if key.rpartition(".")[-1] not in DERIVED]
    if changed:
        raise HoldfastError(
            f"{file} must hold the weights of the run's model unchanged, but {_first(changed)} would be interpolated; "
            "give its image and patch size in config.json, and another size with --size"
        )


def _first(keys: list[str], count: int = 3) -> str:
    return ", ".join(keys[:count]) + (", …" if len(keys) > count else "")


__getattr__ = renamed(__name__)
