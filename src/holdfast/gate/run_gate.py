"""``holdfast.gate``: test that a candidate is no worse than a baseline, in one call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.gate.baseline import read_baseline
from holdfast.gate.evaluate_candidate import evaluate_like_baseline
from holdfast.gate.output import junit, markdown, terminal
from holdfast.gate.paired_scores import paired_scores_of
from holdfast.gate.rules import Rules, parse_rule, read_rules
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
    **options: Any,
) -> GateResult:
    """Test that a candidate is no worse than a baseline, as ``holdfast gate`` does.

    Args:
        candidate: records, a folder with records, or a model as in :func:`holdfast.evaluate`, which is evaluated first
            with the baseline's data and protocol.
        against: the baseline: a file of ``holdfast gate --save``, a run, a folder of records, or records.
        data: location of the baseline's data for a model; by default as stored in the baseline.
        rules: a YAML file, or sentences such as ``"fog/5 no worse by more than 2"``; by default the headline scores.
        unresolved: ``fail`` (the default) or ``pass`` rules that these images cannot decide.
        margin: non-inferiority margin in points; 0.5 by default.
        allow_unreadable: how many more unreadable images than the baseline are allowed; 0 by default.
        options: for a model ``out``, ``workers``, ``device``, ``show`` and ``protocol`` of :func:`holdfast.evaluate`;
            of the protocol only the model's input and output settings.
    """
    is_file = isinstance(against, Path | str) and Path(against).is_file()
    old = read_baseline(Path(str(against))) if is_file else paired_scores_of(against)
    requested = requested_rules(rules, unresolved=unresolved, margin=margin, allow_unreadable=allow_unreadable)
    if isinstance(candidate, Records) or _has_records(candidate):
        new = paired_scores_of(candidate)  # type: ignore[arg-type]
    else:
        places: Any = data if data is None or isinstance(data, list | tuple) else [data]
        new = evaluate_like_baseline(old, candidate, data=places, **options)
    return GateResult(tuple(decide(new, old, requested)))


def requested_rules(rules: Path | str | Sequence[str], **thresholds: Any) -> Rules:
    """Rules from a file or sentences, with the thresholds that are not None."""
    found = read_rules(Path(rules)) if isinstance(rules, Path | str) else Rules(tuple(map(parse_rule, rules)))
    return replace(found, **{name: value for name, value in thresholds.items() if value is not None})


def _has_records(candidate: Any) -> bool:
    return isinstance(candidate, Path | str) and Path(candidate).is_dir() and any(Path(candidate).rglob(HEADER))
