"""Robust vision transformers: RVT and RVT* (Mao et al., CVPR 2022), as released.

``_plus`` models have position-aware attention scaling (PAAS): a learned mask multiplies the attention scores.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from timm.layers import DropPath, Mlp, trunc_normal_
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.layers.conv_qkv import rvt_conv_qkv
from holdfast.layers.tap import local_pooling
from holdfast.models.backbone import (
    Backbone,
    Wanted,
    as_pair,
    build,
    check_heads,
    check_image,
    imagenet_cfg,
    nano_cfg,
    take_indices,
)

LayerNorm = partial(nn.LayerNorm, eps=1e-6)
Grid = tuple[int, int]
# sigmoid(mask) starts near 0.5; RVT's own release leaves the masks uninitialised, RSPC and TAP+ADL use this std
MASK_STD = 0.02


def resize_mask(mask: Tensor, *, old: Grid, new: Grid) -> Tensor:
    """Interpolate a PAAS mask (h, N, N) to another token grid, over the positions of keys and of queries.

    Ours: the release slices masks to the first tokens, which assigns them to other positions.
    """
    if old == new:
        return mask
    resize = partial(F.interpolate, size=new, mode="bilinear", align_corners=False)
    mask = resize(mask.unflatten(-1, old)).flatten(-2)  # h N N'
    return resize(mask.transpose(-2, -1).unflatten(-1, old)).flatten(-2).transpose(-2, -1)


class Stem(nn.Module):
    """Convolutional patch embedding without activation: a stride-2 convolution, a max-pool, a patch projection.

    Patch size 16 is the published one; patch size 4 (ours, for 32-px images) has no pool.
    """

    def __init__(self, dim: int, *, patch_size: int, in_chans: int) -> None:
        super().__init__()
        pool: nn.Module
        if patch_size == 16:
            first, pool, patch = nn.Conv2d(in_chans, 32, 7, stride=2, padding=2), nn.MaxPool2d(3, 2, 1), 4
        elif patch_size == 4:
            first, pool, patch = nn.Conv2d(in_chans, 32, 3, stride=2, padding=1), nn.Identity(), 2
        else:
            raise HoldfastError(f"patch_size must be 4 or 16, got {patch_size}")
        self.proj = nn.Sequential(first, nn.BatchNorm2d(32), pool, nn.Conv2d(32, dim, patch, stride=patch))

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) → map (B, C, H/p, W/p)."""
        return self.proj(x.contiguous(memory_format=torch.channels_last))


class RVTAttention(nn.Module):
    """Self-attention; with ``mask_grid`` its scores are multiplied by a learned mask before the softmax (PAAS)."""

    def __init__(
        self, dim: int, heads: int, *, mask_grid: Grid | None = None, mask_bound: float = 2.0, conv_qkv: bool = False
    ) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (dim // heads) ** -0.5
        self.mask_grid = mask_grid
        self.conv_qkv = conv_qkv
        if conv_qkv:
            self.patch_reasoning = rvt_conv_qkv(dim)
        else:
            self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.att_mask: nn.Parameter | None = None
        if mask_grid is not None:
            tokens = mask_grid[0] * mask_grid[1]
            mask = trunc_normal_(torch.empty(heads, tokens, tokens), std=MASK_STD, a=-mask_bound, b=mask_bound)
            self.att_mask = nn.Parameter(mask)

    def multiplier(self, grid: Grid) -> Tensor | None:
        """PAAS's factor of the scaled scores on this grid, (h, N, N)."""
        if self.att_mask is None or self.mask_grid is None:
            return None
        return resize_mask(self.att_mask, old=self.mask_grid, new=grid).sigmoid()

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        qkv = self.patch_reasoning(x, height, width) if self.conv_qkv else self.qkv(x)
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # B h N d
        multiplier = self.multiplier((height, width))
        if multiplier is None:
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            # PAAS multiplies the scores before the softmax, which fused attention cannot do: its mask is added
            out = ((q * self.scale) @ k.transpose(-2, -1) * multiplier).softmax(dim=-1) @ v
        return self.proj(out.transpose(1, 2).flatten(2))


class ConvMlp(nn.Module):
    """MLP of 1×1 convolutions around a depthwise one, each with BatchNorm; RVT-B has a plain MLP instead."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(dim, hidden, 1)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.bn2 = nn.BatchNorm2d(hidden)
        self.fc2 = nn.Conv2d(hidden, dim, 1)
        self.bn3 = nn.BatchNorm2d(dim)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        x = x.transpose(1, 2).unflatten(2, (height, width))  # B C H W, channels last in memory
        x = F.gelu(self.bn1(self.fc1(x)))
        x = F.gelu(self.bn2(self.dwconv(x)))
        return self.bn3(self.fc2(x)).flatten(2).transpose(1, 2)


class RVTBlock(nn.Module):
    """Attention and MLP with residual connections; no layer scale."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp: str,
        mlp_ratio: float = 4.0,
        mask_grid: Grid | None = None,
        drop_path: float = 0.0,
        tap: str | None = None,
        tap_branches: int = 4,
        conv_qkv: bool = False,
    ) -> None:
        super().__init__()
        self.dilation_predictor = local_pooling(tap, dim, tap_branches) if tap else None
        self.norm1 = LayerNorm(dim)
        bound = MASK_STD if tap else 2.0  # TAP+ADL's code truncates at ±1 std, RSPC's at ±2 (100 std)
        self.attn = RVTAttention(dim, heads, mask_grid=mask_grid, mask_bound=bound, conv_qkv=conv_qkv)
        self.norm2 = LayerNorm(dim)
        hidden = int(dim * mlp_ratio)
        self.mlp: nn.Module = ConvMlp(dim, hidden) if mlp == "conv" else Mlp(dim, hidden)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        pooled = x if self.dilation_predictor is None else self.dilation_predictor(x, height, width)
        x = x + self.drop_path(self.attn(self.norm1(pooled), height, width))
        y = self.norm2(x)
        y = self.mlp(y, height, width) if isinstance(self.mlp, ConvMlp) else self.mlp(y)
        return x + self.drop_path(y)


