"""Offline use of the model hub: detects a missing network within seconds and loads cached weights."""

import contextlib
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator

PATIENCE = 3.0  # seconds to wait for a connection


@contextlib.contextmanager
def quick_hub() -> Iterator[None]:
    """If the hub cannot be reached, let huggingface_hub use only its cache instead of retrying for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(endpoint: str) -> bool:
    """Whether the hub, or its proxy, accepts a connection in time; resolving its name may take long, too."""
    kind = urllib.parse.urlsplit(endpoint).scheme or "https"
    target = urllib.parse.urlsplit(urllib.request.getproxies().get(kind, endpoint))
    taken = threading.Event()

    def connect() -> None:
        port = target.port or (443 if target.scheme == "https" else 80)
        with contextlib.suppress(OSError), socket.create_connection((target.hostname or "", port), timeout=PATIENCE):
            taken.set()

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return taken.is_set()
