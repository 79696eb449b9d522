"""Intervals of a task's scores and of their differences, from jackknife replicates of the scores' inputs."""

import numpy as np

from holdfast.metrics.jackknife import image_groups
from holdfast.metrics.score_intervals import interval_note
from holdfast.records.records import CellRecord
from tests.metrics.test_jackknife import CAMVID, names


def test_notes_say_what_is_needed_to_read_an_interval():
    def note(ids, *, task="segmentation"):
        cell = CellRecord(np.array(ids), np.zeros(len(ids)), {})
        return interval_note({"clean": cell}, cell.ids, image_groups(ids), task=task)

    assert "blocks of about 10 consecutive frames" in note(CAMVID)
    assert note(names(40), task="classification") == ""
    assert note(names(29), task="classification") == "few images: 29"
    assert "too narrow if they are frames" in note(names(40))
    assert note([f"scenes/test/96x128/{n:06d}" for n in range(40)]) == ""