class Stage(nn.Module):
    """The blocks of one stage, all of one width."""

    def __init__(self, blocks: Sequence[RVTBlock]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)


class TokenPool(nn.Module):
    """Grouped convolution between stages that halves the grid and doubles the width."""

    def __init__(self, dim: int, out_dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, out_dim, 3, stride=2, padding=1, groups=dim)

    def forward(self, x: Tensor, height: int, width: int) -> tuple[Tensor, int, int]:
        """Tokens of a height × width grid → tokens of the halved grid, and its size."""
        x = self.conv(x.transpose(1, 2).unflatten(2, (height, width)))
        return x.flatten(2).transpose(1, 2), x.shape[-2], x.shape[-1]


class RVT(Backbone):
    """A robust vision transformer: no class token, no positional encoding, average-pooled tokens."""

    pooling = "avg"

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dims: Sequence[int] = (384,),
        depths: Sequence[int] = (12,),
        num_heads: Sequence[int] = (6,),
        masked_blocks: int = 0,
        mlp: str | None = None,
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        tap: str | None = None,
        tap_branches: int = 4,
        conv_qkv: bool = False,
    ) -> None:
        """Build the network.

        Args:
            img_size: image size of the PAAS masks' grid; other sizes use interpolated masks.
            patch_size: patch size in pixels.
            in_chans: image channels.
            num_classes: width of the head, 0 for none.
            embed_dims: token width per stage.
            depths: blocks per stage.
            num_heads: heads per stage.
            masked_blocks: number of blocks with PAAS, from the first of the first stage.
            mlp: ``conv`` or ``linear``; None follows the release, linear for width 768 only.
            mlp_ratio: expansion ratio of the MLP.
            drop_rate: dropout before the head.
            drop_path_rate: stochastic depth; block i of L has rate · i/L.
            tap: local pooling before every block's attention, such as ``tap``; None for none.
            tap_branches: number of dilations in TAP.
            conv_qkv: convolutional projections, only to load AFAT's ``*_plus_afat`` weights.
        """
        super().__init__()
        self.img_size = as_pair(img_size)
        self.patch_size, self.in_chans, self.num_classes = patch_size, in_chans, num_classes
        if mlp not in (None, "conv", "linear"):
            raise HoldfastError(f"mlp must be 'conv' or 'linear', got {mlp!r}")
        if not 0 <= masked_blocks <= depths[0]:
            raise HoldfastError(f"masked_blocks must be between 0 and {depths[0]}, got {masked_blocks}")
        for dim, heads in zip(embed_dims, num_heads, strict=True):
            check_heads(dim, heads)

        grid = (self.img_size[0] // patch_size, self.img_size[1] // patch_size)
        self.patch_embed = Stem(embed_dims[0], patch_size=patch_size, in_chans=in_chans)
        self.transformers, self.pools = nn.ModuleList(), nn.ModuleList()
        done = 0
        for stage, (dim, depth, heads) in enumerate(zip(embed_dims, depths, num_heads, strict=True)):
            blocks = [
                RVTBlock(
                    dim,
                    heads,
                    mlp=mlp or ("linear" if dim == 768 else "conv"),
                    mlp_ratio=mlp_ratio,
                    mask_grid=grid if stage == 0 and index < masked_blocks else None,
                    drop_path=drop_path_rate * (done + index) / sum(depths),
                    tap=tap,
                    tap_branches=tap_branches,
                    conv_qkv=conv_qkv,
                )
                for index in range(depth)
            ]
            self.transformers.append(Stage(blocks))
            done += depth
            if stage + 1 < len(depths):
                self.pools.append(TokenPool(dim, embed_dims[stage + 1]))
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dims[-1]
        self.norm = LayerNorm(self.num_features)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = self._new_head()
        self.feature_info = [
            {"num_chs": dim, "reduction": patch_size * 2**stage, "module": f"transformers.{stage}.blocks.{index}"}
            for stage, (dim, depth) in enumerate(zip(embed_dims, depths, strict=True))
            for index in range(depth)
        ]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens (B, N, C) → logits (or their normalised mean)."""
        x = self.head_drop(self.norm(x.mean(dim=1)))
        return x if pre_logits else self.head(x)

    def _forward_body(self, x: Tensor, wanted: Wanted) -> Tensor:
        """Images → tokens (B, N, C) of the last stage."""
        check_image(x, channels=self.in_chans, stride=self.patch_size)
        x = self.patch_embed(x)
        height, width = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        for stage, transformer in enumerate(self.transformers):
            for index, block in enumerate(transformer.blocks):  # type: ignore[arg-type]
                if wanted.complete:
                    return x
                x = self._run(block, x, height, width)
                wanted.note(f"transformers.{stage}.blocks.{index}", x, (height, width))
            if stage < len(self.pools):
                x, height, width = self.pools[stage](x, height, width)
        return x

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove layers that the blocks at ``indices`` do not need, and return the indices as positive numbers."""
        take = take_indices(len(self.feature_info), indices)
        _, stage, _, index = self.feature_info[max(take)]["module"].split(".")
        self.transformers = self.transformers[: int(stage) + 1]
        self.transformers[-1].blocks = self.transformers[-1].blocks[: int(index) + 1]
        self.pools = self.pools[: int(stage)]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0)
        return take

    def no_weight_decay(self) -> set[str]:
        """None, as released: timm exempts 1-D tensors and biases, and masks are decayed."""
        return set()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for layer-wise learning rates."""
        return {
            "stem": r"^patch_embed",
            "blocks": r"^(?:transformers|pools)\.(\d+)"
            if coarse
            else [(r"^transformers\.(\d+)\.blocks\.(\d+)", None), (r"^pools\.(\d+)", (1000,)), (r"^norm", (99999,))],
        }


# ---------------------------------------------------------------------- entry points

SIZES: dict[str, dict[str, Any]] = {
    "rvt_tiny": {"embed_dims": (192, 384), "depths": (10, 2), "num_heads": (6, 12)},
    "rvt_tiny_plus": {"embed_dims": (192, 384), "depths": (10, 2), "num_heads": (6, 12), "masked_blocks": 10},
    "rvt_small": {"embed_dims": (384,), "depths": (12,), "num_heads": (6,)},
    "rvt_small_plus": {"embed_dims": (384,), "depths": (12,), "num_heads": (6,), "masked_blocks": 5},
    "rvt_base": {"embed_dims": (768,), "depths": (12,), "num_heads": (12,)},
    "rvt_base_plus": {"embed_dims": (768,), "depths": (12,), "num_heads": (12,), "masked_blocks": 5},
    "rvt_nano": {
        "img_size": 32,
        "patch_size": 4,
        "embed_dims": (96,),
        "depths": (7,),
        "num_heads": (4,),
        "masked_blocks": 3,
    },
}

_STEM = {"first_conv": "patch_embed.proj.0"}

default_cfgs = generate_default_cfgs(
    {name: nano_cfg(**_STEM) if "nano" in name else imagenet_cfg(crop_pct=0.875, **_STEM) for name in SIZES}
)


def create_rvt(variant: str, pretrained: bool, kwargs: dict[str, Any], **architecture: Any) -> RVT:
    """Build the RVT of that name; the user's ``kwargs`` override its architecture."""
    architecture = {**SIZES[variant.removeprefix("tap_")], **architecture, **kwargs}
    return build(RVT, variant, pretrained, architecture, features=3)


