"""Evaluation on a Ray cluster: every task prepares the same evaluation and calls ``run_units`` on some units."""

import pytest

from holdfast.evaluation.runner_ray import parts


@pytest.mark.parametrize(("shards", "cells", "slots"), [(1, 76, 2), (3, 5, 8), (50, 76, 4), (1, 1, 100)])
def test_tasks_hold_every_unit_once_and_shards_stay_together_where_there_are_many(shards, cells, slots):
    keys = [(shard, cell) for shard in range(shards) for cell in range(cells)]
    tasks = list(parts(keys, slots=slots))
    assert [key for task in tasks for key in task] == keys
    assert all(len({shard for shard, _ in task}) == 1 for task in tasks)
    assert len(tasks) >= min(len(keys), slots)
    if shards >= 4 * slots:
        assert len(tasks) == shards
