"""Layers of an analysis result: plain data for the header, and labels for figures."""

import torch

from holdfast.analysis.layer_info import map_rows
from tests.analysis.handles import random_handle


def test_rows_come_in_order_and_whole():
    handle = random_handle(tokens=7)
    for values in (1, 2 * 3 * 7 * 2, 10**6):
        assert torch.equal(torch.cat([rows[:, 0] for rows in map_rows(handle, values=values)], dim=2), handle.maps())
