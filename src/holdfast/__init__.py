"""Holdfast: train, evaluate and explain vision models that are robust to corruptions, attacks and distribution shift.

``import holdfast`` registers our models with timm; the names below are imported on first use.
"""

import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast._deprecated import find_moved_modules, renamed
from holdfast._name_clash import foreign_sentence
from holdfast._timm_registration import register_models
from holdfast._version import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.analysis.analyze import analyze
    from holdfast.attention import watch
    from holdfast.corruptions import corrupt
    from holdfast.evaluation.config import ComputeConfig, EvalProtocol
    from holdfast.evaluation.evaluate import evaluate
    from holdfast.evaluation.until import Until
    from holdfast.improvement.improve import improve
    from holdfast.inference.export import export
    from holdfast.inference.predict import predict
    from holdfast.metrics import compare
    from holdfast.models import create_model
    from holdfast.models.checkpoints import load_checkpoint
    from holdfast.models.detector import detector
    from holdfast.models.segmenter import segmenter
    from holdfast.models.sliding_window import slide
    from holdfast.models.tap import add_tap
    from holdfast.models.tora import tora
    from holdfast.records import load_records
    from holdfast.registry import list_models
    from holdfast.reporting.page import report
    from holdfast.training.loop import train
    from holdfast.training.mix import mix

_HOME = {
    "ComputeConfig": "holdfast.evaluation.config",
    "EvalProtocol": "holdfast.evaluation.config",
    "Until": "holdfast.evaluation.until",
    "add_tap": "holdfast.models.tap",
    "analyze": "holdfast.analysis.analyze",
    "compare": "holdfast.metrics",
    "corrupt": "holdfast.corruptions",
    "create_model": "holdfast.models",
    "detector": "holdfast.models.detector",
    "evaluate": "holdfast.evaluation.evaluate",
    "export": "holdfast.inference.export",
    "improve": "holdfast.improvement.improve",
    "list_models": "holdfast.registry",
    "load_checkpoint": "holdfast.models.checkpoints",
    "load_records": "holdfast.records",
    "mix": "holdfast.training.mix",
    "predict": "holdfast.inference.predict",
    "report": "holdfast.reporting.page",
    "segmenter": "holdfast.models.segmenter",
    "slide": "holdfast.models.sliding_window",
    "tora": "holdfast.models.tora",
    "train": "holdfast.training.loop",
    "watch": "holdfast.attention",
}

_PACKAGES = (
    "analysis",
    "attacks",
    "corruptions",
    "data",
    "evaluation",
    "gate",
    "methods",
    "metrics",
    "models",
    "records",
    "reporting",
    "tasks",
    "testing",
    "training",
)

__all__ = [
    "ComputeConfig",
    "EvalProtocol",
    "HoldfastError",
    "Until",
    "__version__",
    "add_tap",
    "analyze",
    "compare",
    "corrupt",
    "create_model",
    "detector",
    "evaluate",
    "export",
    "improve",
    "list_models",
    "load_checkpoint",
    "load_records",
    "mix",
    "predict",
    "report",
    "segmenter",
    "slide",
    "tora",
    "train",
    "watch",
]


_deprecated_name = renamed(__name__)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"holdfast.{name}")
    return _deprecated_name(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})


register_models()
find_moved_modules()
if (_foreign := foreign_sentence(Path(__file__).parents[1])) is not None:
    warnings.warn(_foreign, stacklevel=2)
