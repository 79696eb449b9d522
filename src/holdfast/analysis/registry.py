"""Registry of the analyses; a new one is a file and an entry here, or `register_analysis`."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.analysis import (
    attention_maps,
    attention_stability,
    corruption_model,
    head_diversity,
    noise_decay,
    occlusion_sensitivity,
    overfocus,
    tap_dilation,
    token_grouping,
    tora_gates,
)
from holdfast.analysis.base import Analysis, Numbers
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import Setting
from holdfast.registry import Registry, add_row

_SHIPPED = {
    "stability": attention_stability.ANALYSIS,
    "occlusion": occlusion_sensitivity.ANALYSIS,
    "overfocus": overfocus.ANALYSIS,
    "diversity": head_diversity.ANALYSIS,
    "noise-decay": noise_decay.ANALYSIS,
    "grouping": token_grouping.ANALYSIS,
    "maps": attention_maps.ANALYSIS,
    "patches": corruption_model.ANALYSIS,
    "dilation": tap_dilation.ANALYSIS,
    "gates": tora_gates.ANALYSIS,
}

ANALYSES: Registry[str, Analysis] = Registry(_SHIPPED, register="holdfast.analysis.registry.register_analysis")


def register_analysis(name: str, analysis: Analysis, line: str = "") -> Analysis:
    """Register an analysis; its own name and line are those given here."""
    known = replace(analysis, name=name, line=line or analysis.line)
    add_row(ANALYSES, name, known, what="analysis")
    return known


def all_settings() -> dict[str, Setting]:
    """The settings of all analyses, by name."""
    return {setting.name: setting for analysis in ANALYSES.values() for setting in analysis.settings}


def headlines(results: Sequence[AnalysisResult]) -> Numbers:
    """Named numbers of one model's results, in the order of the analyses."""
    known = [result for result in results if result.kind in ANALYSES]
    return {name: value for result in known for name, value in ANALYSES[result.kind].headline(result).items()}
