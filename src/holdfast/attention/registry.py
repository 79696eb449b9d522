"""Registry of attention readers, and the search for attention modules in a model."""

from typing import Any

import torch
from timm.models.cait import ClassAttn
from torch import nn

from holdfast.attention import cait, fan_rvt, hiera, swin, vit, xcit
from holdfast.attention.reader import Reader
from holdfast.errors import HoldfastError
from holdfast.registry import Registry, add_row
from holdfast.runtime.device import unwrap_model

READERS: Registry[type[nn.Module], Reader] = Registry(
    {kind: reader for family in (fan_rvt, vit, cait, swin, xcit, hiera) for kind, reader in family.READERS.items()},
    register="holdfast.attention.register_reader",
)
FAMILIES = (
    "Holdfast's models and timm's ViT, DeiT, BEiT, EVA-02, DINOv3, CaiT, Swin, SwinV2, Hiera and XCiT are supported"
)


def register_reader(module: type[nn.Module], reader: Reader) -> None:
    """Register how attention is read from a class of modules; its name is the class."""
    add_row(READERS, module, reader, what="reader of")


def attention_names(model: nn.Module) -> list[str]:
    """Paths of the attention modules of a model's blocks, without class attention; none if it is not supported."""
    model = unwrap_model(model)
    if why_not(model):
        return []
    return [
        name for name, module in model.named_modules() if type(module) in READERS and not isinstance(module, ClassAttn)
    ]


def can_watch(model: nn.Module) -> bool:
    """Whether `watch` supports a model."""
    return bool(attention_names(model))


def check_watchable(model: nn.Module) -> None:
    """Raise an error for a model that `watch` does not support."""
    if any(_is_compiled(module) for module in model.modules()):
        raise HoldfastError("cannot watch a compiled model: watch the model that was given to torch.compile instead")
    if sentence := why_not(model):
        raise HoldfastError(f"cannot watch this model: {sentence} ({FAMILIES})")


def why_not(model: nn.Module) -> str:
    """The reason why a model is not supported, with its name; empty if it is."""
    name = type(model).__name__
    known = [(path, module) for path, module in model.named_modules() if type(module) in READERS]
    if not known:
        return f"{name} has no attention that Holdfast can read"
    for path, module in known:
        if not READERS[type(module)].inside(owner_of(model, path)) or _is_branch(model, path):
            return f"{name} has attention ({path}) whose tokens are unknown"
    if all(isinstance(module, ClassAttn) for _, module in known):
        return f"{name} has no attention that Holdfast can read, except that of its class token"
    return ""


def owner_of(model: nn.Module, path: str) -> Any:
    """The nearest module around an attention with a patch embedding; None if there is none."""
    while path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path)
        if isinstance(getattr(module, "patch_embed", None), nn.Module):
            return module
    return None


def _is_branch(model: nn.Module, path: str) -> bool:
    """Whether a block has several parallel attentions, so that its output is not that of one of them."""
    return isinstance(model.get_submodule(path.rpartition(".")[0]), nn.Sequential)


def _is_compiled(module: nn.Module) -> bool:
    kinds = (torch._dynamo.OptimizedModule, torch.jit.ScriptModule)
    return isinstance(module, kinds) or module._compiled_call_impl is not None
