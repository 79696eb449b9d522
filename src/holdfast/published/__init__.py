"""Published scores of the papers as data, for comparison with ours."""

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def published(table: str) -> Any:
    """Load a shipped table such as ``models``; each file names its source."""
    return json.loads(resources.files(__package__).joinpath(f"{table}.json").read_text(encoding="utf-8"))
