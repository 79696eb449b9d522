"""The scoring of a task is found by the task's name."""

import subprocess
import sys

import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.scoring import registry


def test_tasks_have_their_scoring_and_others_are_refused():
    assert registry.scoring_of("classification").one_class
    assert registry.scoring_of("detection").whole_sets
    assert registry.scoring_of("detection") is registry.scoring_of("detection")
    with pytest.raises(HoldfastError, match="got 'detecton'; did you mean 'detection'"):
        registry.scoring_of("detecton")


def test_a_registered_scoring_is_found(monkeypatch):
    monkeypatch.setattr(registry, "_SCORINGS", dict(registry._SCORINGS))
    registry.register_scoring("counting", registry.scoring_of("classification"))
    assert registry.scoring_of("counting") is registry.scoring_of("classification")


def test_scorings_need_no_torch():
    code = (
        "import sys; from holdfast.metrics.scoring.registry import scoring_of; "
        "[scoring_of(task) for task in ('classification', 'segmentation', 'detection')]; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
