"""Heads for segmentation and detection."""

from collections.abc import Callable, Sequence

from torch import nn

from holdfast.errors import HoldfastError, nearest
from holdfast.models.heads.segformer import SegFormerHead
from holdfast.models.heads.setr import SETRHead

SEGMENTATION_HEADS: dict[str, Callable[..., nn.Module]] = {"segformer": SegFormerHead, "setr": SETRHead}


def segmentation_head(name: str, channels: Sequence[int], classes: int, *, width: int, dropout: float) -> nn.Module:
    """A new segmentation head by name, for maps with these channels, fine to coarse."""
    if name not in SEGMENTATION_HEADS:
        hint = nearest(name, SEGMENTATION_HEADS)
        raise HoldfastError(f"head must be one of {', '.join(SEGMENTATION_HEADS)}, got {name!r}{hint}")
    return SEGMENTATION_HEADS[name](channels, classes, width=width, dropout=dropout)
