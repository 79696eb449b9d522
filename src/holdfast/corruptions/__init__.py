"""What goes wrong with images: the 19 corruptions of ImageNet-C and the sequences of ImageNet-P.

Exact, seedable by image, quick, and useful alone: NumPy, SciPy, OpenCV and Pillow, no torch.

    from holdfast.corruptions import corrupt, corrupt_batch
    foggy = corrupt(image, "fog", severity=3, rng=0)
"""

from holdfast.corruptions.api import corrupt, corrupt_batch
from holdfast.corruptions.catalog import (
    ALL,
    EXTRA,
    GROUPS,
    KINDS,
    PRESETS,
    SEVERITIES,
    STANDARD,
    Kind,
    Preset,
    catalog_table,
    parameters,
    select,
)
from holdfast.corruptions.draws import Draws, LegacyDraws, StreamDraws, keyed
from holdfast.corruptions.textures import recorded_name, texture_source

__all__ = [
    "ALL",
    "EXTRA",
    "GROUPS",
    "KINDS",
    "PRESETS",
    "SEVERITIES",
    "STANDARD",
    "Draws",
    "Kind",
    "LegacyDraws",
    "Preset",
    "StreamDraws",
    "catalog_table",
    "corrupt",
    "corrupt_batch",
    "keyed",
    "parameters",
    "recorded_name",
    "select",
    "texture_source",
]
