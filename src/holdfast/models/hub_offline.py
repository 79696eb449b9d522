"""The model hub without a network: known within seconds, and cached weights still load."""

import contextlib
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator

PATIENCE = 3.0  # seconds


@contextlib.contextmanager
def quick_hub() -> Iterator[None]:
    """Where the hub does not answer, let huggingface_hub look into its cache alone instead of trying for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(endpoint: str) -> bool:
    """Whether the hub, or the proxy in front of it, takes a connection; names can take long to resolve, too."""
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
