"""Robustness assertions for pytest: ``assert_no_worse(model, data, baseline="baseline.json")``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.gate import RuleVerdict, all_passed, paired_scores_of, read_baseline
from holdfast.gate.output import terminal
from holdfast.gate.run_gate import evaluate_and_decide, requested_rules

if TYPE_CHECKING:
    from torch import nn

    from holdfast.data import Source
    from holdfast.records.records import Records

__all__ = ["assert_no_worse"]


def assert_no_worse(
    model: "nn.Module | str | Path",
    data: "Source | str | Sequence[Source | str] | None" = None,
    *,
    baseline: "Path | str | Records",
    rules: Path | str | Sequence[str] = (),
    unresolved: str | None = None,
    margin: float | None = None,
    allow_unreadable: int | None = None,
    until: str | None = None,
    budget: int | str | None = None,
    **options: Any,
) -> list[RuleVerdict]:
    """Evaluate a model with the baseline's protocol and fail with the table of verdicts if it is worse.

    Args:
        model: as in `holdfast.evaluate`.
        data: location of the baseline's data; by default as stored in the baseline.
        baseline: a file of ``holdfast gate --save``, a run, a folder of records, or records.
        rules: a YAML file, or sentences such as ``"fog/5 no worse by more than 2"``; by default the headline scores.
        unresolved: ``fail`` (the default) or ``pass`` rules that these images cannot decide.
        margin: non-inferiority margin in points; 0.5 by default.
        allow_unreadable: how many more unreadable images than the baseline are allowed; 0 by default.
        until: ``decided`` measures round by round, and stops as soon as every rule is decided.
        budget: with ``until``, a time such as ``10m``, or a number of passes (an image in a cell).
        options: ``out``, ``workers``, ``device``, ``show`` and ``protocol`` of `holdfast.evaluate`; of the
            protocol only the model's input and output settings.
    """
    places: Any = data if data is None or isinstance(data, list | tuple) else [data]
    is_file = isinstance(baseline, Path | str) and Path(baseline).is_file()
    old = read_baseline(Path(str(baseline))) if is_file else paired_scores_of(baseline)
    requested = requested_rules(rules, unresolved=unresolved, margin=margin, allow_unreadable=allow_unreadable)
    options |= {"against": baseline, "until": until, "budget": budget, "data": places}
    answers = evaluate_and_decide(old, model, requested, **options)
    if not all_passed(answers):
        raise AssertionError(f"the model is not as robust as the baseline\n{terminal(answers)}")
    return answers
