"""Card of ``holdfast improve``: its decision, which was made before this page and is not made again by it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.reporting.runs import Run

DECISION = "decision.json"  # written by holdfast improve beside the runs that it measured


@dataclass(frozen=True)
class ImproveCard:
    """The decision in a sentence, what it rests on, and commands.

    Attributes:
        title: what to do in a few words.
        sentence: the decision.
        facts: how many candidates, images and seeds it rests on.
        commands: commands that make the model again, and that test a later one against it.
        clear: whether there is a winner.
    """

    title: str
    sentence: str
    facts: Sequence[str]
    commands: Sequence[str]
    clear: bool


TITLES = {"use": "Use {name}", "plain": "Plain training is not beaten", "start": "Keep the start"}


def improve_cards(runs: Sequence[Run]) -> list[ImproveCard]:
    """Decisions that lie in the folders of these runs, each once."""
    texts = dict.fromkeys(text for run in runs if (text := _text(run)) is not None)
    return [card for text in texts if (card := _card(text)) is not None]


def domain_lines(domains: Mapping[str, Mapping[str, float]], *, challenger: str) -> list[str]:
    """A sentence per model with its accuracy on every domain of the test images."""
    lines = []
    for name, of_domain in domains.items():
        each = ", ".join(f"{domain} {float(value):.1f} %" for domain, value in of_domain.items())
        lines.append(f"Clean accuracy of {challenger if name == 'challenger' else name} by domain: {each}.")
    return lines


def _text(run: Run) -> str | None:
    try:
        return (run.folder / DECISION).read_text(encoding="utf-8") if run.folder is not None else None
    except (OSError, ValueError):
        return None


def _card(text: str) -> ImproveCard | None:
    try:
        found: Mapping[str, Any] = json.loads(text)
        seeds = (
            "one seed, so the intervals are those of the images"
            if found["seeds"] == 1
            else f"{found['seeds']} seeds, of which the tables below show the first"
        )
        facts = [
            f"{found['candidates']} candidates were trained and {found['tried']} models compared, on validation images "
            "and on corruptions or attacks that are not reported here.",
            f"{found['images']} images of {found['data']} were measured once; {seeds}.",
            *domain_lines(found.get("domains", {}), challenger=str(found.get("challenger"))),
            *(f"{remark[:1].upper()}{remark[1:]}." for remark in map(str, found["remarks"])),
        ]
        title = TITLES[found["verdict"]].format(name=found["name"])
        commands = [*map(str, found["commands"]), str(found["gate"])]
        return ImproveCard(title, str(found["sentence"]), facts, commands, found["verdict"] == "use")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
