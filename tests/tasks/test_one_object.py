"""A task in one object, as tasks were written before: its members are found in all parts, the others have defaults."""

import numpy as np
import pytest

from holdfast.tasks.one_object import task_of_parts


class Old:
    name, together, headline = "old", False, ("clean",)

    def truth(self, source):
        return np.zeros(len(source))

    def adapted(self, model, source):
        return ("adapted", model)

    def answer(self, output, *, classes, top):
        return [{"class": "one"}]


@pytest.fixture
def task():
    with pytest.warns(DeprecationWarning, match="Old is a task in one object"):
        return task_of_parts(Old())


def test_its_members_are_those_of_the_parts_also_under_names_that_are_older_still(task):
    assert task.scoring.headline == ("clean",)
    assert not task.evaluation.batched
    assert task.evaluation.adapt_model(1, None) == ("adapted", 1)
    assert task.evaluation.answer(None, classes=None, top=1) == [{"class": "one"}]


def test_what_it_lacks_has_the_default_of_the_part(task):
    assert task.evaluation.lists_answers
    assert not task.evaluation.draws_overlays
    assert not task.scoring.whole_sets
    assert task.scoring.cell_scores({}) == {}
    assert task.evaluation.strata([1, 2]).tolist() == [0, 0]
    assert task.drawing is None


def test_a_part_gives_its_members_under_the_tasks_own_name_with_a_warning(task):
    with pytest.warns(DeprecationWarning, match=r"Task\.headline is now Task\.scoring\.headline"):
        assert task.headline == ("clean",)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        task.nothing  # noqa: B018
