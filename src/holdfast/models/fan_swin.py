"""FAN-Swin: shifted-window token attention with FAN's channel attention (Zhou et al., ICML 2022), as released.

Stages 1 to 3 have channel attention over the whole grid, stage 4 keeps a plain MLP; there is no layer scale, and the
depthwise branch has no residual. Windows, shifts and merging are timm's Swin.
"""

from collections.abc import Sequence
from typing import Any

import torch
from timm.layers import PatchEmbed
from timm.models import build_model_with_cfg, checkpoint, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models.swin_transformer import PatchMerging, SwinTransformerBlock
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.layers.channel_attention import EfficientChannelAttention
from holdfast.models.fan import _as_int_or_list, _cfg, _init_fan
from holdfast.models.image_checks import check_image


class FANSwinBlock(SwinTransformerBlock):
    """timm's Swin block with channel attention for its MLP, and the published state-dict entries."""

    def __init__(self, dim: int, *, channel_attention: bool, num_heads: int, mlp_ratio: float, **swin: Any) -> None:
        super().__init__(dim, num_heads=num_heads, mlp_ratio=mlp_ratio, **swin)
        if channel_attention:
            self.mlp: nn.Module = EfficientChannelAttention(dim, num_heads, mlp_ratio=mlp_ratio, residual=False)
        self.attn.register_buffer("relative_position_index", self.attn.relative_position_index, persistent=True)

    def _init_buffers(self) -> None:
        super()._init_buffers()
        self.register_buffer("attn_mask", self.attn_mask, persistent=True)  # published files hold it

    def _calc_window_shift(self, target_window_size: Any, target_shift_size: Any = None) -> Any:
        """One square window; no shift where it covers the shorter side (timm now decides per axis)."""
        window, shift = int(target_window_size), int(target_shift_size or 0)
        shortest = min(self.input_resolution)
        if shortest <= window:
            window, shift = shortest, 0
        return (window, window), (shift, shift)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, H, W, C) → the same."""
        height, width = x.shape[1:3]
        x = x + self.drop_path1(self._attn(self.norm1(x)))
        x = x.flatten(1, 2)  # B N C
        y = self.norm2(x)
        y = self.mlp(y, height, width) if isinstance(self.mlp, EfficientChannelAttention) else self.mlp(y)
        return (x + self.drop_path2(y)).unflatten(1, (height, width))


class FANSwinStage(nn.Module):
    """Blocks of one resolution, and the merging behind them."""

    def __init__(self, dim: int, *, blocks: Sequence[FANSwinBlock], merge: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = PatchMerging(dim) if merge else None


class FANSwin(nn.Module):
    """A FAN-Swin for one image size; the entry points below build the published ones."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> None:
        """Build the network.

        Args:
            img_size: image size, fixed when the model is built: windows and shift masks depend on it.
            patch_size: pixels per token side of the first stage.
            in_chans: image channels.
            num_classes: width of the head, 0 for none.
            embed_dim: token width of the first stage, doubled by every next one.
            depths: blocks per stage.
            num_heads: heads per stage.
            window_size: tokens per window side.
            mlp_ratio: widening of the value path.
            drop_rate: dropout in front of the head.
            drop_path_rate: stochastic depth of the last block, rising linearly from 0.
        """
        super().__init__()
        self.img_size = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.in_chans, self.num_classes = in_chans, num_classes
        self.stride = patch_size * 2 ** (len(depths) - 1)
        self.grad_checkpointing = False
        height, width = self.img_size
        if height % self.stride or width % self.stride:
            raise HoldfastError(f"img_size must be divisible by {self.stride}, got {height}×{width}")
        self.patch_embed = PatchEmbed(
            self.img_size, patch_size, in_chans, embed_dim, norm_layer=nn.LayerNorm, output_fmt="NHWC"
        )
        drop_path_step = drop_path_rate / max(sum(depths) - 1, 1)
        self.layers = nn.ModuleList()
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            last = stage == len(depths) - 1
            dim, reduction = embed_dim * 2**stage, patch_size * 2**stage
            blocks = [
                FANSwinBlock(
                    dim,
                    channel_attention=not last,
                    num_heads=heads,
                    mlp_ratio=mlp_ratio,
                    input_resolution=(height // reduction, width // reduction),
                    window_size=window_size,
                    shift_size=window_size // 2 if index % 2 else 0,
                    drop_path=drop_path_step * (sum(depths[:stage]) + index),
                )
                for index in range(depth)
            ]
            self.layers.append(FANSwinStage(dim, blocks=blocks, merge=not last))
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dim * 2 ** (len(depths) - 1)
        self.norm: nn.Module = nn.LayerNorm(self.num_features)
        self.head_drop = nn.Dropout(drop_rate)
        self.head: nn.Module = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.feature_info = [
            {"num_chs": embed_dim * 2**stage, "reduction": patch_size * 2**stage, "module": f"layers.{stage}"}
            for stage in range(len(depths))
        ]
        self.apply(_init_fan)

    # ------------------------------------------------------------------ forward

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) → logits."""
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """Images → normalised tokens (B, H/32, W/32, C)."""
        return self._forward_stages(x, stages=len(self.layers))[0]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens → logits (or their mean)."""
        x = self.head_drop(x.mean(dim=(1, 2)))
        return x if pre_logits else self.head(x)

    def _forward_stages(self, x: Tensor, *, stages: int) -> tuple[Tensor, list[Tensor]]:
        """The final tokens, and every stage's tokens before they are merged, (B, H, W, C)."""
        check_image(x, channels=self.in_chans, stride=self.stride)
        if x.shape[-2:] != self.img_size:
            built, came = "×".join(map(str, self.img_size)), "×".join(map(str, x.shape[-2:]))
            raise HoldfastError(f"this FAN-Swin was built for images of height × width {built}, got {came}; pass img_size=")
        x = self.patch_embed(x)
        outputs = []
        for layer in self.layers[:stages]:
            for block in layer.blocks:
                x = checkpoint(block, x) if self.grad_checkpointing and not torch.jit.is_scripting() else block(x)
            outputs.append(x)
            if layer.downsample is not None:
                x = layer.downsample(x)
        return self.norm(x) if stages == len(self.layers) else x, outputs

    # ------------------------------------------------------------------ features

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """timm's way to intermediate features: the stages' tokens before merging, strides 4 to 32.

        Args:
            x: images (B, 3, H, W).
            indices: which stages, the last n if a number, all if None.
            norm: apply the final norm to the last stage.
            stop_early: do not run what lies behind the last stage asked for.
            output_fmt: ``NCHW`` or ``NHWC``.
            intermediates_only: leave out the final tokens.
        """
        if output_fmt not in ("NCHW", "NHWC"):
            raise HoldfastError(f"output_fmt must be 'NCHW' or 'NHWC', got {output_fmt!r}")
        take, last = feature_take_indices(len(self.feature_info), indices if indices is None else _as_int_or_list(indices))
        x, outputs = self._forward_stages(x, stages=last + 1 if stop_early and intermediates_only else len(self.layers))
        if norm and len(outputs) == len(self.feature_info):
            outputs[-1] = self.norm(outputs[-1])
        features = [outputs[i].permute(0, 3, 1, 2).contiguous() if output_fmt == "NCHW" else outputs[i] for i in take]
        return features if intermediates_only else (x, features)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the stages at ``indices`` do not need, and return the indices as positive numbers."""
        take, last = feature_take_indices(len(self.feature_info), _as_int_or_list(indices))
        self.layers = self.layers[: last + 1]
        self.layers[-1].downsample = None
        if prune_norm or last + 1 < len(self.feature_info):
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0)
        return take

    # ------------------------------------------------------------------ timm's other habits

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new head (0: none). FAN-Swin averages its tokens; there is no other pooling."""
        if global_pool not in (None, "", "avg"):
            raise HoldfastError(f"global_pool must be 'avg' for FAN-Swin, got {global_pool!r}")
        reference = self.patch_embed.proj.weight
        self.num_classes = num_classes
        self.head = nn.Identity()
        if num_classes > 0:
            self.head = nn.Linear(self.num_features, num_classes).to(reference.device, reference.dtype)
            _init_fan(self.head)
        self.head.train(self.training)

    def no_weight_decay(self) -> set[str]:
        """As released: nothing beyond timm's own rule (1-D tensors and biases); position tables are decayed."""
        return set()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layer groups for layer-wise learning rates."""
        return {
            "stem": r"^patch_embed",
            "blocks": r"^layers\.(\d+)"
            if coarse
            else [
                (r"^layers\.(\d+)\.downsample", (0,)),
                (r"^layers\.(\d+)\.blocks\.(\d+)", None),
                (r"^norm", (99999,)),
            ],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of keeping them."""
        self.grad_checkpointing = enable


