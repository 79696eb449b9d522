"""Fully attentional networks: FAN-ViT and FAN-Hybrid (Zhou et al., ICML 2022), as released.

Names, state-dict keys and arithmetic are the published ones; docs/fan.md lists where paper and code differ.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.layers import DropPath, trunc_normal_
from timm.models import generate_default_cfgs, register_model
from timm.models.xcit import LPI, ClassAttentionBlock
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError, nearest
from holdfast.layers.channel_attention import CHANNEL_ATTENTION
from holdfast.layers.conv_qkv import fan_conv
from holdfast.layers.positional import FourierPosition
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
from holdfast.models.convnext_trunk import TRUNK_DIMS, ConvNeXtTrunk

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class ConvPatchEmbed(nn.Module):
    """Convolutional patch embedding of FAN-ViT: 3×3 stride-2 convolutions down to one token per patch."""

    def __init__(self, dim: int, *, patch_size: int, in_chans: int) -> None:
        super().__init__()
        # XCiT's widths; for patch 4 the first one stays at a quarter
        widths = {16: [dim // 8, dim // 4, dim // 2, dim], 8: [dim // 4, dim // 2, dim], 4: [dim // 4, dim]}.get(
            patch_size
        )
        if widths is None:
            raise HoldfastError(f"patch_size must be 4, 8 or 16, got {patch_size}")
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise([in_chans, *widths]):
            convolution = nn.Conv2d(width_in, width_out, 3, stride=2, padding=1, bias=False)
            layers += [nn.Sequential(convolution, nn.BatchNorm2d(width_out)), nn.GELU()]
        self.proj = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Images (B, 3, H, W) → map (B, C, H/p, W/p), and no earlier maps."""
        return self.proj(x.contiguous(memory_format=torch.channels_last)), []


class HybridEmbed(nn.Module):
    """Patch embedding of FAN-Hybrid: a ConvNeXt trunk and a strided projection."""

    def __init__(self, dim: int, *, trunk: ConvNeXtTrunk, stride: int = 2) -> None:
        super().__init__()
        self.backbone = trunk
        self.proj = nn.Conv2d(trunk.dims[-1], dim, stride, stride=stride)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Images (B, 3, H, W) → map (B, C, h, w), and the trunk's two maps."""
        maps = self.backbone(x)
        return self.proj(maps[-1]), maps


