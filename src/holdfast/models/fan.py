"""Fully attentional networks: FAN-ViT and FAN-Hybrid (Zhou et al., ICML 2022), as released.

Names, state-dict keys and arithmetic are the published ones; docs/fan.md lists where paper and code differ.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import DropPath, trunc_normal_
from timm.models import build_model_with_cfg, checkpoint, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.xcit import LPI, ClassAttentionBlock
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError, nearest
from holdfast.layers.channel_attention import CHANNEL_ATTENTION
from holdfast.layers.positional import FourierPosition
from holdfast.models.convnext_trunk import TRUNK_DIMS, ConvNeXtTrunk
from holdfast.models.image_checks import check_image

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class ConvPatchEmbed(nn.Module):
    """Tokens from 3×3 stride-2 convolutions that halve the image until one token is left per patch (FAN-ViT)."""

    def __init__(self, dim: int, *, patch_size: int, in_chans: int) -> None:
        super().__init__()
        # XCiT's widths; with patch 4 the first one is kept at a quarter
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
    """Tokens from a ConvNeXt trunk and a strided projection (FAN-Hybrid)."""

    def __init__(self, dim: int, *, trunk: ConvNeXtTrunk, stride: int = 2) -> None:
        super().__init__()
        self.backbone = trunk
        self.proj = nn.Conv2d(trunk.dims[-1], dim, stride, stride=stride)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Images (B, 3, H, W) → map (B, C, h, w), and the trunk's two maps."""
        maps = self.backbone(x)
        return self.proj(maps[-1]), maps


