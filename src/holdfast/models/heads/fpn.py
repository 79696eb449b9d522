"""Feature pyramids of detectors, strides 4 to 64, on any encoder.

FAN-Hybrid's four maps are the published ones (Zhou et al., ICML 2022, released detection backbone). Neither paper nor
code describes detectors on FAN-ViT and FAN-Swin: for those, and for any other timm encoder, we use ViTDet's simple
pyramid (Li et al., ECCV 2022) and the usual four stages.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from timm.layers import LayerNorm2d
from torch import Tensor, nn
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from holdfast.errors import HoldfastError
from holdfast.models.fan import FAN, HybridEmbed

STRIDES = (4, 8, 16, 32)
ONLY_FOR_THE_CLASS = re.compile(r"cls_token|cls_attn_blocks\.\d+\.(attn\.|mlp\.|gamma2)")
PUBLISHED_TOP = 768  # width of FAN-Hybrid's fourth map for all model sizes


class FanHybridLevels(nn.Module):
    """Both trunk stages, one FAN block, and the patch tokens after class attention, halved by a convolution.

    As released: no norm on any map, un-floored positional encoding of the padded grid. Parameters that only affect the
    class token have no effect on the maps and are frozen.
    """

    def __init__(self, encoder: FAN, *, top: int = PUBLISHED_TOP) -> None:
        super().__init__()
        encoder.pos_embed.floor = False
        encoder.reset_classifier(0)
        encoder.norm = nn.Identity()
        self.encoder = encoder
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(not ONLY_FOR_THE_CLASS.match(name))
        channels = [info["num_chs"] for info in encoder.feature_info]
        strides = [info["reduction"] for info in encoder.feature_info]
        self.learnable_downsample = nn.Conv2d(channels[3], top, 3, stride=2, padding=1)
        self.channels = (*channels[:3], top)
        self.strides = check_strides((*strides[:3], 2 * strides[3]), encoder)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) → maps of stride 4, 8, 16 and 32."""
        *maps, top = self.encoder.forward_intermediates(images, intermediates_only=True)
        return [*maps, self.learnable_downsample(top)]


class StageLevels(nn.Module):
    """The last map of each of the last four stages, with its own LayerNorm if the encoder has such norms."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = without_head(encoder)
        last_of = {info["reduction"]: index for index, info in enumerate(feature_info(encoder))}
        self.indices = list(last_of.values())[-4:]
        chosen = [feature_info(encoder)[index] for index in self.indices]
        self.channels = tuple(info["num_chs"] for info in chosen)
        self.strides = check_strides([info["reduction"] for info in chosen], encoder)
        normalised = any(isinstance(module, nn.LayerNorm) for module in encoder.modules())
        self.norms = nn.ModuleList([LayerNorm2d(width) if normalised else nn.Identity() for width in self.channels])

    def forward(self, images: Tensor) -> list[Tensor]:
        """Images (B, 3, H, W) → one map per stage."""
        maps = intermediates(self.encoder, images, self.indices)
        return [norm(level) for norm, level in zip(self.norms, maps, strict=True)]


class WithFPN(nn.Module):
    """Four maps and a feature pyramid network on them (Lin et al., CVPR 2017); the fifth map subsamples the fourth."""

    def __init__(self, levels: FanHybridLevels | StageLevels, *, channels: int) -> None:
        super().__init__()
        self.levels = levels
        self.fpn = FeaturePyramidNetwork(list(levels.channels), channels, extra_blocks=LastLevelMaxPool())
        for module in self.fpn.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
        self.out_channels = channels
        self.strides = (*levels.strides, 2 * levels.strides[-1])

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) → five maps of equal width, as torchvision's detectors expect."""
        return self.fpn({str(level): features for level, features in enumerate(self.levels(images))})


