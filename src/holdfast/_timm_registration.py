"""Register our models with timm on ``import holdfast`` without importing timm.

``holdfast --help`` and ``holdfast.corruptions`` must not import torch, and both import this package. So the models are
registered at once if timm is already imported, and otherwise right after its import.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


def register_models() -> None:
    """Register our models with ``timm.create_model``, now or as soon as timm is imported."""
    if "timm" in sys.modules:
        importlib.import_module("holdfast.models")
    elif not any(isinstance(finder, _AfterTimm) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTimm())


class _AfterTimm(importlib.abc.MetaPathFinder):
    """Import finder that finds timm and makes its loader import ``holdfast.models`` once timm has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "timm":
            return None
        sys.meta_path.remove(self)  # while the others look
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            run_timm = spec.loader.exec_module

            def run_timm_then_register(module: ModuleType) -> None:
                run_timm(module)
                if self in sys.meta_path:  # not before: many look whether timm is there and never run it
                    sys.meta_path.remove(self)
                importlib.import_module("holdfast.models")

            loader: Any = spec.loader
            loader.exec_module = run_timm_then_register
        return spec
