"""``Until``: how precise an evaluation must be before it stops, or how much it may cost."""

import numpy as np
import pytest

from holdfast import Until
from holdfast.evaluation.dry_run_rounds import ANSWER, forecast_passes
from holdfast.evaluation.until import DEVIATION_OF_MEANS
from tests.evaluation.test_dry_run_rounds import search


@pytest.mark.parametrize(("goal", "images"), [(0.5, 1000), (2.0, 1000), (1.0, 50_000), (5.0, 300)])
def test_the_score_of_these_images_takes_as_many_as_bring_its_interval_to_the_goal(goal, images):
    answers = np.arange(1, 75 * images)  # in corrupted cells; an image comes again after all were used
    common = DEVIATION_OF_MEANS**2 * np.where(answers > images, 1 / images - 1 / answers, 0)
    half_widths = 196 * np.sqrt((ANSWER**2 / answers + common) * (1 - answers / (75 * images)))
    corrupted = max(8 * 75, int(answers[half_widths <= goal][0]))
    found = forecast_passes(search(Until(goal, of_these_images=True), images=images))
    assert found == pytest.approx(corrupted + min(images, corrupted), rel=0.01)