class TokenAttention(nn.Module):
    """Multi-head self-attention with separate query and key-value projections (or AFAT's convolutional ones)."""

    def __init__(self, dim: int, heads: int, *, qkv_bias: bool = True, conv_qkv: bool = False) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (dim // heads) ** -0.5
        self.conv_qkv = conv_qkv
        if conv_qkv:
            self.qkv = fan_conv(dim)
            self.fc = nn.Linear(dim // 4, 3 * dim)
        else:
            self.q = nn.Linear(dim, dim, bias=qkv_bias)
            self.kv = nn.Linear(dim, 2 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        if self.conv_qkv:
            q, k, v = self.fc(self.qkv(x, height, width)).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        else:
            q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # B h N d
            k, v = self.kv(x).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TokenDownsample(nn.Module):
    """Strided convolution that halves the token grid (FAN-XL-Hybrid, after block 19)."""

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_dim, dim, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, height: int, width: int) -> tuple[Tensor, int, int]:
        """Tokens of a height × width grid → tokens of the halved grid, and its size."""
        x = self.proj(x.transpose(1, 2).unflatten(2, (height, width)))
        height, width = x.shape[-2:]
        return self.norm(x.flatten(2).transpose(1, 2)), height, width


class FANBlock(nn.Module):
    """Token attention, then channel attention, each scaled and added (FAN Fig. 2b)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_path: float = 0.0,
        eta: float = 1.0,
        channel_attention: str = "eca",
        tap: str | None = None,
        tap_branches: int = 4,
        conv_qkv: bool = False,
    ) -> None:
        super().__init__()
        self.dilation_predictor = local_pooling(tap, dim, tap_branches) if tap else None
        self.norm1 = LayerNorm(dim)
        self.attn = TokenAttention(dim, heads, qkv_bias=qkv_bias, conv_qkv=conv_qkv)
        self.norm2 = LayerNorm(dim)
        self.mlp = CHANNEL_ATTENTION[channel_attention](dim, heads, mlp_ratio=mlp_ratio)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        # η = 1 as released, although the paper's layer scale is CaiT's, which starts at 1e-5 or less
        self.gamma1 = nn.Parameter(eta * torch.ones(dim))
        self.gamma2 = nn.Parameter(eta * torch.ones(dim))
        self.downsample: TokenDownsample | None = None  # applied by the network, so that block outputs keep their grid

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        # TAP feeds the attention branch only: the skip connection keeps the tokens that were not pooled
        pooled = x if self.dilation_predictor is None else self.dilation_predictor(x, height, width)
        x = x + self.drop_path(self.gamma1 * self.attn(self.norm1(pooled), height, width))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x), height, width))


class FAN(Backbone):
    """A fully attentional network; the entry points below build the published sizes.

    Drop-path has one constant rate in all FAN blocks and is zero elsewhere, as released. The class token is added after
    the FAN blocks and reads them through class attention (CaiT), which also doubles the patch tokens.
    """

    pooling = "token"
    any_size = False  # True floors (Hybrid) or ceils (ViT) sizes that the strides do not divide, as released

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 384,
        depth: int = 12,
        num_heads: int = 8,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        eta: float = 1.0,
        cls_attn_layers: int = 2,
        channel_attention: str = "eca",
        pos_floor: bool = True,
        trunk_depths: tuple[int, int] | None = None,
        trunk_dims: tuple[int, int] = TRUNK_DIMS,
        trunk_stride: int = 8,
        tail: tuple[int, int, int] | None = None,
        feature_block: int | None = None,
        tap: str | None = None,
        tap_branches: int = 4,
        conv_qkv: bool = False,
        head_init_scale: float = 1.0,
    ) -> None:
        """Build the network.

        Args:
            img_size: nominal image size; any size divisible by the stride runs.
            patch_size: patch size in pixels.
            in_chans: image channels.
            num_classes: width of the head, 0 for none.
            embed_dim: token width.
            depth: number of FAN blocks of that width.
            num_heads: attention heads, also of the channel gates (FAN Fig. 7).
            mlp_ratio: expansion ratio of the value path.
            qkv_bias: biases in the attention's projections.
            drop_rate: dropout before the head.
            drop_path_rate: stochastic depth rate of every FAN block.
            eta: initial value of the layer scales.
            cls_attn_layers: number of class-attention blocks.
            channel_attention: ``eca``, ``se`` or ``ca`` (FAN Table 6).
            pos_floor: False for weights of the released segmentation and detection backbones.
            trunk_depths: ConvNeXt blocks per stage; None for convolutional patch embedding (FAN-ViT).
            trunk_dims: the trunk's widths.
            trunk_stride: stride of the trunk's output; the projection covers the rest of the patch.
            tail: (width, blocks, heads) of additional blocks on a halved grid (FAN-XL).
            feature_block: block whose output is the third feature map of a Hybrid; the last one if None.
            tap: local pooling before every block's attention, such as ``tap``; None for none.
            tap_branches: number of dilations in TAP.
            conv_qkv: convolutional projections, only to load AFAT's ``afat_*`` weights.
            head_init_scale: factor of a new head's initial weights.
        """
        super().__init__()
        check_heads(embed_dim, num_heads)
        _check_channel_attention(channel_attention)
        self.img_size = as_pair(img_size)
        self.patch_size, self.in_chans, self.num_classes = patch_size, in_chans, num_classes

        self.patch_embed: ConvPatchEmbed | HybridEmbed
        if trunk_depths is None:
            self.patch_embed = ConvPatchEmbed(embed_dim, patch_size=patch_size, in_chans=in_chans)
        else:
            trunk = ConvNeXtTrunk(in_chans, depths=trunk_depths, dims=trunk_dims, stem_stride=trunk_stride // 2)
            self.patch_embed = HybridEmbed(embed_dim, trunk=trunk, stride=patch_size // trunk_stride)
        self.pos_embed = FourierPosition(embed_dim, floor=pos_floor)

        block = partial(
            FANBlock,
            mlp_ratio=mlp_ratio,
            qkv_bias=qkv_bias,
            drop_path=drop_path_rate,
            eta=eta,
            channel_attention=channel_attention,
            tap=tap,
            tap_branches=tap_branches,
            conv_qkv=conv_qkv,
        )
        self.blocks = nn.ModuleList([block(embed_dim, num_heads) for _ in range(depth)])
        width, heads = embed_dim, num_heads
        if tail is not None:
            width, tail_depth, heads = tail
            self.blocks[-1].downsample = TokenDownsample(embed_dim, width)
            self.blocks.extend([block(width, heads) for _ in range(tail_depth)])

        self.cls_token: nn.Parameter | None = nn.Parameter(torch.zeros(1, 1, width))
        self.cls_attn_blocks = nn.ModuleList(
            [
                ClassAttentionBlock(
                    width,
                    heads,
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    norm_layer=LayerNorm,  # type: ignore[arg-type]  # timm takes any constructor
                    eta=eta,
                    tokens_norm=True,
                )
                for _ in range(cls_attn_layers)
            ]
        )
        self.num_features = self.head_hidden_size = self.embed_dim = width
        self.norm = LayerNorm(width)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = self._new_head()

        self.feature_info = self._describe_features(depth - 1 if feature_block is None else feature_block)
        trunc_normal_(self.cls_token, std=0.02)
        self.apply(init_fan)
        if num_classes > 0 and head_init_scale != 1:
            with torch.no_grad():
                for parameter in self.head.parameters():
                    parameter.mul_(head_init_scale)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens → logits (or the class token's features)."""
        x = self.head_drop(x[:, 0])
        return x if pre_logits else self.head(x)

    def _forward_body(self, x: Tensor, wanted: Wanted) -> Tensor:
        """Images → normalised tokens (B, 1 + N, C), the class token first."""
        check_image(x, channels=self.in_chans, stride=1 if self.any_size else self.patch_size)
        x, trunk_maps = self.patch_embed(x)
        for stage, trunk_map in enumerate(trunk_maps):
            wanted.note(f"patch_embed.backbone.stages.{stage}", trunk_map)
        height, width = x.shape[-2:]
        x = self.pos_embed(x.flatten(2).transpose(1, 2), height, width)

        for index, block in enumerate(self.blocks):
            if wanted.complete:
                return x
            x = self._run(block, x, height, width)
            wanted.note(f"blocks.{index}", x, (height, width))
            if block.downsample is not None:
                x, height, width = block.downsample(x, height, width)

        if self.cls_token is not None and not wanted.complete:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
            for index, block in enumerate(self.cls_attn_blocks):
                x = self._run(block, x)
                wanted.note(f"cls_attn_blocks.{index}", x[:, 1:], (height, width))
        return self.norm(x)

    def _describe_features(self, feature_block: int) -> list[dict[str, Any]]:
        """The entries of ``feature_info`` for ``features_only`` and ``forward_intermediates``.

        FAN-ViT: every block. FAN-Hybrid: strides 4, 8, 16, 16, i.e. both trunk stages, one FAN block and the patch
        tokens after class attention, without a norm (the released segmentation backbone).
        """

        if not isinstance(self.patch_embed, HybridEmbed):
            return [self._token_feature(f"blocks.{i}", i) for i in range(len(self.blocks))]
        trunk = self.patch_embed.backbone
        return [
            *(
                {"num_chs": dim, "reduction": stride, "module": f"patch_embed.backbone.stages.{stage}"}
                for stage, (dim, stride) in enumerate(zip(trunk.dims, trunk.strides, strict=True))
            ),
            self._token_feature(f"blocks.{feature_block}", feature_block),
            self._last_feature(),
        ]

    def dense_features(self) -> list[dict[str, Any]]:
        """The features that the released segmentation and detection backbones pass to their heads, fine to coarse.

        FAN-Hybrid: all its features. FAN-ViT, as released for 12 blocks: blocks 4, 7, 11 and the patch tokens after
        class attention, all of one scale; for other depths in proportion (ours).
        """
        if isinstance(self.patch_embed, HybridEmbed):
            return self.feature_info
        depth = len(self.blocks)
        blocks = (depth // 3, 2 * depth // 3 - 1, depth - 1)
        return [*(self._token_feature(f"blocks.{block}", block) for block in blocks), self._last_feature()]

    def _last_feature(self) -> dict[str, Any]:
        return self._token_feature(f"cls_attn_blocks.{len(self.cls_attn_blocks) - 1}", len(self.blocks) - 1)

    def _token_feature(self, module: str, block: int) -> dict[str, Any]:
        halvings = sum(b.downsample is not None for b in self.blocks[:block])
        return {
            "num_chs": self.blocks[block].norm1.normalized_shape[0],
            "reduction": self.patch_size * 2**halvings,
            "module": module,
        }

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove layers that the features at ``indices`` do not need, and return the indices as positive numbers."""
        take = take_indices(len(self.feature_info), indices)
        module = self.feature_info[max(take)]["module"]
        if module.startswith("blocks."):
            self.blocks = self.blocks[: int(module.removeprefix("blocks.")) + 1]
        elif module.startswith("patch_embed."):
            self.blocks = nn.ModuleList()
        if not module.startswith("cls_attn_blocks.") and prune_head:
            self.cls_attn_blocks, self.cls_token = nn.ModuleList(), None
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0)
        return take

    def _init_head(self, head: nn.Module) -> None:
        init_fan(head)

    def no_weight_decay(self) -> set[str]:
        """The class token, as released; timm itself exempts 1-D tensors and biases."""
        return {"cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for layer-wise learning rates."""
        return {
            "stem": r"^cls_token|pos_embed|patch_embed",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^cls_attn_blocks\.(\d+)", (1000,)), (r"^norm", (99999,))],
        }


def _check_channel_attention(name: str) -> None:
    if name not in CHANNEL_ATTENTION:
        hint = nearest(name, CHANNEL_ATTENTION)
        raise HoldfastError(f"channel_attention must be one of {', '.join(CHANNEL_ATTENTION)}, got {name!r}{hint}")


def init_fan(module: nn.Module) -> None:
    """Initialise weights as released: std 0.02 for linear layers, 0.47 for depthwise kernels."""
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, LPI):
        for convolution in (module.conv1, module.conv2):
            nn.init.normal_(convolution.weight, std=(2 / 9) ** 0.5)  # fan-out of a depthwise 3×3 kernel is 9
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- entry points


def _vit(dim: int, depth: int, heads: int, **rest: Any) -> dict[str, Any]:
    return {"embed_dim": dim, "depth": depth, "num_heads": heads, **rest}


def _hybrid(dim: int, depth: int, heads: int, trunk_depths: tuple[int, int], **rest: Any) -> dict[str, Any]:
    return _vit(dim, depth, heads, trunk_depths=trunk_depths, **rest)


_NANO = {"img_size": 32, "patch_size": 4, "cls_attn_layers": 1}

SIZES: dict[str, dict[str, Any]] = {
    "fan_tiny_12_p16_224": _vit(192, 12, 4),
    "fan_small_12_p16_224": _vit(384, 12, 8),
    "fan_base_18_p16_224": _vit(448, 18, 8),
    "fan_large_24_p16_224": _vit(480, 24, 10),
    "fan_small_12_p16_224_se_attn": _vit(384, 12, 8, channel_attention="se"),
    "fan_tiny_8_p4_hybrid": _hybrid(192, 8, 8, (3, 3)),
    "fan_small_12_p4_hybrid": _hybrid(384, 10, 8, (3, 3)),
    "fan_base_16_p4_hybrid": _hybrid(448, 16, 8, (3, 3)),
    "fan_large_16_p4_hybrid": _hybrid(480, 22, 10, (3, 5), feature_block=18, head_init_scale=0.001),
    "fan_Xlarge_16_p4_hybrid": _hybrid(528, 20, 11, (3, 7), tail=(768, 3, 16)),
    "fan_mini_4_p4_hybrid": _hybrid(128, 4, 4, (1, 1), trunk_dims=(32, 64)),
    "fan_nano": _vit(96, 6, 4, **_NANO),
    "fan_nano_hybrid": _hybrid(96, 5, 4, (1, 1), trunk_dims=(48, 96), trunk_stride=4, **_NANO),
}


def _cfg(name: str) -> dict[str, Any]:
    first = "patch_embed.backbone.stem.0" if "hybrid" in name else "patch_embed.proj.0.0"
    return nano_cfg(first_conv=first) if "nano" in name else imagenet_cfg(first_conv=first)


default_cfgs = generate_default_cfgs({name: _cfg(name) for name in SIZES})


def create_fan(variant: str, pretrained: bool, kwargs: dict[str, Any], **architecture: Any) -> FAN:
    """Build the FAN of that name; the user's ``kwargs`` override its architecture."""
    architecture = {**SIZES[variant.removeprefix("tap_")], **architecture, **kwargs}
    return build(FAN, variant, pretrained, architecture, features=4 if "trunk_depths" in architecture else 3)


@register_model
def fan_tiny_12_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-T-ViT: 12 blocks of width 192, 7.3 M parameters."""
    return create_fan("fan_tiny_12_p16_224", pretrained, kwargs)


@register_model
def fan_small_12_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-ViT: 12 blocks of width 384, 28.3 M parameters."""
    return create_fan("fan_small_12_p16_224", pretrained, kwargs)


@register_model
def fan_base_18_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-B-ViT: 18 blocks of width 448, 54.4 M parameters."""
    return create_fan("fan_base_18_p16_224", pretrained, kwargs)


@register_model
def fan_large_24_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-L-ViT: 24 blocks of width 480, 80.6 M parameters."""
    return create_fan("fan_large_24_p16_224", pretrained, kwargs)


@register_model
def fan_small_12_p16_224_se_attn(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-ViT with squeeze-and-excitation instead of ECA (FAN Table 6)."""
    return create_fan("fan_small_12_p16_224_se_attn", pretrained, kwargs)


@register_model
def fan_tiny_8_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-T-Hybrid: 8 blocks of width 192, 7.5 M parameters."""
    return create_fan("fan_tiny_8_p4_hybrid", pretrained, kwargs)


@register_model
def fan_small_12_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-Hybrid: 10 blocks of width 384 (not 12, despite the name), 26.1 M parameters."""
    return create_fan("fan_small_12_p4_hybrid", pretrained, kwargs)


@register_model
def fan_base_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-B-Hybrid: 16 blocks of width 448, 50.5 M parameters."""
    return create_fan("fan_base_16_p4_hybrid", pretrained, kwargs)


@register_model
def fan_large_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-L-Hybrid: 22 blocks (not 16, despite the name); its third feature map is from block 18."""
    return create_fan("fan_large_16_p4_hybrid", pretrained, kwargs)


@register_model
def fan_Xlarge_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-XL-Hybrid: 20 blocks, then three wider ones on a halved grid."""
    return create_fan("fan_Xlarge_16_p4_hybrid", pretrained, kwargs)


@register_model
def fan_mini_4_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """A FAN-Hybrid with the published strides 4, 8, 16 and 1.2 M parameters, to segment small images. Ours."""
    return create_fan("fan_mini_4_p4_hybrid", pretrained, kwargs)


@register_model
def fan_nano(pretrained: bool = False, **kwargs: Any) -> FAN:
    """A FAN-ViT for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    return create_fan("fan_nano", pretrained, kwargs)


@register_model
def fan_nano_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """A FAN-Hybrid for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    return create_fan("fan_nano_hybrid", pretrained, kwargs)


# ---------------------------------------------------------------------- published checkpoints


def published_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published keys → ours: an old name of the positional encoding, fused class attention."""
    renamed = {}
    for published, value in state.items():
        key = re.sub(r"^pos_embeder\.", "pos_embed.", published)
        if match := re.fullmatch(r"(cls_attn_blocks\.\d+\.attn)\.qkv\.(weight|bias)", key):
            for part, third in zip("qkv", value.chunk(3), strict=True):
                renamed[f"{match[1]}.{part}.{match[2]}"] = third
        else:
            renamed[key] = value
    return renamed
