"""Shape and texture in the name of a cue conflict stimulus, such as ``airplane/airplane1-bicycle2.png``."""

import re
from typing import NamedTuple

_NAME = re.compile(
    r"(?:[^/]*/)*(?:[^/]*_)?(?P<shape>[a-z]+)(?P<content>\d+)-(?P<texture>[a-z]+)(?P<style>\d+)(?:\.\w+)?"
)


class Cues(NamedTuple):
    """Classes of the shape and of the texture, and which picture of its class gave the shape."""

    shape: str
    texture: str
    content: str


def cues_of(name: str) -> Cues | None:
    """The cues in a name; None if it is not of this form."""
    found = _NAME.fullmatch(name)
    return None if found is None else Cues(found["shape"], found["texture"], found["shape"] + found["content"])
