"""Names tell which images belong together."""

import pytest

from holdfast.metrics.jackknife import grouping_of, groups_of

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
