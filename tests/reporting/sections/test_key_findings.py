"""Key findings of a report in words: computed sentences about scores and differences."""

import re

from holdfast.reporting.sections.key_findings import alone
from holdfast.reporting.sections.what_next import what_next
from tests.reporting.helpers import make_run
from tests.reporting.sections.test_decision import (
    CELLS,
    card_of,
)


def test_of_models_that_are_always_wrong_none_has_the_highest_score_or_a_weakest_kind(tmp_path):
    data, pairs, found = card_of(*(make_run(tmp_path / name, hold=-10, cells=CELLS, count=50) for name in "ab"))
    assert found.title == "No clear winner"
    assert re.match(r"Every model has accuracy under corruption \(.*\) 0\.0: train longer", found.reason)
    assert not any("weakest" in step.text for step in what_next(data, pairs, found, examples=False))
    assert "hardest" not in alone(data.baseline, data, "fog").text
