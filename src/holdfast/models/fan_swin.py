"""FAN-Swin: shifted-window token attention with FAN's channel attention (Zhou et al., ICML 2022), as released.

Stages 1 to 3 have channel attention over the whole grid, stage 4 keeps a plain MLP; there is no layer scale, and the
depthwise branch has no residual. Windows, shifts and merging are timm's Swin.
"""

from collections.abc import Sequence
from typing import Any

from timm.layers import PatchEmbed
from timm.models import generate_default_cfgs, register_model
from timm.models.swin_transformer import PatchMerging, SwinTransformerBlock
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.layers.channel_attention import EfficientChannelAttention
from holdfast.models.backbone import Backbone, Wanted, as_pair, build, check_image, imagenet_cfg, take_indices
from holdfast.models.fan import init_fan


class FANSwinBlock(SwinTransformerBlock):
    """timm's Swin block with channel attention instead of the MLP, and the published state-dict keys."""

    def __init__(self, dim: int, *, channel_attention: bool, num_heads: int, mlp_ratio: float, **swin: Any) -> None:
        super().__init__(dim, num_heads=num_heads, mlp_ratio=mlp_ratio, **swin)
        if channel_attention:
            self.mlp: Any = EfficientChannelAttention(dim, num_heads, mlp_ratio=mlp_ratio, residual=False)
        index = self.attn.get_buffer("relative_position_index")
        self.attn.register_buffer("relative_position_index", index, persistent=True)

    def _init_buffers(self) -> None:
        super()._init_buffers()
        mask: Any = self.attn_mask
        self.register_buffer("attn_mask", mask, persistent=True)  # in the published files

    def _calc_window_shift(self, target_window_size: Any, target_shift_size: Any = None) -> Any:
        """One square window, without shift if it covers the shorter side (current timm decides per axis)."""
        window, shift = int(target_window_size), int(target_shift_size or 0)
        shortest = min(as_pair(self.input_resolution))
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
    """Blocks of one resolution, and the patch merging after them."""

    def __init__(self, dim: int, *, blocks: Sequence[FANSwinBlock], merge: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = PatchMerging(dim) if merge else None


class FANSwin(Backbone):
    """A FAN-Swin for one image size; the entry points below build the published ones."""

    pooling = "avg"

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
        drop_path_rate: float = 0.1,
    ) -> None:
        """Build the network.

        Args:
            img_size: image size, fixed when the model is built: windows and shift masks depend on it.
            patch_size: patch size of the first stage in pixels.
            in_chans: image channels.
            num_classes: width of the head, 0 for none.
            embed_dim: token width of the first stage, doubled in each following one.
            depths: blocks per stage.
            num_heads: heads per stage.
            window_size: tokens per window side.
            mlp_ratio: expansion ratio of the value path.
            drop_rate: dropout before the head.
            drop_path_rate: stochastic depth of the last block, rising linearly from 0; 0.1 is the release's default.
        """
        super().__init__()
        self.img_size = as_pair(img_size)
        self.in_chans, self.num_classes = in_chans, num_classes
        self.stride = patch_size * 2 ** (len(depths) - 1)
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
        self.norm = nn.LayerNorm(self.num_features)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = self._new_head()
        self.feature_info = [
            {"num_chs": embed_dim * 2**stage, "reduction": patch_size * 2**stage, "module": f"layers.{stage}"}
            for stage in range(len(depths))
        ]
        self.apply(init_fan)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Tokens (B, H, W, C) → logits (or their mean)."""
        x = self.head_drop(x.mean(dim=(1, 2)))
        return x if pre_logits else self.head(x)

    def _forward_body(self, x: Tensor, wanted: Wanted) -> Tensor:
        """Images → normalised tokens (B, H/32, W/32, C)."""
        check_image(x, channels=self.in_chans, stride=self.stride)
        if x.shape[-2:] != self.img_size:
            built, came = "×".join(map(str, self.img_size)), "×".join(map(str, x.shape[-2:]))
            raise HoldfastError(
                f"this FAN-Swin was built for images of height × width {built}, got {came}; set img_size"
            )
        x = self.patch_embed(x)
        for stage, layer in enumerate(self.layers):
            if wanted.complete:
                return x
            for block in layer.blocks:
                x = self._run(block, x)
            wanted.note(f"layers.{stage}", x.permute(0, 3, 1, 2))  # before patch merging
            if layer.downsample is not None:
                x = layer.downsample(x)
        return self.norm(x)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove layers that the stages at ``indices`` do not need, and return the indices as positive numbers."""
        take = take_indices(len(self.feature_info), indices)
        self.layers = self.layers[: max(take) + 1]
        self.layers[-1].downsample = None  # type: ignore[assignment]
        if prune_norm or len(self.layers) < len(self.feature_info):
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0)
        return take

    def _init_head(self, head: nn.Module) -> None:
        init_fan(head)

    def no_weight_decay(self) -> set[str]:
        """None, as released: timm exempts 1-D tensors and biases, and position tables are decayed."""
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


# ---------------------------------------------------------------------- entry points


SIZES: dict[str, dict[str, Any]] = {
    "fan_swin_tiny_patch4_window7_224": {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
    "fan_swin_small_patch4_window7_224": {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)},
    "fan_swin_base_patch4_window7_224": {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)},
    "fan_swin_large_patch4_window7_224": {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)},
}

default_cfgs = generate_default_cfgs(
    {name: imagenet_cfg(crop_pct=0.9, first_conv="patch_embed.proj", fixed_input_size=True) for name in SIZES}
)


def create_fan_swin(variant: str, pretrained: bool, kwargs: dict[str, Any]) -> FANSwin:
    """Build the FAN-Swin of that name; the user's ``kwargs`` override its architecture."""
    return build(FANSwin, variant, pretrained, {**SIZES[variant], **kwargs}, features=(0, 1, 2, 3))


@register_model
def fan_swin_tiny_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-T-Swin: depths 2, 2, 6, 2, 29.5 M parameters."""
    return create_fan_swin("fan_swin_tiny_patch4_window7_224", pretrained, kwargs)


@register_model
def fan_swin_small_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-S-Swin: depths 2, 2, 18, 2, 53.1 M parameters."""
    return create_fan_swin("fan_swin_small_patch4_window7_224", pretrained, kwargs)


@register_model
def fan_swin_base_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-B-Swin: depths 2, 2, 18, 2, 93.6 M parameters."""
    return create_fan_swin("fan_swin_base_patch4_window7_224", pretrained, kwargs)


@register_model
def fan_swin_large_patch4_window7_224(pretrained: bool = False, **kwargs: Any) -> FANSwin:
    """FAN-L-Swin: depths 2, 2, 18, 2, 208.9 M parameters."""
    return create_fan_swin("fan_swin_large_patch4_window7_224", pretrained, kwargs)
