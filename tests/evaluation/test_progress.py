"""Progress display of an evaluation: images done, time left and running scores."""

import numpy as np

from holdfast.cells import CLEAN, corruption_cell
from holdfast.evaluation.progress import RunningScores
from holdfast.evaluation.suites import kinds_of
from holdfast.tasks import task_named


def test_the_progress_line_runs_along():
    accuracy = task_named("classification").scoring.running
    tally = RunningScores(accuracy)
    assert tally.line(imagenet=False) == ""
    tally.add(CLEAN, np.array([3, 4]))
    for severity, right in enumerate((4, 3, 2, 1, 0), start=1):
        tally.add(corruption_cell("fog", severity), np.array([right, 4]))
    assert tally.line(imagenet=False) == "clean 75.0 %, corrupted 50.0 % (1 of 15 kinds)"
    assert tally.line(imagenet=True) == f"clean 75.0 %, mCE {50 / 0.819324:.1f} (1 of 15 kinds)"
    tally.add(CLEAN, np.array([0, 4]))
    assert tally.score(CLEAN) == 0.375


def test_the_progress_line_of_label_maps_says_miou_of_all_pixels_so_far():
    segmentation = task_named("segmentation")
    tally = RunningScores(segmentation.scoring.running, kinds_of(segmentation))
    shards = [np.array([[4, 0], [3, 1], [3, 0]]), np.array([[0, 4], [2, 2], [0, 2]])]  # true, predicted, both
    for counts in shards:
        tally.add(CLEAN, counts)
        for severity in range(1, 6):
            tally.add(corruption_cell("gaussian_blur", severity), counts)
    miou = 100 * (3 / (4 + 5 - 3) + 2 / (4 + 3 - 2)) / 2
    assert tally.line(imagenet=False) == f"clean mIoU {miou:.1f} %, corrupted mIoU {miou:.1f} % (1 of 16 kinds)"


def test_the_progress_line_of_boxes_shows_no_score():
    """Average precision is of a whole set: nothing is shown under its name that it is not."""
    assert task_named("detection").scoring.running is None
    tally = RunningScores(None)
    tally.add(CLEAN, None)
    assert tally.line(imagenet=False) == ""
