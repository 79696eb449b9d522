"""What belongs together is told by names, and drawn together."""

import numpy as np
import pytest

from holdfast.metrics.groups import block_draw, block_drawing, drawing_words, grouping_of, groups_of
from holdfast.metrics.intervals import resampled_means

CAMVID = [f"test/0001TP_{n:06d}" for n in range(30)] + [f"test/Seq05VD_f{n:05d}" for n in range(45)]
CITYSCAPES = [f"val/{city}/{city}_000000_{n:06d}" for city in ("frankfurt", "lindau") for n in range(3)]
ACDC = [f"{weather}/val/GOPR0475/GOPR0475_frame_{n:06d}" for weather in ("fog", "night") for n in range(2)]


@pytest.mark.parametrize(
    ("ids", "what", "groups"),
    [
        (CAMVID, "recording", {"0001TP", "Seq05VD"}),
        (CITYSCAPES, "city", {"frankfurt", "lindau"}),
        (ACDC, "condition", {"fog", "night"}),
    ],
)
def test_names_tell_recordings_cities_and_weather(ids, what, groups):
    grouping = grouping_of(ids)
    assert grouping.what == what
    assert set(groups_of(ids, grouping)) == groups


def test_other_names_tell_nothing():
    assert grouping_of(["a.jpg", "deep/b.png"]) is None
    assert grouping_of([*CAMVID, "a.jpg"]) is None
    assert grouping_of([]) is None


def test_blocks_are_consecutive_and_every_group_keeps_its_size():
    groups = groups_of(CAMVID, grouping_of(CAMVID))
    rng = np.random.default_rng(0)
    for _ in range(20):
        times = block_draw(groups, 10, rng=rng)
        assert times[:30].sum() == 30
        assert times[30:].sum() == 45
        runs = np.flatnonzero(np.diff(np.concatenate([[0], times[:30] > 0, [0]])))
        assert all(stop - start >= 10 for start, stop in zip(runs[::2], runs[1::2], strict=True))


def test_a_group_shorter_than_a_block_is_drawn_whole():
    times = block_draw(np.array(["a"] * 4 + ["b"] * 2), 10, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(times, 1)


def test_blocks_widen_the_interval_of_frames_that_are_alike():
    rows = np.repeat(np.random.default_rng(1).normal(size=8), 10)[:75, None]  # ten frames in a row say the same
    naive, blocks = (
        resampled_means(rows, rng=np.random.default_rng(0), draw=draw).std()
        for draw in (None, block_drawing(CAMVID))
    )
    assert blocks > 1.8 * naive


def test_what_was_drawn_is_said():
    assert "moving blocks of 10 consecutive frames within each recording" in drawing_words(CAMVID, film=True)
    assert drawing_words(CITYSCAPES, film=True) == ""
    assert "too narrow" in drawing_words(["a.jpg"], film=True)
    assert drawing_words(["a.jpg"], film=False) == ""
    assert drawing_words(["scenes/test/96x128/000001"], film=True) == ""
