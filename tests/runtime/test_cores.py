"""Processor cores that this process may use."""

import os

import pytest

from holdfast.runtime.cores import core_count


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux restricts a process to cores")
def test_cores_that_are_not_for_this_process_do_not_count():
    allowed = os.sched_getaffinity(0)
    assert core_count() == len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert core_count() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_without_affinity_all_cores_count(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert core_count() == 1
