"""Deprecated import paths and names: they still work, with a DeprecationWarning. Imports no torch."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# moved modules, old path → new path
MODULES = {
    "holdfast.analysis.diversity": "holdfast.analysis.head_diversity",
    "holdfast.analysis.grouping": "holdfast.analysis.token_grouping",
    "holdfast.analysis.plugin": "holdfast.analysis.base",
    "holdfast.analysis.stability": "holdfast.analysis.attention_stability",
    "holdfast.cluster": "holdfast.runtime.ray",
    "holdfast.corruptions.catalog": "holdfast.corruptions.severities",
    "holdfast.data.specs": "holdfast.data.factory",
    "holdfast.deploy.export": "holdfast.inference.export",
    "holdfast.evaluation.cells": "holdfast.evaluation.plan",
    "holdfast.evaluation.forecast": "holdfast.evaluation.dry_run",
    "holdfast.evaluation.options": "holdfast.evaluation.config",
    "holdfast.evaluation.predictions": "holdfast.inference.label_map_files",
    "holdfast.evaluation.protocol": "holdfast.evaluation.preprocessing",
    "holdfast.figure_parts": "holdfast.plotting.style",
    "holdfast.forecasts": "holdfast.runtime.dry_run",
    "holdfast.inference.normalized_model": "holdfast.evaluation.normalized_model",
    "holdfast.inference.predictor": "holdfast.evaluation.predictor",
    "holdfast.lab.damage": "holdfast.lab.edits",
    "holdfast.lab.look": "holdfast.lab.inspect",
    "holdfast.methods.robust": "holdfast.methods.robust_training",
    "holdfast.metrics.formulas": "holdfast.metrics.scoring.base",
    "holdfast.metrics.html_table": "holdfast.io.html_table",
    "holdfast.models.adapting": "holdfast.models.adaptation",
    "holdfast.models.corruptor": "holdfast.models.corruption_model",
    "holdfast.models.tora_files": "holdfast.models.tora_checkpoints",
    "holdfast.records.cells": "holdfast.cells",
    "holdfast.records.content_digest": "holdfast.data.content_digest",
    "holdfast.records.fingerprints": "holdfast.data.fingerprints",
    "holdfast.records.units": "holdfast.records.shard_files",
    "holdfast.reporting.card": "holdfast.reporting.model_card",
    "holdfast.training.joint_augment": "holdfast.training.augment.segmentation",
}

# renamed names, by the old module
NAMES = {
    "holdfast": {"Compute": "ComputeConfig", "Protocol": "EvalProtocol"},
    "holdfast.analysis.grouping": {"sampled": "sample_grid"},
    "holdfast.analysis.plugin": {"Shown": "FigureSpec"},
    "holdfast.analysis.results": {"Result": "AnalysisResult"},
    "holdfast.analysis.stability": {"counts": "has_counts", "pooled": "pooled_cosines"},
    "holdfast.attacks": {"EVERY_PIXEL": "PIXEL_MISCLASSIFICATION", "EveryPixel": "PixelMisclassification"},
    "holdfast.cluster": {"Done": "TaskResult", "Tasks": "RayTasks"},
    "holdfast.corruptions.catalog": {"heading": "short_heading"},
    "holdfast.evaluation.cells": {"limited": "limit_rows"},
    "holdfast.evaluation.forecast": {"forecast": "dry_run_report"},
    "holdfast.evaluation.options": {"Compute": "ComputeConfig", "Protocol": "EvalProtocol"},
    "holdfast.evaluation.protocol": {"Steps": "Preprocessing"},
    "holdfast.forecasts": {"Forecast": "DryRunReport", "accounted": "compare_with_dry_run", "timed": "time_work"},
    "holdfast.gate": {
        "Judged": "RuleVerdict",
        "Side": "PairedScores",
        "judge": "decide",
        "passed": "all_passed",
        "sides_of": "paired_scores_of",
    },
    "holdfast.lab": {
        "Glance": "ImagePrediction",
        "Look": "Inspection",
        "look": "inspect_image",
        "open_lens": "open_model",
    },
    "holdfast.lab.damage": {"Damage": "Edits", "parse_damage": "parse_edits"},
    "holdfast.lab.look": {
        "Glance": "ImagePrediction",
        "Look": "Inspection",
        "Picture": "LabImage",
        "kept": "recorded_fields",
        "look": "inspect_image",
    },
    "holdfast.methods": {"Pass": "ForwardPass", "Player": "OwnsModules", "Setting": "ImageSpace"},
    "holdfast.metrics": {
        "Formula": "ScoreDefinition",
        "bootstrap_interval": "jackknife_interval",
        "mean_rate": "mean_flip_rate",
    },
    "holdfast.metrics.average_precision": {"matched": "match_image"},
    "holdfast.metrics.formulas": {"Formula": "ScoreDefinition", "Measure": "CellScore"},
    "holdfast.models.adapting": {"Adapter": "AdapterEntry"},
    "holdfast.models.checkpoints": {"Loaded": "LoadedWeights"},
    "holdfast.reporting.page": {"idle": "idle_terms", "rendered": "render_page", "unmeasured": "unmeasured_runs"},
    "holdfast.training.joint_augment": {"normalised": "normalise_pair", "padded": "pad_pair"},
}


def renamed(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module with deprecated names."""

    def __getattr__(name: str) -> Any:
        new = NAMES[module].get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is deprecated; use {module}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(module), new)

    return __getattr__


class _MovedModule(ModuleType):
    """A module under its old path.

    ``import`` binds it to its package, over the function of the same name that the package may have had, such as
    ``holdfast.lab.look``: so it can be called as that function.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def renamed_method(old: str, new: str) -> Callable[..., Any]:
    """A method under its old name: it warns, then calls the method of the new name."""

    def call(self: Any, *args: Any, **options: Any) -> Any:
        warnings.warn(f"{type(self).__name__}.{old} is now {new}", DeprecationWarning, stacklevel=2)
        return getattr(self, new)(*args, **options)

    return call


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import finder of moved modules: an empty module that forwards every attribute to the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name in MODULES else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        old, new = module.__name__, MODULES[module.__name__]
        warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=2)
        names, found = NAMES.get(old, {}), importlib.import_module(new)

        def attribute(name: str) -> Any:
            return getattr(found, names.get(name, name))

        module.__dict__["__getattr__"] = attribute
        module.__dict__["__dir__"] = lambda: sorted({*dir(found), *names})


def find_moved_modules() -> None:
    """Install the finder of moved modules, after all regular finders."""
    if not any(type(finder).__name__ == _MovedModules.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
