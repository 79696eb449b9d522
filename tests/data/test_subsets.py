"""Concatenated sources and stratified subsets."""

import numpy as np

from holdfast.data import open_data
from holdfast.data.scenes import SceneSource
from holdfast.data.subsets import Joined, Subset, stratified_subset
from holdfast.tasks import task_of
from tests.evaluation.tasks.test_segmentation import (
    Constant,
    evaluate,
)


def test_subsets_and_joins_keep_task_and_label_maps():
    source = SceneSource("test", count=6)
    for made in (
        Subset(source, np.array([4, 1])),
        stratified_subset(source, 2, seed=0),
        Joined([source, SceneSource("val", count=2)]),
    ):
        assert task_of(made).name == "segmentation"
        assert made.target(0).shape == (96, 128)
    np.testing.assert_array_equal(Subset(source, np.array([4, 1])).target(0), source.target(4))
    np.testing.assert_array_equal(Joined([source, source]).target(7), source.target(1))
    assert len(open_data("scenes:test,9[2:5]")) == 3
    assert len(evaluate(Constant(11), "scenes:9", limit=4).cells["clean"]) == 4
