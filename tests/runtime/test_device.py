"""Device, precision, number of workers, data-parallel wrappers, and process group of an evaluation."""

import pytest

from holdfast.runtime.device import Processes


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_processes_share_all_units_and_each_only_once(count):
    shares = [number for rank in range(count) for number in Processes(rank, count).share(17)]
    assert shares == list(range(17))
