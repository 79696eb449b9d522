"""Holdfast makes vision transformers hold when images go bad, and proves it.

``import holdfast`` registers our models with timm; the names below are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from holdfast._registration import register_models
from holdfast._version import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.analysis.analyze import analyze
    from holdfast.attention import watch
    from holdfast.evaluation.evaluate import evaluate
    from holdfast.models import create_model
    from holdfast.models.checkpoints import load_checkpoint
    from holdfast.models.detector import detector
    from holdfast.models.segmenter import segmenter
    from holdfast.models.tap import add_tap
    from holdfast.models.tora import tora
    from holdfast.models.windows import slide
    from holdfast.reporting.page import report
    from holdfast.training.loop import train

_HOME = {
    "analyze": "holdfast.analysis.analyze",
    "watch": "holdfast.attention",
    "create_model": "holdfast.models",
    "segmenter": "holdfast.models.segmenter",
    "slide": "holdfast.models.windows",
    "add_tap": "holdfast.models.tap",
    "detector": "holdfast.models.detector",
    "tora": "holdfast.models.tora",
    "load_checkpoint": "holdfast.models.checkpoints",
    "train": "holdfast.training.loop",
    "evaluate": "holdfast.evaluation.evaluate",
    "report": "holdfast.reporting.page",
}

_PACKAGES = ("attacks", "corruptions", "data", "methods", "metrics", "models", "records", "reporting", "tasks")

__all__ = [
    "HoldfastError",
    "__version__",
    "add_tap",
    "analyze",
    "create_model",
    "detector",
    "evaluate",
    "load_checkpoint",
    "report",
    "segmenter",
    "slide",
    "tora",
    "train",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"holdfast.{name}")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})


register_models()
