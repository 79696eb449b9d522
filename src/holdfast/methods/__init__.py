"""Training objectives. They work in any training loop, without the rest of Holdfast."""

from holdfast._deprecated import renamed
from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.adversarial import AdversarialTraining
from holdfast.methods.afat import AfatSettings, FeatureAlignment, corruptor_for
from holdfast.methods.augmix import AugMix, jensen_shannon
from holdfast.methods.distillation import Distillation
from holdfast.methods.loss_terms import Context, ForwardPass, ImageSpace, Term, Views
from holdfast.methods.noise2net import Noise2Net, noise2net
from holdfast.methods.objective import (
    OBJECTIVE_LINES,
    OBJECTIVES,
    CrossEntropy,
    Loss,
    Objective,
    OwnsModules,
    build_objective,
    detection_losses,
    register_objective,
)
from holdfast.methods.patch_augment import PatchAugmentation, patch_augment
from holdfast.methods.robust_training import TERMS, RobustObjective, TermEntry, register_term, robust_objective
from holdfast.methods.segmentation_loss import PixelCrossEntropy, pixel_cross_entropy
from holdfast.methods.tora import TradeOff, tora_objective
from holdfast.methods.trades import Mart, Trades
from holdfast.models.adaptation import ADAPTERS, begin_phase, register_adapter
from holdfast.registry import METHOD_LINES

OF_THE_LOOP = ("optimizer.sam", "train.probe", "holdfast mix")  # methods that are no objectives

register_objective("pixel_cross_entropy", PixelCrossEntropy, METHOD_LINES["pixel_cross_entropy"])
register_objective("robust", robust_objective, "the terms below, summed")
register_objective("tora", tora_objective, METHOD_LINES["tora"])
register_objective("detection", lambda: detection_losses, METHOD_LINES["detection"])
_SHIPPED = tuple(OBJECTIVES)


def methods() -> dict[str, str]:
    """One-line descriptions of all objectives and loss terms, by their names in a recipe."""
    return {
        **{name: METHOD_LINES[name] for name in ("cross_entropy", "pixel_cross_entropy", "detection")},
        **{f"robust: {name}": entry.line for name, entry in TERMS.items()},
        **{name: METHOD_LINES[name] for name in METHOD_LINES if name.startswith(OF_THE_LOOP)},
        **{f"model.adapt: {name}": adapter.line for name, adapter in ADAPTERS.items()},
        "tora": METHOD_LINES["tora"],
        **{name: line for name, line in OBJECTIVE_LINES.items() if name not in _SHIPPED},
    }


__all__ = [
    "OBJECTIVES",
    "TERMS",
    "AdversarialTraining",
    "AfatSettings",
    "AttentionDiversification",
    "AugMix",
    "Context",
    "CrossEntropy",
    "Distillation",
    "FeatureAlignment",
    "ForwardPass",
    "ImageSpace",
    "Loss",
    "Mart",
    "Noise2Net",
    "Objective",
    "OwnsModules",
    "PatchAugmentation",
    "PixelCrossEntropy",
    "RobustObjective",
    "Term",
    "TermEntry",
    "TradeOff",
    "Trades",
    "Views",
    "begin_phase",
    "build_objective",
    "corruptor_for",
    "detection_losses",
    "jensen_shannon",
    "methods",
    "noise2net",
    "patch_augment",
    "pixel_cross_entropy",
    "register_adapter",
    "register_objective",
    "register_term",
    "robust_objective",
    "tora_objective",
]

__getattr__ = renamed(__name__)
