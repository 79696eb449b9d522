"""Durations as options take them."""

import pytest

from holdfast.runtime.duration import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400), ("1d2h3m4.5s", 93784.5)],
)
def test_a_duration_is_a_number_of_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "10", "-1m", "1m1h", "1 m", "infs", "1e3s", "h"])
def test_anything_else_is_none(text):
    assert parse_duration(text) is None
