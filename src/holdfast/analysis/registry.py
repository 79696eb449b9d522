"""Registry of the analyses; a new one is a file and an entry here, or ``ANALYSES["mine"] = Analysis(…)``."""

from collections.abc import Sequence

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

ANALYSES: dict[str, Analysis] = {
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


def all_settings() -> dict[str, Setting]:
    """The settings of all analyses, by name."""
    return {setting.name: setting for analysis in ANALYSES.values() for setting in analysis.settings}


def headlines(results: Sequence[AnalysisResult]) -> Numbers:
    """Named numbers of one model's results, in the order of the analyses."""
    known = [result for result in results if result.kind in ANALYSES]
    return {name: value for result in known for name, value in ANALYSES[result.kind].headline(result).items()}
