"""Tests that share a fixture run in one process; otherwise trained models and drawn reports are made several times."""

import pytest


@pytest.fixture(scope="module")
def shared():
    return []


def test_tests_that_share_a_fixture_of_their_file_are_one_group(shared, request):
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("this run has no groups (make test has: -n 2 --dist loadgroup)")
    assert request.node.nodeid.endswith("@tests/packaging/test_groups.py")
