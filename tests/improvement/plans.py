"""Plans of two short trainings, as the planner would write them, with other values where a test needs them."""

from typing import Any

from holdfast.improvement.costs import MeasuringCost, TrainingCost
from holdfast.improvement.plan import Plan, Rung, Step
from holdfast.improvement.prepare import Request


def short_plan(request: Request, names: dict[str, Any], **other: Any) -> Plan:
    """A plan with one rung, one seed and no mixtures."""
    values: dict[str, Any] = {
        "start": "",
        "probe": False,
        "rungs": (Rung(2, 3.0),),
        "stop": "digits[0::2]",
        "testing": Step("digits:test", ("quick",), 30),
        "alphas": (1.0,),
        "soups": False,
        "seeds": 1,
    }
    return Plan(
        request=request.plain(),
        candidates=names,
        costs=dict.fromkeys(names, TrainingCost(0.1, 1.0, 2)),
        overhead=0.1,
        choice=MeasuringCost(0.1, 0.01),
        report=MeasuringCost(0.1, 0.02),
        left_out={},
        **{**values, **other},
    )
