"""Where Holdfast keeps what it can make again: lists of large folders, forecasts. Deleting it loses nothing."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$HOLDFAST_CACHE``, else ``holdfast`` in the user's cache folder."""
    if own := os.environ.get("HOLDFAST_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "holdfast"
