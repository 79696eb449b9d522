"""Sliding-window inference: large images in windows of the training crop size."""

import pytest

from holdfast.models.sliding_window import window_starts


@pytest.mark.parametrize(
    ("side", "window", "stride", "starts"),
    [
        (2048, 1024, 768, [0, 768, 1024]),
        (1820, 1024, 768, [0, 768, 796]),
        (1024, 1024, 768, [0]),
        (1025, 1024, 768, [0, 1]),
        (1792, 1024, 768, [0, 768]),
        (500, 1024, 768, [0]),
    ],
)
def test_windows_start_where_the_released_code_starts_them(side, window, stride, starts):
    assert window_starts(side, window, stride) == starts
