"""Image corruptions: the 19 kinds of ImageNet-C, the 15 of C-bar and the perturbation sequences of ImageNet-P.

Exact, seeded per image and fast. The package works on its own: it needs NumPy, SciPy, OpenCV and Pillow, not torch.

    from holdfast.corruptions import corrupt, corrupt_batch
    foggy = corrupt(image, "fog", severity=3, rng=0)

`register_corruption` adds a corruption of your own.
"""

from holdfast.corruptions.apply import FUNCTIONS, corrupt, corrupt_batch, prepare
from holdfast.corruptions.c_bar_severities import C_BAR_SUITES
from holdfast.corruptions.custom import know, register, register_corruption, registered
from holdfast.corruptions.frost_textures import recorded_name, texture_source
from holdfast.corruptions.rng import Draws, LegacyDraws, StreamDraws, keyed
from holdfast.corruptions.sequences import (
    EXTRA_SEQUENCES,
    SEQUENCE_PRESETS,
    SEQUENCES,
    TEST_SEQUENCES,
    frame_count,
    perturb,
)
from holdfast.corruptions.severities import (
    ALL,
    EXTRA,
    GROUPS,
    KINDS,
    PRESETS,
    PUBLISHED,
    SEVERITIES,
    STANDARD,
    Kind,
    Preset,
    catalog_table,
    own_kinds,
    parameters,
    select,
)
from holdfast.corruptions.transform import RandomCorruption

__all__ = [
    "ALL",
    "C_BAR_SUITES",
    "EXTRA",
    "EXTRA_SEQUENCES",
    "FUNCTIONS",
    "GROUPS",
    "KINDS",
    "PRESETS",
    "PUBLISHED",
    "SEQUENCES",
    "SEQUENCE_PRESETS",
    "SEVERITIES",
    "STANDARD",
    "TEST_SEQUENCES",
    "Draws",
    "Kind",
    "LegacyDraws",
    "Preset",
    "RandomCorruption",
    "StreamDraws",
    "catalog_table",
    "corrupt",
    "corrupt_batch",
    "frame_count",
    "keyed",
    "know",
    "own_kinds",
    "parameters",
    "perturb",
    "prepare",
    "recorded_name",
    "register",
    "register_corruption",
    "registered",
    "select",
    "texture_source",
]
