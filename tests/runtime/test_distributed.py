"""The number of processes, as launchers say it."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.runtime.distributed import process_count


def test_one_process_unless_a_launcher_says_more(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process_count() == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert process_count() == 4


@pytest.mark.parametrize("value", ["0", "-1", "two", ""])
def test_other_values_are_one_sentence(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(HoldfastError, match="WORLD_SIZE must be the number of processes, at least 1"):
        process_count()
