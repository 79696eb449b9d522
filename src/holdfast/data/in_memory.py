"""Data that are handed over in Python, under a spec of their own while they are used: recipes name data by specs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.data.source import Source
from holdfast.errors import HoldfastError

GIVEN: dict[str, Source] = {}
NAME = "given"


@contextmanager
def register_sources(train: Source, val: Source) -> Iterator[tuple[str, str]]:
    """Specs of two sources, such as ``given:tensors-3f0a…``: other contents have another spec."""
    from holdfast.data.torch_datasets import TensorSource

    numbered = [each for each in (train, val) if isinstance(each, TensorSource) and each.counted]
    if len(numbered) == 2:  # classes that are counted by their labels: one of the two may lack the last
        train.classes = val.classes = max(train.classes, val.classes, key=len)  # type: ignore[misc]
    specs = _spec(train), _spec(val)
    GIVEN.update(zip(specs, (train, val), strict=True))
    try:
        yield specs
    finally:
        for spec in specs:
            GIVEN.pop(spec, None)


def open_given(spec: str) -> Source:
    """What was handed over under that spec."""
    if spec not in GIVEN:
        raise HoldfastError(
            f"data {spec!r} were handed over in Python and are not here: name others, or hand them over"
        )
    return GIVEN[spec]


def _spec(source: Any) -> str:
    from holdfast.records.fingerprints import content_fingerprint, data_fingerprint

    ids = [source.id(index) for index in range(len(source))]
    digest = data_fingerprint(ids, source.targets, content=content_fingerprint(source))
    return f"{NAME}:{getattr(source, 'name', type(source).__name__)}-{digest[:12]}"
