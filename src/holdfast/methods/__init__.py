"""What models are trained for. Works in anybody's loop, without the rest of Holdfast."""

from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.afat import AfatSettings, FeatureAlignment, corruptor_for
from holdfast.methods.noise2net import noise2net
from holdfast.methods.objective import OBJECTIVES, CrossEntropy, Loss, Objective, Player, build_objective
from holdfast.methods.patch_augment import patch_augment
from holdfast.methods.robust import AdversarialTraining, PatchAugmentation, RobustObjective, robust_objective

OBJECTIVES["robust"] = robust_objective

__all__ = [
    "OBJECTIVES",
    "AdversarialTraining",
    "AfatSettings",
    "AttentionDiversification",
    "CrossEntropy",
    "FeatureAlignment",
    "Loss",
    "Objective",
    "PatchAugmentation",
    "Player",
    "RobustObjective",
    "build_objective",
    "corruptor_for",
    "noise2net",
    "patch_augment",
    "robust_objective",
]
