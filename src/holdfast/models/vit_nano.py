"""A plain vision transformer of nano size as a baseline: timm's ViT, without BatchNorm."""

from typing import Any

from timm.models import generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer

from holdfast.models.backbone import build, nano_cfg

default_cfgs = generate_default_cfgs({"vit_nano": nano_cfg(first_conv="patch_embed.proj", fixed_input_size=True)})


@register_model
def vit_nano(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """A ViT for 32-px images: 8×8 tokens, 0.9 M parameters. Ours, not published."""
    size = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 8, "num_heads": 4}
    return build(VisionTransformer, "vit_nano", pretrained, {**size, **kwargs}, features=3)
