"""Who makes it wrong: attacks on models of [0,1] images, for evaluation and inside a training step."""

from holdfast.attacks.autoattack import AutoAttack
from holdfast.attacks.gradient import GradientAttack, fgsm, perturb, pgd
from holdfast.attacks.occlusion import Occlusion, OcclusionResult
from holdfast.attacks.occlusion_learned import FittedCorruptor, LearnedOcclusion, fit_corruptor
from holdfast.attacks.patch_fool import PatchFool
from holdfast.attacks.pixels import PixelModel, from_pixels
from holdfast.attacks.presets import PRESETS
from holdfast.attacks.result import AttackResult
from holdfast.attacks.segpgd import PIXEL_PRESETS, PixelAttack, perturb_pixels

__all__ = [
    "PIXEL_PRESETS",
    "PRESETS",
    "AttackResult",
    "AutoAttack",
    "FittedCorruptor",
    "GradientAttack",
    "LearnedOcclusion",
    "Occlusion",
    "OcclusionResult",
    "PatchFool",
    "PixelAttack",
    "PixelModel",
    "fgsm",
    "fit_corruptor",
    "from_pixels",
    "perturb",
    "perturb_pixels",
    "pgd",
]