@register_model
def rvt_tiny(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-Ti: two stages, 8.6 M parameters, without PAAS."""
    return create_rvt("rvt_tiny", pretrained, kwargs)


@register_model
def rvt_tiny_plus(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-Ti*: PAAS in the ten blocks of its first stage."""
    return create_rvt("rvt_tiny_plus", pretrained, kwargs)


@register_model
def rvt_small(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-S: 12 blocks of width 384, 22.1 M parameters, without PAAS."""
    return create_rvt("rvt_small", pretrained, kwargs)


@register_model
def rvt_small_plus(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-S*: PAAS in the first five blocks."""
    return create_rvt("rvt_small_plus", pretrained, kwargs)


@register_model
def rvt_base(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-B: 12 blocks of width 768, 86.2 M parameters, without PAAS."""
    return create_rvt("rvt_base", pretrained, kwargs)


@register_model
def rvt_base_plus(pretrained: bool = False, **kwargs: Any) -> RVT:
    """RVT-B*: PAAS in the first five blocks (88.5 M); ``masked_blocks=12`` gives the papers' 91.8 M."""
    return create_rvt("rvt_base_plus", pretrained, kwargs)


@register_model
def rvt_nano(pretrained: bool = False, **kwargs: Any) -> RVT:
    """An RVT* for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    return create_rvt("rvt_nano", pretrained, kwargs)


# ---------------------------------------------------------------------- published checkpoints


def arguments_from_keys(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Arguments of an RVT, masks and MLPs, that a file's keys imply."""
    first = re.compile(r"transformers\.0\.blocks\.\d+\.attn\.att_mask")
    return {
        "masked_blocks": sum(first.fullmatch(key) is not None for key in state),
        "mlp": "conv" if "transformers.0.blocks.0.mlp.dwconv.weight" in state else "linear",
    }


def follow_keys(model: RVT, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[tuple[nn.Module, str, Any]]]:
    """Give an RVT the masks, MLPs and projections of a file.

    Returns the file's state with masks at the model's grid, and the replaced modules, to restore them on failure.
    """
    undo: list[tuple[nn.Module, str, Any]] = []

    def replace(owner: nn.Module, name: str, new: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    for name, block in model.named_modules():
        if not isinstance(block, RVTBlock):
            continue
        dim, heads = block.norm1.normalized_shape[0], block.attn.num_heads
        masked = f"{name}.attn.att_mask" in state
        conv_qkv = f"{name}.attn.patch_reasoning.0.weight" in state
        conv_mlp = f"{name}.mlp.dwconv.weight" in state
        if (masked, conv_qkv) != (block.attn.att_mask is not None, block.attn.conv_qkv):
            grid = (model.img_size[0] // model.patch_size, model.img_size[1] // model.patch_size) if masked else None
            replace(block, "attn", _like(model, RVTAttention(dim, heads, mask_grid=grid, conv_qkv=conv_qkv)))
        if conv_mlp != isinstance(block.mlp, ConvMlp) and f"{name}.mlp.fc1.weight" in state:
            hidden = len(state[f"{name}.mlp.fc1.weight"])
            replace(block, "mlp", _like(model, ConvMlp(dim, hidden) if conv_mlp else Mlp(dim, hidden)))
    return _resize_masks(state, model), undo


def _like(model: nn.Module, module: nn.Module) -> nn.Module:
    reference = next(model.parameters())
    return module.to(reference.device, reference.dtype).train(model.training)


def _resize_masks(state: Mapping[str, Tensor], model: RVT) -> dict[str, Tensor]:
    """PAAS masks interpolated to the model's grid; the published ones are for square grids."""

    def resize(key: str, mask: Tensor) -> Tensor:
        grid: Any = model.get_submodule(key.rpartition(".")[0]).mask_grid
        side = round(mask.shape[-1] ** 0.5)
        if grid[0] * grid[1] == mask.shape[-1]:
            return mask
        return resize_mask(mask, old=(side, side), new=grid)

    return {key: resize(key, value) if key.endswith(".att_mask") else value for key, value in state.items()}
