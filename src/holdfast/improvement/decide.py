"""The decision: what the test images, measured once, say about winner, plain training of equal cost and start."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.improvement.scores import Measured, gain
from holdfast.io import atomic
from holdfast.io.typed_json import from_json
from holdfast.metrics.intervals import Interval
from holdfast.models.factory import load_torch_model
from holdfast.models.flops import count_model

DECISION = "decision.json"
USE, PLAIN_TRAINING, KEEP_START = "use", "plain", "start"


@dataclass(frozen=True)
class Gain:
    """A paired difference in points, on bad and on clean images."""

    bad: Interval
    clean: Interval

    @classmethod
    def of(cls, first: Sequence[Measured], second: Sequence[Measured]) -> "Gain":
        """First minus second, over seeds; a start has a single seed and stands beside every one."""
        pairs = list(zip(first, second if len(second) == len(first) else [second[0]] * len(first), strict=True))
        return cls(
            gain([a.bad for a, _ in pairs], [b.bad for _, b in pairs]),
            gain([a.clean for a, _ in pairs], [b.clean for _, b in pairs]),
        )


@dataclass(frozen=True)
class Decision:
    """What to do, and why.

    Attributes:
        verdict: ``use`` the winner, ``plain`` training is not beaten, or keep the ``start``.
        sentence: the decision in a sentence.
        candidates: number of candidates that were trained.
        tried: number of models that were chosen among.
        model: folder of the model to use.
        name: its name.
        challenger: name of the best candidate beside plain training.
        folders: runs of plain training and of the challenger that were measured.
        images: number of test images.
        seeds: number of seeds of winner and plain training.
        data: spec of the test images.
        suites: what was done to them.
        scores: clean score and score on bad images of start, plain training and challenger, in percent, by name.
        domains: accuracy on the clean images of every domain of ``domains:DIR``, in percent, by name like the scores.
        gains: differences in points with 95 % intervals: ``challenger − plain`` …
        commands: commands that train the model again.
        gate: command that tests a later model against it.
        skipped: work that no longer fitted the budget.
        spent: seconds of the budget that were used.
        budget: the budget in seconds.
        remarks: further sentences.
    """

    verdict: str
    sentence: str
    candidates: int
    tried: int
    model: str
    name: str
    challenger: str
    folders: Mapping[str, str]
    images: int
    seeds: int
    data: str
    suites: tuple[str, ...]
    scores: Mapping[str, Sequence[float]]
    gains: Mapping[str, Mapping[str, Sequence[float]]]
    commands: tuple[str, ...] = ()
    gate: str = ""
    skipped: tuple[str, ...] = ()
    spent: float = 0.0
    budget: float = 0.0
    remarks: tuple[str, ...] = ()
    domains: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write decision.json."""
        atomic.write_text(folder / DECISION, json.dumps(asdict(self), indent=1) + "\n")


def read_decision(folder: Path) -> Decision:
    """Read the decision of a finished ``holdfast improve``."""
    try:
        found: Decision = from_json(json.loads((folder / DECISION).read_text(encoding="utf-8")), Decision)
        return found
    except (OSError, ValueError, TypeError) as error:
        raise HoldfastError(f"{str(folder)!r} holds no decision of holdfast improve") from error


def verdict_of(
    *, chosen_is_plain: bool, over_plain: Gain, over_start: Gain | None, plain_over_start: Gain | None
) -> str:
    """The verdict: whatever is recommended is resolved to be better on bad images than what is simpler.

    The winner, which was chosen before, than plain training and the start; plain training than the start.
    """
    if not chosen_is_plain and over_plain.bad.low > 0:
        return USE if over_start is None or over_start.bad.low > 0 else KEEP_START
    return PLAIN_TRAINING if plain_over_start is None or plain_over_start.bad.low > 0 else KEEP_START


def sentence_of(
    verdict: str,
    *,
    model: str,
    challenger: str,
    speed: str,
    over_plain: Gain,
    over_start: Gain | None,
    plain_over_start: Gain | None,
    bad: str,
) -> str:
    """The decision in a sentence; gains are over the start, or over plain training where there is no start."""
    own = "" if plain_over_start is None else with_span(plain_over_start.bad)
    if verdict == USE:
        first = over_start or over_plain
        than = "the start" if over_start else "plain training of equal cost"
        ending = f"; plain training of equal cost gains {own}, the winner has {with_span(over_plain.bad)} over it"
        return (
            f"Use {model} ({challenger}): {with_span(first.bad, 'points')} under {bad} over {than}, clean "
            f"{with_span(first.clean)}, {speed}{ending if own else ''}."
        )
    other = f"the best other candidate, {challenger}, has {with_span(over_plain.bad, 'points')} over plain training"
    if verdict == KEEP_START and over_start is not None:
        return (
            f"Keep the start: nothing is resolved to be better under {bad}. Plain training has {own} points over it, "
            f"the best other candidate, {challenger}, {with_span(over_start.bad)}."
        )
    gained = f"has {with_span(plain_over_start.bad, 'points')} over the start; " if plain_over_start is not None else ""
    return (
        f"Nothing beats plain training of equal cost; here it is: {model}. Under {bad} {'it ' * bool(gained)}{gained}"
        f"{other}."
    )


def speed_of(run: Path, plain: Path) -> str:
    """How a run's network compares with that of plain training in multiply-adds for an image."""
    models: list[Any] = [load_torch_model(f"run:{each}", what="holdfast improve").model for each in (run, plain)]
    costs = [count_model(model.cpu().eval()).gmacs for model in models]
    more = f"{100 * (costs[0] / costs[1] - 1):+.1f}".replace("-", "−")
    return f"{more} % multiply-adds for an image"


def with_span(interval: Interval, unit: str = "") -> str:
    """A difference with its sign and its interval: +6.1 (4.2 to 8.0)."""
    text = f"{interval.value:+.1f}{f' {unit}' * bool(unit)} ({interval.bounds('.1f')})"
    return text.replace("-", "−")


def plain_gain(one: Gain) -> dict[str, list[float]]:
    """A gain for decision.json: value, low, high."""
    return {
        name: [round(value, 4) for value in (each.value, each.low, each.high)]
        for name, each in (("bad", one.bad), ("clean", one.clean))
    }


def plain_scores(models: Mapping[str, Sequence[Measured]]) -> dict[str, list[float]]:
    """Clean and bad scores, means over seeds, for decision.json."""
    means: dict[str, list[float]] = {}
    for name, each in models.items():
        pairs: list[Any] = [one.values for one in each]
        means[name] = [round(sum(column) / len(column), 4) for column in zip(*pairs, strict=True)]
    return means


def plain_domains(models: Mapping[str, Sequence[Measured]]) -> dict[str, dict[str, float]]:
    """Accuracy on every domain, means over seeds, for decision.json; empty for data without domains."""
    return {
        name: {domain: round(sum(one.domains[domain] for one in each) / len(each), 4) for domain in each[0].domains}
        for name, each in models.items()
        if each[0].domains
    }
