"""Names and one-line descriptions of models, methods and suites. Imports no torch."""

import fnmatch
import importlib
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import HoldfastError

Name = TypeVar("Name")
Row = TypeVar("Row")

# in the order of their modules; a test compares the two
MODEL_NAMES = (
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

MODEL_FORMS = {
    "run": "run:DIR",
    "timm": "timm:NAME[@CHECKPOINT]",
    "local-dir": "local-dir:DIR",
    "python": "python:module:function",
    "onnx": "onnx:FILE",
    "hf": "hf:DIR or hf:NAME",
    "torchvision": "torchvision:NAME[@CHECKPOINT]",
}


class ModelSpec(NamedTuple):
    """A parsed model spec; ``kind`` is empty for plain text, which is then ``rest``."""

    kind: str
    rest: str

    @property
    def architecture(self) -> str:
        """The timm name without checkpoint file and pretrained tag."""
        return self.rest.partition("@")[0].partition(".")[0]

    @property
    def folder(self) -> Path | None:
        """The folder of ``run:DIR`` or of a plain path; None for any other model."""
        if self.kind == "run":
            return Path(self._parts[0]).expanduser()
        return Path(self.rest) if not self.kind and Path(self.rest).is_dir() else None

    @property
    def checkpoint(self) -> str:
        """The checkpoint of ``run:DIR@best``, ``run:DIR@last`` or ``run:DIR@FILE``; empty without one."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        folder, sign, checkpoint = self.rest.rpartition("@")
        return (folder, checkpoint) if sign and not Path(self.rest).expanduser().is_dir() else (self.rest, "")


def model_spec(text: str) -> ModelSpec:
    """Parse a model spec."""
    kind, _, rest = text.partition(":")
    return ModelSpec(kind, rest) if kind in MODEL_FORMS and rest else ModelSpec("", text)


def list_models(pattern: str = "*") -> list[str]:
    """List Holdfast's own models that match a pattern such as ``fan_*_hybrid``; timm lists these as well."""
    return [name for name in MODEL_NAMES if fnmatch.fnmatchcase(name, pattern)]


METHOD_LINES = {
    "cross_entropy": "plain cross-entropy, hard or soft targets",
    "pixel_cross_entropy": "cross-entropy of label maps, averaged over labelled pixels or, as published, over all",
    "detection": "the losses that a detector returns, summed",
    "robust: noise2net_share": "a share of the batch distorted by random networks (DeepAugment)",
    "robust: patches": "a second cross-entropy on patch-wise augmented images (RVT)",
    "robust: augmix": "AugMix views and the Jensen-Shannon divergence of the predictions (AugMix)",
    "robust: afat": "feature alignment under patch corruption chosen by a corruption model (AFAT, RSPC)",
    "robust: adl": "attention diversification loss against overfocusing (TAP+ADL)",
    "robust: adversarial": "cross-entropy on FGSM or PGD images",
    "robust: trades": "clean cross-entropy and the divergence that an attack can make (TRADES)",
    "robust: mart": "attacked images, with more weight where the clean prediction is wrong (MART)",
    "robust: distillation": "a teacher's predictions as targets, hard or soft (DeiT; FAN, Table 2)",
    "optimizer.sam: sam": "steps by the gradient where the loss is highest nearby, two passes each (SAM)",
    "optimizer.sam: asam": "the same with a neighbourhood relative to the size of every weight (ASAM)",
    "train.probe: lp-ft": "the head is fitted to the frozen features first, then everything is trained (LP-FT)",
    "train.probe: linear-probe": "the head is fitted to the frozen features, and nothing else is trained",
    "holdfast mix: --alpha": "weights between a start and its fine-tuned model (WiSE-FT)",
    "holdfast mix: --soup": "the mean of several fine-tuned models, of all or of those that help (model soups)",
    "model.adapt: tora": "two adapters per block and a gate between them (TORA-ViT)",
    "model.adapt: adapter-fusion": "two adapters per block, fused by attention",
    "model.adapt: single-adapter": "one adapter per block",
    "model.adapt: head-only": "two new heads and nothing else",
    "tora": "adapters on a frozen ViT, trained for λ · robust + (1 − λ) · clean cross-entropy (TORA-ViT)",
}


_ATTACKS = {
    "fgsm": "FGSM, L∞ 1/255 (RVT)",
    "pgd5": "PGD, L∞ 1/255, 5 steps (RVT; AFAT's Table 3)",
    "pgd3-rvt-adv": "PGD, L∞ 4/255, 3 steps (RVT's test of adversarially trained networks)",
    "pgd5-rspc": "PGD, L∞ 8/255, 5 steps (AFAT's released code)",
    "patch-fool": "Patch-Fool, one patch, 250 steps",
    "patch-fool-sparse": "Patch-Fool, 250 pixels",
    "occlusion-random": "a tenth of the patches replaced by noise, 10 masks",
    "occlusion-attention": "the tenth that receives the most attention replaced by noise (ViT, DeiT, FAN)",
    "autoattack-imagenet": "AutoAttack, L∞ 4/255",
    "autoattack-cifar": "AutoAttack, L∞ 8/255",
    "autoattack-cifar-l2": "AutoAttack, L2 0.5",
    "segpgd5": "SegPGD, L∞ 1/255, 5 steps (segmentation)",
    "pgd20": "PGD, L∞ 8/255, 20 steps",
    "segpgd20": "SegPGD, L∞ 8/255, 20 steps (segmentation)",
    "occlusion-learned": "patches chosen by a corruption model that is fitted to the model and the images",
    "occlusion-generated": "patches chosen by a corruption model fitted by alignment to other images (AFAT, Table 3)",
}
STORED = {
    "imagenet-c": "ImageNet-C as stored: --data imagenet-c:DIR",
    "cifar-c": "CIFAR-10-C or CIFAR-100-C as stored: --data cifar10-c:DIR or cifar100-c:DIR",
    "imagenet-a": "ImageNet-A, 200 classes: --data imagenet-a:DIR",
    "imagenet-r": "ImageNet-R, 200 classes: --data imagenet-r:DIR",
    "imagenet-sketch": "ImageNet-Sketch: --data imagenet-sketch:DIR",
    "imagenet-v2": "ImageNet-V2, matched frequency: --data imagenet-v2:DIR",
    "imagenet-v2-threshold": "ImageNet-V2, threshold 0.7: --data imagenet-v2-threshold:DIR",
    "imagenet-v2-top": "ImageNet-V2, top images: --data imagenet-v2-top:DIR",
    "objectnet": "ObjectNet, 113 classes: --data objectnet:DIR",
    "cue-conflict": "shape bias on the cue conflict stimuli, 16 categories: --data cue-conflict:DIR",
}
SUITES: dict[str, str] = {
    "clean": "the images as they are",
    "quick": "clean and the 15 standard corruptions at severity 3 (of label maps those of Cityscapes-C)",
    "standard": "clean, the task's full corruption benchmark, and PGD or SegPGD with 5 steps where there are gradients",
    "corruptions": "15 corruptions × 5 severities, on the fly (--extra: 19 × 5; of label maps the 16 of Cityscapes-C)",
    "corruptions-135": "the same corruptions at severities 1, 3 and 5 only: faster, but without mCE",
    "selection": "what holdfast improve chooses by: kinds at severity 3 that it never reports (C-bar or the extra)",
    "cityscapes-c": "Cityscapes-C: 16 corruptions, noise at severities 1–3, on the fly or from cityscapes-c:DIR",
    "own-corruptions": "every corruption registered by a plug-in × 5 severities, on the fly",
    "coco-c": "COCO-C: 15 corruptions × 5 severities at native image size (Michaelis et al.)",
    "coco-c-fan": "the 16 corruptions of FAN's Table 14 × 5 severities; not comparable with coco-c",
    "imagenet-c-bar": "ImageNet-C-bar: 10 corruptions × 5 unlike ImageNet-C's, on the fly or from imagenet-c-bar:DIR",
    "cifar-c-bar": "CIFAR-10-C-bar: 10 such corruptions × 5 of small images, on the fly or from cifar10-c-bar:DIR",
    "perturbations": "10 perturbation sequences (--extra: 14), on the fly or from imagenet-p:DIR, cifar10-p:DIR",
    **STORED,
    **_ATTACKS,
}


def load(name: str) -> Any:
    """Import ``module:name``, on first use.

    Rows of registries name what lies in packages above them this way: parts of tasks, forms of models, and the scores
    that follow from records.
    """
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Registry(dict[Name, Row]):
    """Rows by name, for reading: ``register_…(name, object, line)`` adds one.

    Rows were assigned before; that still works, with a warning.
    """

    def __init__(self, rows: Mapping[Name, Row], *, register: str) -> None:
        super().__init__(rows)
        self._register = register

    def __setitem__(self, name: Name, row: Row) -> None:
        warnings.warn(f"assigning rows is deprecated; use {self._register}", DeprecationWarning, stacklevel=2)
        super().__setitem__(name, row)


def add_row(rows: MutableMapping[Any, Any], name: Any, row: Any, *, what: str) -> None:
    """Add a row to a registry; raises an error for a name that is taken."""
    if name in rows:
        raise HoldfastError(f"{what} {name!r} is already registered: choose another name")
    rows.update({name: row})


def warn_of_order(function: str, form: str) -> None:
    """Warn that arguments were given in their order of before."""
    warnings.warn(f"{function} now takes {form}", DeprecationWarning, stacklevel=3)