class TokenAttention(nn.Module):
    """Multi-head self-attention with separate query and key-value projections."""

    def __init__(self, dim: int, heads: int, *, qkv_bias: bool = True) -> None:
        super().__init__()
        self.num_heads = heads
        self.scale = (dim // heads) ** -0.5
        self.q = nn.Linear(dim, dim, bias=qkv_bias)
        self.kv = nn.Linear(dim, 2 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, C) → (B, N, C)."""
        q = self.q(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # B h N d
        k, v = self.kv(x).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TokenDownsample(nn.Module):
    """Halves the token grid (FAN-XL-Hybrid, after block 19)."""

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
    ) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = TokenAttention(dim, heads, qkv_bias=qkv_bias)
        self.norm2 = LayerNorm(dim)
        self.mlp = CHANNEL_ATTENTION[channel_attention](dim, heads, mlp_ratio=mlp_ratio)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.gamma1 = nn.Parameter(eta * torch.ones(dim))
        self.gamma2 = nn.Parameter(eta * torch.ones(dim))
        self.downsample: TokenDownsample | None = None  # applied by the network, so that block outputs keep their grid

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        """Tokens (B, N, C) of a height × width grid → (B, N, C)."""
        x = x + self.drop_path(self.gamma1 * self.attn(self.norm1(x)))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x), height, width))


class FAN(nn.Module):
    """A fully attentional network; the entry points below build the published sizes.

    Drop-path is one constant rate for every FAN block and zero elsewhere, as released. The class token joins after the
    FAN blocks and reads them through class attention (CaiT), which also doubles the patch tokens.
    """

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
        tap_block: int | None = None,
        head_init_scale: float = 1.0,
    ) -> None:
        """Build the network.

        Args:
            img_size: nominal image size; any size divisible by the stride runs.
            patch_size: pixels per token side.
            in_chans: image channels.
            num_classes: width of the head, 0 for none.
            embed_dim: token width.
            depth: number of FAN blocks of that width.
            num_heads: attention heads, also of the channel gates (FAN Fig. 7).
            mlp_ratio: widening of the value path.
            qkv_bias: biases in the attention's projections.
            drop_rate: dropout in front of the head.
            drop_path_rate: stochastic depth of every FAN block.
            eta: start value of the layer scales.
            cls_attn_layers: number of class-attention blocks.
            channel_attention: ``eca``, ``se`` or ``ca`` (FAN Table 6).
            pos_floor: False for weights of the released segmentation and detection backbones.
            trunk_depths: ConvNeXt blocks per stage; None for convolutional patch embedding (FAN-ViT).
            trunk_dims: the trunk's widths.
            trunk_stride: pixels per trunk output; the projection covers the rest of the patch.
            tail: (width, blocks, heads) of further blocks on a halved grid (FAN-XL).
            tap_block: block whose output is the third feature map of a Hybrid; the last one if None.
            head_init_scale: factor on the fresh head's weights.
        """
        super().__init__()
        _check_choices(channel_attention, embed_dim=embed_dim, num_heads=num_heads)
        self.img_size = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.patch_size, self.in_chans, self.num_classes = patch_size, in_chans, num_classes
        self.grad_checkpointing = False

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
        self.norm: nn.Module = LayerNorm(width)
        self.head_drop = nn.Dropout(drop_rate)
        self.head: nn.Module = nn.Linear(width, num_classes) if num_classes > 0 else nn.Identity()

        self.feature_info = self._describe_taps(depth - 1 if tap_block is None else tap_block)
        trunc_normal_(self.cls_token, std=0.02)
        self.apply(_init_fan)
        if num_classes > 0 and head_init_scale != 1:
            with torch.no_grad():
                for parameter in self.head.parameters():
                    parameter.mul_(head_init_scale)

    # ------------------------------------------------------------------ forward

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) → logits."""
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """Images → normalised tokens (B, 1 + N, C), the class token first."""
        return self._forward_tokens(x, taps={})

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens → logits (or the class token's features)."""
        x = self.head_drop(x[:, 0])
        return x if pre_logits else self.head(x)

    def _forward_tokens(self, x: Tensor, *, taps: dict[str, Tensor | None], stop_early: bool = False) -> Tensor:
        """The whole body. Every module named in ``taps`` leaves its output there, as a map (B, C, H, W)."""

        def note(name: str, value: Tensor, grid: tuple[int, int] | None = None) -> None:
            if name in taps:
                taps[name] = value if grid is None else value.transpose(1, 2).unflatten(2, grid)

        check_image(x, channels=self.in_chans, stride=self.patch_size)
        x, trunk_maps = self.patch_embed(x)
        for stage, trunk_map in enumerate(trunk_maps):
            note(f"patch_embed.backbone.stages.{stage}", trunk_map)
        height, width = x.shape[-2:]
        x = self.pos_embed(x.flatten(2).transpose(1, 2), height, width)

        for index, block in enumerate(self.blocks):
            if stop_early and None not in taps.values():
                return x
            x = self._run(block, x, height, width)
            note(f"blocks.{index}", x, (height, width))
            if block.downsample is not None:
                x, height, width = block.downsample(x, height, width)

        if self.cls_token is not None and not (stop_early and None not in taps.values()):
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
            for index, block in enumerate(self.cls_attn_blocks):
                x = self._run(block, x)
                note(f"cls_attn_blocks.{index}", x[:, 1:], (height, width))
        return self.norm(x)

    def _run(self, block: nn.Module, *inputs: Any) -> Tensor:
        if self.grad_checkpointing and not torch.jit.is_scripting():
            return checkpoint(block, *inputs)
        return block(*inputs)

    # ------------------------------------------------------------------ features

    def _describe_taps(self, tap_block: int) -> list[dict[str, Any]]:
        """What ``features_only`` and ``forward_intermediates`` can return.

        FAN-ViT: every block. FAN-Hybrid: strides 4, 8, 16, 16, that is both trunk stages, one FAN block and the patch
        tokens behind class attention, without a norm (the released segmentation backbone).
        """

        def token_tap(module: str, block: int) -> dict[str, Any]:
            halvings = sum(b.downsample is not None for b in self.blocks[:block])
            return {
                "num_chs": self.blocks[block].norm1.normalized_shape[0],
                "reduction": self.patch_size * 2**halvings,
                "module": module,
            }

        if not isinstance(self.patch_embed, HybridEmbed):
            return [token_tap(f"blocks.{i}", i) for i in range(len(self.blocks))]
        trunk = self.patch_embed.backbone
        return [
            *(
                {"num_chs": dim, "reduction": stride, "module": f"patch_embed.backbone.stages.{stage}"}
                for stage, (dim, stride) in enumerate(zip(trunk.dims, trunk.strides, strict=True))
            ),
            token_tap(f"blocks.{tap_block}", tap_block),
            token_tap(f"cls_attn_blocks.{len(self.cls_attn_blocks) - 1}", len(self.blocks) - 1),
        ]

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """timm's way to intermediate features; ``feature_info`` says what the indices mean.

        Args:
            x: images (B, 3, H, W).
            indices: which features, the last n if a number, all if None.
            norm: apply the final norm to the features that have its width.
            stop_early: do not run what lies behind the last feature asked for.
            output_fmt: ``NCHW`` or ``NLC``.
            intermediates_only: leave out the final tokens.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise HoldfastError(f"output_fmt must be 'NCHW' or 'NLC', got {output_fmt!r}")
        take, _ = feature_take_indices(len(self.feature_info), indices if indices is None else _as_int_or_list(indices))
        taps: dict[str, Tensor | None] = {self.feature_info[i]["module"]: None for i in take}
        x = self._forward_tokens(x, taps=taps, stop_early=stop_early and intermediates_only)
        features = [self._finish_feature(value, norm, output_fmt) for value in taps.values() if value is not None]
        return features if intermediates_only else (x, features)

    def _finish_feature(self, feature: Tensor, norm: bool, output_fmt: str) -> Tensor:
        tokens = feature.flatten(2).transpose(1, 2)
        if norm and tokens.shape[-1] == self.num_features:
            tokens = self.norm(tokens)
        if output_fmt == "NLC":
            return tokens
        return tokens.transpose(1, 2).unflatten(2, feature.shape[-2:]).contiguous()

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the features at ``indices`` do not need, and return the indices as positive numbers."""
        take, last = feature_take_indices(len(self.feature_info), _as_int_or_list(indices))
        module = self.feature_info[last]["module"]
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

    # ------------------------------------------------------------------ timm's other habits

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new head (0: none). FAN reads its class token; there is no other pooling."""
        if global_pool not in (None, "", "token"):
            raise HoldfastError(f"global_pool must be 'token' for FAN, got {global_pool!r}")
        reference = self.pos_embed.token_projection.weight
        self.num_classes = num_classes
        self.head = nn.Identity()
        if num_classes > 0:
            self.head = nn.Linear(self.num_features, num_classes).to(reference.device, reference.dtype)
            _init_fan(self.head)
        self.head.train(self.training)

    def no_weight_decay(self) -> set[str]:
        """As released: 1-D tensors and biases are timm's own rule, so only the class token needs naming."""
        return {"cls_token"}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for layer-wise learning rates."""
        return {
            "stem": r"^cls_token|pos_embed|patch_embed",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^cls_attn_blocks\.(\d+)", (1000,)), (r"^norm", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of keeping them."""
        self.grad_checkpointing = enable


def _as_int_or_list(indices: int | Sequence[int]) -> int | list[int]:
    return indices if isinstance(indices, int) else list(indices)


def _check_choices(channel_attention: str, *, embed_dim: int, num_heads: int) -> None:
    if channel_attention not in CHANNEL_ATTENTION:
        hint = nearest(channel_attention, CHANNEL_ATTENTION)
        raise HoldfastError(
            f"channel_attention must be one of {', '.join(CHANNEL_ATTENTION)}, got {channel_attention!r}{hint}"
        )
    if num_heads < 1 or embed_dim % num_heads:
        raise HoldfastError(f"num_heads must divide the width {embed_dim}, got {num_heads}")


def _init_fan(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, LPI):
        for convolution in (module.conv1, module.conv2):
            nn.init.normal_(convolution.weight, std=(2 / 9) ** 0.5)  # fan-out of a depthwise 3×3 kernel is 9
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- entry points


def _cfg(**overrides: Any) -> dict[str, Any]:
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": None,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj.0.0",
        "classifier": "head",
        **overrides,
    }


def _nano_cfg(**overrides: Any) -> dict[str, Any]:
    return _cfg(input_size=(3, 32, 32), num_classes=10, **overrides)


_TRUNK_STEM = {"first_conv": "patch_embed.backbone.stem.0"}

default_cfgs = generate_default_cfgs(
    {
        "fan_tiny_12_p16_224": _cfg(),
        "fan_small_12_p16_224": _cfg(),
        "fan_base_18_p16_224": _cfg(),
        "fan_large_24_p16_224": _cfg(),
        "fan_small_12_p16_224_se_attn": _cfg(),
        "fan_tiny_8_p4_hybrid": _cfg(**_TRUNK_STEM),
        "fan_small_12_p4_hybrid": _cfg(**_TRUNK_STEM),
        "fan_base_16_p4_hybrid": _cfg(**_TRUNK_STEM),
        "fan_large_16_p4_hybrid": _cfg(**_TRUNK_STEM),
        "fan_Xlarge_16_p4_hybrid": _cfg(**_TRUNK_STEM),
        "fan_nano": _nano_cfg(),
        "fan_nano_hybrid": _nano_cfg(**_TRUNK_STEM),
    }
)


def _create_fan(variant: str, pretrained: bool, kwargs: dict[str, Any], **architecture: Any) -> FAN:
    out_indices = kwargs.pop("out_indices", 4 if "trunk_depths" in architecture else 3)
    return build_model_with_cfg(
        FAN,
        variant,
        pretrained,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **{**architecture, **kwargs},
    )


@register_model
def fan_tiny_12_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-T-ViT."""
    return _create_fan("fan_tiny_12_p16_224", pretrained, kwargs, embed_dim=192, depth=12, num_heads=4)


@register_model
def fan_small_12_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-ViT."""
    return _create_fan("fan_small_12_p16_224", pretrained, kwargs, embed_dim=384, depth=12, num_heads=8)


@register_model
def fan_base_18_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-B-ViT."""
    return _create_fan("fan_base_18_p16_224", pretrained, kwargs, embed_dim=448, depth=18, num_heads=8)


@register_model
def fan_large_24_p16_224(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-L-ViT."""
    return _create_fan("fan_large_24_p16_224", pretrained, kwargs, embed_dim=480, depth=24, num_heads=10)


@register_model
def fan_small_12_p16_224_se_attn(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-ViT with squeeze-and-excitation instead of ECA (FAN Table 6)."""
    size = {"embed_dim": 384, "depth": 12, "num_heads": 8}
    return _create_fan("fan_small_12_p16_224_se_attn", pretrained, kwargs, channel_attention="se", **size)


@register_model
def fan_tiny_8_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-T-Hybrid."""
    size = {"embed_dim": 192, "depth": 8, "num_heads": 8, "trunk_depths": (3, 3)}
    return _create_fan("fan_tiny_8_p4_hybrid", pretrained, kwargs, **size)


@register_model
def fan_small_12_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-S-Hybrid: ten blocks, whatever its name says."""
    size = {"embed_dim": 384, "depth": 10, "num_heads": 8, "trunk_depths": (3, 3)}
    return _create_fan("fan_small_12_p4_hybrid", pretrained, kwargs, **size)


@register_model
def fan_base_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-B-Hybrid."""
    size = {"embed_dim": 448, "depth": 16, "num_heads": 8, "trunk_depths": (3, 3)}
    return _create_fan("fan_base_16_p4_hybrid", pretrained, kwargs, **size)


@register_model
def fan_large_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-L-Hybrid: 22 blocks; its third feature map comes from block 18."""
    size = {"embed_dim": 480, "depth": 22, "num_heads": 10, "trunk_depths": (3, 5)}
    return _create_fan("fan_large_16_p4_hybrid", pretrained, kwargs, tap_block=18, head_init_scale=0.001, **size)


@register_model
def fan_Xlarge_16_p4_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """FAN-XL-Hybrid: 20 blocks, then three wider ones on a halved grid."""
    size = {"embed_dim": 528, "depth": 20, "num_heads": 11, "trunk_depths": (3, 7), "tail": (768, 3, 16)}
    return _create_fan("fan_Xlarge_16_p4_hybrid", pretrained, kwargs, **size)


@register_model
def fan_nano(pretrained: bool = False, **kwargs: Any) -> FAN:
    """A FAN-ViT for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 6, "num_heads": 4, "cls_attn_layers": 1}
    return _create_fan("fan_nano", pretrained, kwargs, **size)


@register_model
def fan_nano_hybrid(pretrained: bool = False, **kwargs: Any) -> FAN:
    """A FAN-Hybrid for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 5, "num_heads": 4, "cls_attn_layers": 1}
    trunk = {"trunk_depths": (1, 1), "trunk_dims": (48, 96), "trunk_stride": 4}
    return _create_fan("fan_nano_hybrid", pretrained, kwargs, **size, **trunk)
