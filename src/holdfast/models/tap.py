"""``add_tap``: token-aware average pooling before every block's attention, for our models and timm's.

TAP on FAN and RVT follows the authors' code (Guo et al., ICCV 2023), with the published names and keys. For DeiT and
Swin they report results but released no code: the same position (before norm1, attention branch only) is our reading.
"""

from typing import Any, TypeVar

import timm
import torch
from timm.models import generate_default_cfgs, register_model
from timm.models.swin_transformer import SwinTransformer, SwinTransformerBlock
from timm.models.vision_transformer import Block as ViTBlock
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.layers.tap import local_pooling
from holdfast.models import fan, rvt
from holdfast.models.backbone import build
from holdfast.models.fan import FANBlock
from holdfast.models.rvt import RVTBlock

Model = TypeVar("Model", bound=nn.Module)


def add_tap(model: Model, branches: int = 4, *, kind: str = "tap") -> Model:
    """Add TAP (or another local pooling of its Table 1) to every block, in place, and return the model.

    Only the input of the attention is pooled, not the residual path or the class token. The new modules are the blocks'
    ``dilation_predictor``; all other state-dict keys stay, so pretrained weights load before or after.

    Args:
        model: one of ours, or a timm ViT, DeiT or Swin.
        branches: number of dilations in TAP, 0 … branches − 1.
        kind: ``tap``, ``tap-identity`` (the same, starting near the identity: for weights trained without it),
            ``tap-multi-kernel``, ``avgpool3``, ``avgpool5``, ``conv3`` or ``conv5``.
    """
    blocks = [
        block for block in model.modules() if isinstance(block, FANBlock | RVTBlock | ViTBlock | SwinTransformerBlock)
    ]
    if not blocks:
        raise HoldfastError(
            f"cannot add TAP to {type(model).__name__}: it has no blocks with a known token grid "
            "(Holdfast's models and timm's ViT, DeiT and Swin are supported)"
        )
    if any(getattr(block, "dilation_predictor", None) is not None for block in blocks):
        raise HoldfastError(f"this {type(model).__name__} has TAP already")
    grid, prefix = _ImageGrid(), 0
    if isinstance(model, VisionTransformer):
        model.patch_embed.register_forward_pre_hook(grid.note)
        prefix = model.num_prefix_tokens
    for block in blocks:
        norm: Any = block.norm1
        pool = local_pooling(kind, norm.normalized_shape[0], branches)
        block.dilation_predictor = pool.to(norm.weight.device, norm.weight.dtype).train(block.training)
        if isinstance(block, ViTBlock):
            hook = _PoolSequence(pool, grid, prefix)
            block.norm1.register_forward_pre_hook(hook.before_norm)
        elif isinstance(block, SwinTransformerBlock):
            block.norm1.register_forward_pre_hook(_PoolMap(pool).before_norm)
    return model


# timm's blocks have no place for a pooling, and replacing their norm1 would rename its weights: so a hook on norm1
# pools its input. The hooks are bound methods, because deepcopy copies those along with the model.


class _ImageGrid:
    """The token grid of the current images."""

    def __init__(self) -> None:
        self.size = (0, 0)

    def note(self, patch_embed: nn.Module, args: tuple[Tensor, ...]) -> None:
        height, width = patch_embed.dynamic_feat_size(args[0].shape[-2:])
        self.size = (int(height), int(width))


class _PoolSequence:
    """Pools the patch tokens of a sequence (B, prefix + N, C)."""

    def __init__(self, pool: nn.Module, grid: _ImageGrid, prefix: int) -> None:
        self.pool, self.grid, self.prefix = pool, grid, prefix

    def before_norm(self, norm: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        (tokens,) = args
        pooled = self.pool(tokens[:, self.prefix :], *self.grid.size)
        return torch.cat([tokens[:, : self.prefix], pooled], dim=1)


class _PoolMap:
    """Pools tokens in the layout (B, H, W, C)."""

    def __init__(self, pool: nn.Module) -> None:
        self.pool = pool

    def before_norm(self, norm: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
        (x,) = args
        height, width = x.shape[1:3]
        return self.pool(x.flatten(1, 2), height, width).unflatten(1, (height, width))


# ---------------------------------------------------------------------- entry points


def _register(name: str, create: Any, **extra: Any) -> None:
    """Register ``tap_<name>``, the published combination of TAP with one of our models."""

    def entry_point(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        return create(f"tap_{name}", pretrained, kwargs, tap="tap", **extra)

    entry_point.__name__ = entry_point.__qualname__ = f"tap_{name}"
    entry_point.__doc__ = f"{name} with token-aware average pooling."
    register_model(entry_point)


_FAN = [name for name in fan.SIZES if "nano" not in name and not name.endswith("_se_attn")]
_RVT = ["rvt_tiny_plus", "rvt_small_plus", "rvt_base_plus"]
# timm's models with TAP: DeiT-B and Swin-B are those of TAP+ADL's Table 5, the others are for fine-tuning
_VIT: dict[str, dict[str, Any]] = {
    "tiny": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "small": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "base": {"embed_dim": 768, "depth": 12, "num_heads": 12},
}
_DINOV2: dict[str, Any] = {"img_size": 518, "patch_size": 14, "init_values": 1e-5}
_SWIN: dict[str, dict[str, Any]] = {
    "tiny": {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
    "small": {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)},
    "base": {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)},
}
_TIMM: dict[str, dict[str, Any]] = {
    **{f"{family}_{size}_patch16_224": {"patch_size": 16, **_VIT[size]} for family in ("deit", "vit") for size in _VIT},
    **{f"vit_{size}_patch14_dinov2": {**_DINOV2, **_VIT[size]} for size in ("small", "base")},
    **{f"swin_{size}_patch4_window7_224": {"window_size": 7, **_SWIN[size]} for size in _SWIN},
}


def _cfg(name: str) -> dict[str, Any]:
    if name in _TIMM:  # the preprocessing only: timm's weights have no TAP
        return {**timm.get_pretrained_cfg(name).to_dict(), "url": "", "hf_hub_id": None, "tag": None}
    return {**fan.default_cfgs, **rvt.default_cfgs}[name].default.to_dict()


default_cfgs = generate_default_cfgs({f"tap_{name}": _cfg(name) for name in [*_FAN, *_RVT, *_TIMM]})

for _name in _FAN:
    _register(_name, fan.create_fan)
for _name in _RVT:
    # as released: TAP-RVT-B has the convolutional MLP, unlike RVT-B
    _register(_name, rvt.create_rvt, **({"mlp": "conv"} if _name == "rvt_base_plus" else {}))


def _with_tap(stock: type[nn.Module]) -> Any:
    def construct(tap: str = "tap", tap_branches: int = 4, **kwargs: Any) -> nn.Module:
        return add_tap(stock(**kwargs), tap_branches, kind=tap)

    return construct


def _register_stock(name: str, architecture: dict[str, Any]) -> None:
    """Register ``tap_<name>``, one of timm's models; the position of TAP is our reading, as no code was released."""
    swin = name.startswith("swin")
    stock, features = (SwinTransformer, (0, 1, 2, 3)) if swin else (VisionTransformer, 3)

    def entry_point(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        return build(_with_tap(stock), f"tap_{name}", pretrained, {**architecture, **kwargs}, features=features)

    entry_point.__name__ = entry_point.__qualname__ = f"tap_{name}"
    entry_point.__doc__ = f"timm's {name} with token-aware average pooling."
    register_model(entry_point)


for _name, _architecture in _TIMM.items():
    _register_stock(_name, _architecture)