# ---------------------------------------------------------------------- entry points


def _swin_cfg() -> dict[str, Any]:
    return _cfg(crop_pct=0.9, first_conv="patch_embed.proj", fixed_input_size=True)


default_cfgs = generate_default_cfgs(
    {f"fan_swin_{size}_patch4_window7_224": _swin_cfg() for size in ("tiny", "small", "base", "large")}
)


def _create_fan_swin(variant: str, pretrained: bool, kwargs: dict[str, Any], **architecture: Any) -> FANSwin:
    return build_model_with_cfg(
        FANSwin,
        variant,
        pretrained,
        feature_cfg={"out_indices": kwargs.pop("out_indices", (0, 1, 2, 3)), "feature_cls": "getter"},
        **{**architecture, **kwargs},
    )


@register_model
def fan_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-T-Swin."""
    size = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
    return _create_fan_swin("fan_swin_tiny_patch4_window7_224", pretrained, kwargs, **size)


@register_model
def fan_swin_small_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-S-Swin."""
    size = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
    return _create_fan_swin("fan_swin_small_patch4_window7_224", pretrained, kwargs, **size)


@register_model
def fan_swin_base_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-B-Swin."""
    size = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
    return _create_fan_swin("fan_swin_base_patch4_window7_224", pretrained, kwargs, **size)


@register_model
def fan_swin_large_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-L-Swin."""
    size = {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)}
    return _create_fan_swin("fan_swin_large_patch4_window7_224", pretrained, kwargs, **size)
