"""Adversarial attacks on models of [0,1] images, for evaluation and for adversarial training."""

from holdfast._deprecated import renamed
from holdfast.attacks.autoattack import AutoAttack
from holdfast.attacks.base import AttackResult
from holdfast.attacks.occlusion import AttentionOcclusion, Occlusion, OcclusionResult
from holdfast.attacks.occlusion_corruptor import CorruptorOcclusion
from holdfast.attacks.occlusion_learned import FittedCorruptor, GeneratedOcclusion, LearnedOcclusion, fit_corruptor
from holdfast.attacks.patch_fool import PatchFool
from holdfast.attacks.pixel_model import PixelModel, from_pixels
from holdfast.attacks.presets import PRESETS
from holdfast.attacks.projected_gradient_descent import GradientAttack, fgsm, perturb, pgd
from holdfast.attacks.segpgd import (
    PIXEL_MISCLASSIFICATION,
    PIXEL_PRESETS,
    PixelMisclassification,
    SegPGD,
    perturb_pixels,
)

__all__ = [
    "PIXEL_MISCLASSIFICATION",
    "PIXEL_PRESETS",
    "PRESETS",
    "AttackResult",
    "AttentionOcclusion",
    "AutoAttack",
    "CorruptorOcclusion",
    "FittedCorruptor",
    "GeneratedOcclusion",
    "GradientAttack",
    "LearnedOcclusion",
    "Occlusion",
    "OcclusionResult",
    "PatchFool",
    "PixelMisclassification",
    "PixelModel",
    "SegPGD",
    "fgsm",
    "fit_corruptor",
    "from_pixels",
    "perturb",
    "perturb_pixels",
    "pgd",
]

__getattr__ = renamed(__name__)
