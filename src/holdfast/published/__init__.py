"""The papers' figures as data, so that a table can say what the paper says."""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def published(table: str) -> Any:
    """One of the shipped tables, such as ``models``; each file names its source."""
    return json.loads(resources.files(__package__).joinpath(f"{table}.json").read_text(encoding="utf-8"))
