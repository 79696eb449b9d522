"""Every analysis, one row each; a new one is a file and a row here, or ``ANALYSES["mine"] = Analysis(…)``."""

from holdfast.analysis import (
    dilation,
    diversity,
    gates,
    grouping,
    maps,
    noise_decay,
    occlusion,
    overfocus,
    patches,
    stability,
)
from holdfast.analysis.plugin import Analysis
from holdfast.analysis.settings import Setting

ANALYSES: dict[str, Analysis] = {
    "stability": stability.ANALYSIS,
    "occlusion": occlusion.ANALYSIS,
    "overfocus": overfocus.ANALYSIS,
    "diversity": diversity.ANALYSIS,
    "noise-decay": noise_decay.ANALYSIS,
    "grouping": grouping.ANALYSIS,
    "maps": maps.ANALYSIS,
    "patches": patches.ANALYSIS,
    "dilation": dilation.ANALYSIS,
    "gates": gates.ANALYSIS,
}


def all_settings() -> dict[str, Setting]:
    """The settings of all analyses, by name."""
    return {setting.name: setting for analysis in ANALYSES.values() for setting in analysis.settings}
