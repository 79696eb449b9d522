"""The names of our models, and the one reading of a model's spec, such as ``timm:NAME[@FILE]``; no torch needed."""

import fnmatch
from pathlib import Path
from typing import NamedTuple

# in the order in which their files list them; a test holds them together
NAMES = (
    "fan_tiny_12_p16_224",
    "fan_small_12_p16_224",
    "fan_base_18_p16_224",
    "fan_large_24_p16_224",
    "fan_small_12_p16_224_se_attn",
    "fan_tiny_8_p4_hybrid",
    "fan_small_12_p4_hybrid",
    "fan_base_16_p4_hybrid",
    "fan_large_16_p4_hybrid",
    "fan_Xlarge_16_p4_hybrid",
    "fan_mini_4_p4_hybrid",
    "fan_nano",
    "fan_nano_hybrid",
    "fan_swin_tiny_patch4_window7_224",
    "fan_swin_small_patch4_window7_224",
    "fan_swin_base_patch4_window7_224",
    "fan_swin_large_patch4_window7_224",
    "rvt_tiny",
    "rvt_tiny_plus",
    "rvt_small",
    "rvt_small_plus",
    "rvt_base",
    "rvt_base_plus",
    "rvt_nano",
    "vit_nano",
    "tap_fan_tiny_12_p16_224",
    "tap_fan_small_12_p16_224",
    "tap_fan_base_18_p16_224",
    "tap_fan_large_24_p16_224",
    "tap_fan_tiny_8_p4_hybrid",
    "tap_fan_small_12_p4_hybrid",
    "tap_fan_base_16_p4_hybrid",
    "tap_fan_large_16_p4_hybrid",
    "tap_fan_Xlarge_16_p4_hybrid",
    "tap_fan_mini_4_p4_hybrid",
    "tap_rvt_tiny_plus",
    "tap_rvt_small_plus",
    "tap_rvt_base_plus",
    "tap_deit_tiny_patch16_224",
    "tap_deit_small_patch16_224",
    "tap_deit_base_patch16_224",
    "tap_vit_tiny_patch16_224",
    "tap_vit_small_patch16_224",
    "tap_vit_base_patch16_224",
    "tap_vit_small_patch14_dinov2",
    "tap_vit_base_patch14_dinov2",
    "tap_swin_tiny_patch4_window7_224",
    "tap_swin_small_patch4_window7_224",
    "tap_swin_base_patch4_window7_224",
)

FORMS = {
    "run": "run:DIR",
    "timm": "timm:NAME[@CHECKPOINT]",
    "local-dir": "local-dir:DIR",
    "python": "python:module:function",
    "onnx": "onnx:FILE",
    "hf": "hf:DIR or hf:NAME",
}


class ModelSpec(NamedTuple):
    """A spec's two parts; of a text that is none, ``kind`` is empty and ``rest`` the text."""

    kind: str
    rest: str

    @property
    def architecture(self) -> str:
        """The timm name, without a checkpoint's file and without the tag of the pretrained weights."""
        return self.rest.partition("@")[0].partition(".")[0]

    @property
    def folder(self) -> Path | None:
        """The folder of ``run:DIR``, or of a plain path that is one; None for any other model."""
        if self.kind == "run":
            return Path(self._parts[0]).expanduser()
        return Path(self.rest) if not self.kind and Path(self.rest).is_dir() else None

    @property
    def checkpoint(self) -> str:
        """What stands behind the sign of ``run:DIR@best``, ``run:DIR@last`` or ``run:DIR@FILE``; empty without one."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        folder, sign, checkpoint = self.rest.rpartition("@")
        return (folder, checkpoint) if sign and not Path(self.rest).expanduser().is_dir() else (self.rest, "")


def model_spec(text: str) -> ModelSpec:
    """What a text says about a model."""
    kind, _, rest = text.partition(":")
    return ModelSpec(kind, rest) if kind in FORMS and rest else ModelSpec("", text)


def list_models(pattern: str = "*") -> list[str]:
    """The names of Holdfast's own models that match, such as ``fan_*_hybrid``; timm lists its own, and these too."""
    return [name for name in NAMES if fnmatch.fnmatchcase(name, pattern)]
