"""What models are trained for. Works in anybody's loop, without the rest of Holdfast."""

from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.afat import AfatSettings, FeatureAlignment, corruptor_for
from holdfast.methods.detection import detection_losses
from holdfast.methods.noise2net import noise2net
from holdfast.methods.objective import OBJECTIVES, CrossEntropy, Loss, Objective, Player, build_objective
from holdfast.methods.patch_augment import patch_augment
from holdfast.methods.pixel_loss import PixelCrossEntropy, pixel_cross_entropy
from holdfast.methods.robust import AdversarialTraining, PatchAugmentation, RobustObjective, robust_objective
from holdfast.methods.tora import TradeOff, begin_phase, tora_objective

OBJECTIVES["pixel_cross_entropy"] = PixelCrossEntropy
OBJECTIVES["robust"] = robust_objective
OBJECTIVES["tora"] = tora_objective
OBJECTIVES["detection"] = lambda: detection_losses

METHODS = {  # as a recipe names them, under objective.name or as options of the objective `robust`
    "cross_entropy": "plain cross-entropy, hard or soft targets",
    "pixel_cross_entropy": "cross-entropy of label maps, divided by the labelled pixels or, as published, by all",
    "detection": "the losses that a detector returns, summed",
    "robust: adl": "attention diversification loss against overfocusing (TAP+ADL)",
    "robust: afat": "features aligned against the patches that a corruption model picks (AFAT, RSPC)",
    "robust: patches": "a second cross-entropy on patch-wise augmented images (RVT)",
    "robust: adversarial": "cross-entropy on FGSM or PGD images",
    "robust: noise2net_share": "a share of the batch distorted by random networks (DeepAugment)",
    "tora": "adapters on a frozen ViT, trained for λ · robust + (1 − λ) · clean cross-entropy (TORA-ViT)",
}

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "AdversarialTraining",
    "AfatSettings",
    "AttentionDiversification",
    "CrossEntropy",
    "FeatureAlignment",
    "Loss",
    "Objective",
    "PatchAugmentation",
    "PixelCrossEntropy",
    "Player",
    "RobustObjective",
    "TradeOff",
    "begin_phase",
    "build_objective",
    "corruptor_for",
    "detection_losses",
    "noise2net",
    "patch_augment",
    "pixel_cross_entropy",
    "robust_objective",
    "tora_objective",
]
