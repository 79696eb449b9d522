"""The class map of a record set: in words, and as far as numbers under different maps must not be compared."""

from collections.abc import Mapping
from typing import Any

AGGREGATED = {"mean": "the mean of their probabilities", "sum": "the sum of their probabilities"}
AGGREGATED["max"] = "the largest of their probabilities"


def class_map_words(header: Mapping[str, Any]) -> str:
    """How a model's outputs became answers; empty if they are the data's classes."""
    found = header.get("class_map")
    if not isinstance(found, Mapping):
        return ""
    outputs, mapped = found.get("outputs"), found.get("mapped")
    classes = len(found.get("members") or ()) or header.get("classes")  # a map may have more classes than the data
    others = "answers restricted to them" if found.get("classes") == "restricted" else "all outputs are answers"
    how = AGGREGATED.get(str(found.get("aggregation")))
    if how is None:
        return f"{mapped} of the model's {outputs} classes, {others}"
    return f"{classes} classes from {mapped} of the model's {outputs} outputs ({found.get('name')}), {how}, {others}"


def answers_in_short(header: Mapping[str, Any]) -> str:
    """The choice of answers in a few words, for titles; empty if the outputs are the data's classes."""
    found = header.get("class_map")
    if not isinstance(found, Mapping):
        return ""
    among = "restricted" if found.get("classes") == "restricted" else f"all {found.get('outputs')} outputs"
    aggregation = str(found.get("aggregation"))
    return among if aggregation == "none" else f"{aggregation} of {found.get('mapped')} outputs, {among}"


def class_map_options(header: Mapping[str, Any]) -> list[str]:
    """Options of ``holdfast evaluate`` for the same choice of answers."""
    found = header.get("class_map")
    if not isinstance(found, Mapping):
        return []
    given = ["--class-map", str(found.get("name"))] if header.get("labels") == "map" else []
    usual = "all" if header.get("labels") in ("index", "name") else "restricted"
    return given + (["--classes", str(found["classes"])] if found.get("classes") not in (None, usual) else [])


def answer_protocol(header: Mapping[str, Any]) -> str:
    """What must agree for two models' answers to be compared; empty for a choice among the data's classes.

    A model of many classes that is restricted to one output for each class of the data chooses among the same classes
    as a model that has only these.
    """
    found = header.get("class_map")
    if not isinstance(found, Mapping):
        return ""
    restricted = found.get("classes") == "restricted"
    if restricted and found.get("aggregation") == "none" and header.get("classes") in (None, found.get("mapped")):
        return ""
    among = "restricted" if restricted else f"all {found.get('outputs')}"
    return f"class map {found.get('digest')}, {found.get('aggregation')}, {among}"


def answer_protocol_words(header: Mapping[str, Any]) -> str:
    """The same in words, for errors."""
    if not answer_protocol(header):
        return "answers among the data's classes alone, one output each"
    return f"{class_map_words(header)} (map {str(header['class_map'].get('digest'))[:8]})"
