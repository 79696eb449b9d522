"""Who makes it wrong: attacks on models of [0,1] images, for evaluation and inside a training step."""

from holdfast.attacks.autoattack import AutoAttack
from holdfast.attacks.gradient import GradientAttack, fgsm, perturb, pgd
from holdfast.attacks.occlusion import Occlusion, OcclusionResult
from holdfast.attacks.occlusion_attention import AttentionOcclusion
from holdfast.attacks.occlusion_learned import FittedCorruptor, LearnedOcclusion, fit_corruptor
from holdfast.attacks.patch_fool import PatchFool
from holdfast.attacks.pixels import PixelModel, from_pixels
from holdfast.attacks.presets import PRESETS
from holdfast.attacks.result import AttackResult
from holdfast.attacks.segpgd import EVERY_PIXEL, PIXEL_PRESETS, EveryPixel, SegPGD, perturb_pixels

__all__ = [
    "EVERY_PIXEL",
    "PIXEL_PRESETS",
    "PRESETS",
    "AttackResult",
    "AttentionOcclusion",
    "AutoAttack",
    "EveryPixel",
    "FittedCorruptor",
    "GradientAttack",
    "LearnedOcclusion",
    "Occlusion",
    "OcclusionResult",
    "PatchFool",
    "PixelModel",
    "SegPGD",
    "fgsm",
    "fit_corruptor",
    "from_pixels",
    "perturb",
    "perturb_pixels",
    "pgd",
]
