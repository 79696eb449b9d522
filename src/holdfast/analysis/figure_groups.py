"""Grouping of comparable results into figures of one model, or of several side by side."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.analysis.base import Analysis, Page, Results, plain
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import AnalysisResult


def figure_pages(results: Results) -> Iterator[Page]:
    """The figures of some results: all for one model, the comparing ones for several.

    Results of other images, seeds or settings are never in one figure; the second group's figures end in ``-b``.
    """
    several = len({result.label for result in results}) > 1
    for analysis in ANALYSES.values():
        if several and not analysis.compares:
            continue
        groups = group_alike(analysis, [result for result in results if result.kind == analysis.name])
        wanted = [group for group in groups if len({result.label for result in group}) > 1 or not several]
        for number, group in enumerate(wanted):
            ending = "" if number == 0 else f"-{chr(ord('a') + number % 26)}"
            yield from ((f"{name}{ending}", draw) for name, draw in analysis.pages(group))


def group_alike(analysis: Analysis, results: Sequence[AnalysisResult]) -> list[list[AnalysisResult]]:
    """Groups of results that may share a figure: of the same images, settings and definition."""
    groups: dict[tuple[Any, ...], list[AnalysisResult]] = {}
    for result in results:
        groups.setdefault((_images(result), _settings_label(analysis, result), analysis.alike(result)), []).append(
            result
        )
    return list(groups.values())


def chosen_settings(analysis: Analysis, result: AnalysisResult) -> dict[str, Any]:
    """The settings of a result; defaults for those that did not exist yet when it was stored."""
    stored = result.header.get("settings") or {}
    return {each.name: stored.get(each.name, plain(each.default)) for each in analysis.settings}


def in_words(analysis: Analysis, result: AnalysisResult) -> str:
    """The settings of a result as readable text."""
    chosen = chosen_settings(analysis, result).items()
    written = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in chosen}
    return "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in written.items() if value not in (None, ""))


def _images(result: AnalysisResult) -> str:
    return str(result.header.get("data_fingerprint", result.header.get("data")))


def _settings_label(analysis: Analysis, result: AnalysisResult) -> str:
    way = [chosen_settings(analysis, result), result.header.get("seed", 0), result.header.get("preset")]
    return json.dumps(way, sort_keys=True, default=str)