class SimplePyramid(nn.Module):
    """ViTDet's pyramid: every level from the last block's map alone, by deconvolution or pooling."""

    strides = (*STRIDES, 64)

    def __init__(self, encoder: nn.Module, *, channels: int) -> None:
        super().__init__()
        self.encoder = without_head(encoder)
        last = feature_info(encoder)[-1]
        width, stride = last["num_chs"], last["reduction"]
        if stride not in STRIDES:
            raise HoldfastError(
                f"encoder must have patches of {', '.join(map(str, STRIDES))} px for a pyramid, got {stride}"
            )
        self.scales = nn.ModuleList([_rescale_layer(width, stride, wanted) for wanted in STRIDES])
        self.projections = nn.ModuleList(
            [_project_layer(_rescaled_width(width, stride, wanted), channels) for wanted in STRIDES]
        )
        self.top = LastLevelMaxPool()
        self.out_channels = channels

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) → five maps of equal width, as torchvision's detectors expect."""
        (features,) = intermediates(self.encoder, images, [len(feature_info(self.encoder)) - 1])
        maps = [project(scale(features)) for scale, project in zip(self.scales, self.projections, strict=True)]
        maps, _ = self.top(maps, maps, [""] * len(maps))
        return {str(level): features for level, features in enumerate(maps)}


def feature_pyramid(encoder: nn.Module, *, channels: int = 256, top: int = PUBLISHED_TOP) -> nn.Module:
    """The feature pyramid for an encoder: FAN-Hybrid's as published, four stages, or one map (ViTDet).

    Args:
        encoder: one of our models or of timm's; its classifier is removed.
        channels: width of all five maps.
        top: width of FAN-Hybrid's fourth map before the FPN.
    """
    if isinstance(encoder, FAN) and isinstance(encoder.patch_embed, HybridEmbed):
        return WithFPN(FanHybridLevels(encoder, top=top), channels=channels)
    if len({info["reduction"] for info in feature_info(encoder)}) >= 4:
        return WithFPN(StageLevels(encoder), channels=channels)
    return SimplePyramid(encoder, channels=channels)


def feature_info(encoder: nn.Module) -> Sequence[dict[str, Any]]:
    """timm's ``feature_info`` of an encoder."""
    info: Any = getattr(encoder, "feature_info", None)
    if info is None or not hasattr(encoder, "forward_intermediates"):
        raise HoldfastError(
            f"encoder must be a timm model with feature_info and forward_intermediates, got {type(encoder).__name__}"
        )
    return list(info)


def intermediates(encoder: Any, images: Tensor, indices: list[int]) -> list[Tensor]:
    """The maps at these indices; later layers do not run."""
    return encoder.forward_intermediates(images, indices=indices, intermediates_only=True, stop_early=True)


def without_head(encoder: Any) -> Any:
    """The encoder without its classifier's layers, so that every remaining parameter gets a gradient."""
    encoder.prune_intermediate_layers([len(feature_info(encoder)) - 1], prune_norm=True)
    return encoder


def check_strides(strides: Sequence[int], encoder: nn.Module) -> tuple[int, ...]:
    """Raise an error for strides that do not double: an FPN adds each map to the next finer one."""
    if any(coarse != 2 * fine for fine, coarse in pairwise(strides)):
        raise HoldfastError(
            f"the strides of the encoder's maps must double, got {', '.join(map(str, strides))} of "
            f"{type(encoder).__name__}; for fan_nano_hybrid set patch_size=16 and trunk_stride=8"
        )
    return tuple(strides)


def _halvings(stride: int, wanted: int) -> int:
    """The number of times to double the map (or, if negative, to halve it)."""
    return (stride // wanted).bit_length() - 1 if stride >= wanted else 1 - (wanted // stride).bit_length()


def _rescaled_width(width: int, stride: int, wanted: int) -> int:
    return width >> max(0, _halvings(stride, wanted))


def _rescale_layer(width: int, stride: int, wanted: int) -> nn.Module:
    steps = _halvings(stride, wanted)
    if steps <= 0:
        return nn.MaxPool2d(2**-steps) if steps else nn.Identity()
    layers: list[nn.Module] = []
    for step in range(steps):
        layers.append(nn.ConvTranspose2d(width >> step, width >> (step + 1), 2, stride=2))
        if step + 1 < steps:
            layers += [LayerNorm2d(width >> (step + 1)), nn.GELU()]
    return nn.Sequential(*layers)


def _project_layer(width: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(width, channels, 1, bias=False),
        LayerNorm2d(channels),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        LayerNorm2d(channels),
    )
