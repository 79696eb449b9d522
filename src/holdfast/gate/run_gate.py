"""``holdfast.gate``: test that a candidate is no worse than a baseline, in one call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.gate.baseline import read_baseline
from holdfast.gate.decide_in_rounds import decide_in_rounds
from holdfast.gate.evaluate_candidate import evaluate_like_baseline, requests_like_baseline, requests_of_old
from holdfast.gate.output import junit, markdown, terminal
from holdfast.gate.paired_scores import PairedScores, paired_scores_of
from holdfast.gate.rules import Rules, parse_rule, read_rules
from holdfast.gate.scores import check_rules
from holdfast.gate.verdicts import RuleVerdict, all_passed, decide
from holdfast.records.records import HEADER, Records

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import Source


@dataclass(frozen=True)
class GateResult:
    """The verdicts of a gate; true if all rules passed, and shown as their table."""

    verdicts: tuple[RuleVerdict, ...]

    @property
    def passed(self) -> bool:
        """Whether all rules passed."""
        return all_passed(self.verdicts)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return terminal(self.verdicts)

    def markdown(self) -> str:
        """The verdicts as Markdown."""
        return markdown(self.verdicts)

    def junit(self) -> str:
        """The verdicts as JUnit XML."""
        return junit(self.verdicts)


def gate(
    candidate: "nn.Module | str | Path | Records",
    against: "str | Path | Records",
    *,
    data: "Source | str | Sequence[Source | str] | None" = None,
    rules: Path | str | Sequence[str] = (),
    unresolved: str | None = None,
    margin: float | None = None,
    allow_unreadable: int | None = None,
    until: str | None = None,
    budget: int | str | None = None,
    **options: Any,
) -> GateResult:
    """Test that a candidate is no worse than a baseline, as ``holdfast gate`` does.

    Args:
        candidate: records, a folder with records, or a model as in `holdfast.evaluate`, which is evaluated first
            with the baseline's data and protocol.
        against: the baseline: a file of ``holdfast gate --save``, a run, a folder of records, or records.
        data: location of the baseline's data for a model; by default as stored in the baseline.
        rules: a YAML file, or sentences such as ``"fog/5 no worse by more than 2"``; by default the headline scores.
        unresolved: ``fail`` (the default) or ``pass`` rules that these images cannot decide.
        margin: non-inferiority margin in points; 0.5 by default.
        allow_unreadable: how many more unreadable images than the baseline are allowed; 0 by default.
        until: ``decided`` measures a model round by round, and stops as soon as every rule is decided.
        budget: with ``until``, a time such as ``10m``, or a number of passes (an image in a cell).
        options: for a model ``out``, ``workers``, ``device``, ``show`` and ``protocol`` of `holdfast.evaluate`;
            of the protocol only the model's input and output settings.
    """
    is_file = isinstance(against, Path | str) and Path(against).is_file()
    old = read_baseline(Path(str(against))) if is_file else paired_scores_of(against)
    requested = requested_rules(rules, unresolved=unresolved, margin=margin, allow_unreadable=allow_unreadable)
    if isinstance(candidate, Records) or (until is None and _has_records(candidate)):
        return GateResult(tuple(decide(paired_scores_of(candidate), old, requested)))  # type: ignore[arg-type]
    places: Any = data if data is None or isinstance(data, list | tuple) else [data]
    options |= {"against": against, "until": until, "budget": budget, "data": places}
    answers = evaluate_and_decide(old, candidate, requested, **options)
    return GateResult(tuple(answers))


def evaluate_and_decide(
    old: Sequence[PairedScores],
    model: "nn.Module | str | Path",
    rules: Rules,
    *,
    against: Any,
    until: str | None,
    budget: int | str | None,
    show: bool | None = None,
    **options: Any,
) -> list[RuleVerdict]:
    """Evaluate a model as the baseline was, on all images or until every rule is decided."""
    if until not in (None, "decided"):
        raise HoldfastError(f"until must be 'decided' or None, got {until!r}")
    check_rules(old, rules)
    if until is None:
        if budget is not None:
            raise HoldfastError("budget needs until='decided', got None")
        return decide(evaluate_like_baseline(old, model, show=show, **options), old, rules)
    requests = requests_like_baseline(old, model, **options)
    elsewhere = {name: value for name, value in options.items() if name in ("data", "workers", "device", "cluster")}
    before = requests_of_old(old, against, **elsewhere)
    return decide_in_rounds(requests, old, rules, old_requests=before, budget=budget, show=show)[0]


def requested_rules(rules: Path | str | Sequence[str], **thresholds: Any) -> Rules:
    """Rules from a file or sentences, with the thresholds that are not None."""
    found = read_rules(Path(rules)) if isinstance(rules, Path | str) else Rules(tuple(map(parse_rule, rules)))
    return replace(found, **{name: value for name, value in thresholds.items() if value is not None})


def _has_records(candidate: Any) -> bool:
    return isinstance(candidate, Path | str) and Path(candidate).is_dir() and any(Path(candidate).rglob(HEADER))
