"""TORA checkpoints: saving adapters, fusion and heads without the pretrained model, and attaching them to it.

A folder holds ``tora.safetensors`` (the added modules) and ``tora.json`` (their settings and the ViT they belong to);
with the pretrained model in ``backbone/``, in timm's format, it can be loaded on its own.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from holdfast.errors import HoldfastError, first_line
from holdfast.io import atomic
from holdfast.models.fingerprint import weights_fingerprint
from holdfast.models.flops import count_model
from holdfast.models.model_folder import load_folder
from holdfast.models.tora import ToraViT, describe, tora

WEIGHTS, DESCRIPTION, BACKBONE = "tora.safetensors", "tora.json", "backbone"
SHAPE = ("width", "depth", "classes")


def save_tora(model: ToraViT, folder: str | Path, *, notes: dict[str, Any] | None = None) -> None:
    """Write the modules added to the pretrained model; ``notes`` are stored in the description."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.detach().cpu().contiguous() for key, value in added_state(model).items()}
    cost = count_model(model)
    described = {
        "settings": describe(model.settings),
        **_shape(model.backbone),
        "backbone": model.backbone.pretrained_cfg.get("architecture"),
        "backbone_fingerprint": fingerprint(model.backbone),
        "cost": {"parameters": cost.parameters, "gmacs": cost.gmacs, "image_size": list(cost.image_size)},
        "notes": notes or {},
    }
    with atomic.replace_file(folder / WEIGHTS) as temporary:
        temporary.write_bytes(save(weights))
    atomic.write_text(folder / DESCRIPTION, json.dumps(described, indent=1) + "\n")


def attach_tora(model: nn.Module, folder: str | Path, *, other_weights: bool = False) -> ToraViT:
    """Attach saved adapters, fusion and heads to the pretrained model that they were trained for.

    Args:
        model: the pretrained ViT, with as many classes as the saved heads.
        folder: a folder written by `save_tora` or by a training run.
        other_weights: accept a ViT of the same shape with other weights.
    """
    folder = Path(folder)
    described = read_description(folder)
    try:
        adapted = tora(model, **described["settings"])
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        reason = first_line(error)
        raise HoldfastError(f"{str(folder / DESCRIPTION)!r} must describe a TORA of this ViT ({reason})") from error
    shape = _shape(adapted.backbone)
    if any(described[name] != shape[name] for name in SHAPE):
        theirs, ours = (", ".join(f"{name} {of[name]}" for name in SHAPE) for of in (described, shape))
        raise HoldfastError(f"the adapters in {str(folder)!r} belong to a ViT of {theirs}; got one of {ours}")
    if not other_weights and described["backbone_fingerprint"] != fingerprint(adapted.backbone):
        raise HoldfastError(
            f"the adapters in {str(folder)!r} were trained for other weights of this ViT; "
            "set other_weights=True to attach them anyway"
        )
    load_added(adapted, folder)
    return adapted


def load_tora(folder: str | Path) -> ToraViT:
    """The model of a finished training run, in evaluation mode."""
    folder = Path(folder)
    if not (folder / BACKBONE / "config.json").is_file():
        raise HoldfastError(
            f"{str(folder)!r} must hold {BACKBONE}/ with the pretrained model; without it use attach_tora(model, …)"
        )
    return attach_tora(load_folder(folder / BACKBONE), folder).eval()


def load_added(model: ToraViT, folder: str | Path) -> None:
    """Load adapters, fusion and heads into a model that already has these modules."""
    folder = Path(folder)
    described = read_description(folder)
    if described["settings"] != describe(model.settings):
        raise HoldfastError(
            f"the adapters in {str(folder)!r} were made with {described['settings']}, got {describe(model.settings)}"
        )
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise HoldfastError(f"{str(folder / WEIGHTS)!r} is missing or damaged") from error
    own = added_state(model)
    if {key: value.shape for key, value in weights.items()} != {key: value.shape for key, value in own.items()}:
        raise HoldfastError(f"the adapters in {str(folder)!r} belong to a ViT of another width, depth or class count")
    model.load_state_dict(weights, strict=False)


def read_description(folder: Path) -> dict[str, Any]:
    """The content of ``tora.json``."""
    try:
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        kinds = {"settings": dict, "backbone_fingerprint": str, **dict.fromkeys(SHAPE, int)}
        whole = all(isinstance(described[name], kind) for name, kind in kinds.items())
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise HoldfastError(f"{str(folder)!r} must hold {DESCRIPTION} and {WEIGHTS} of a finished TORA run") from error
    if not whole:
        raise HoldfastError(f"{str(folder / DESCRIPTION)!r} is damaged: it does not describe a TORA run")
    return described


def added_state(model: ToraViT) -> dict[str, torch.Tensor]:
    """The state of everything but the pretrained model."""
    return {key: value for key, value in model.state_dict().items() if not key.startswith("backbone.")}


def fingerprint(backbone: nn.Module) -> str:
    """A hash of the pretrained weights without their head, which TORA does not use."""
    kept = {key: value for key, value in backbone.state_dict().items() if not key.startswith("head.")}
    return weights_fingerprint(kept)


def _shape(backbone: Any) -> dict[str, int]:
    return {"width": backbone.embed_dim, "depth": len(backbone.blocks), "classes": backbone.num_classes}
