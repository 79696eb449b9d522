"""The model hub is asked only where somebody answers; without a network its cache alone is used, within seconds."""

import socket
import time

import pytest
from huggingface_hub import constants

from holdfast.models.hub_offline import quick_hub


@pytest.fixture
def listener(monkeypatch):
    """A socket that accepts connections, as the hub's address."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield server


def test_a_hub_that_answers_is_used(listener):
    with quick_hub():
        assert constants.HF_HUB_OFFLINE is False


def test_a_hub_that_refuses_leaves_the_cache_alone_and_only_for_the_time_being(listener):
    listener.close()
    began = time.monotonic()
    with quick_hub():
        assert constants.HF_HUB_OFFLINE is True
    assert time.monotonic() - began < 30  # its own retries take minutes
    assert constants.HF_HUB_OFFLINE is False


def test_what_the_user_switched_off_stays_off(listener, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with quick_hub():
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is True
