"""Registry of data passed as Python objects: each gets a temporary spec, since recipes name data by specs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.data.source import Source
from holdfast.errors import HoldfastError

GIVEN: dict[str, Source] = {}
NAME = "given"


@contextmanager
def register_sources(train: Source, val: Source) -> Iterator[tuple[str, str]]:
    """Register two sources under specs such as ``given:tensors-3f0a…``, which depend on the contents."""
    from holdfast.data.torch_datasets import TensorSource

    numbered = [each for each in (train, val) if isinstance(each, TensorSource) and each.counted]
    if len(numbered) == 2:  # classes inferred from labels: one of the two may miss the last
        train.classes = val.classes = max(train.classes, val.classes, key=len)  # type: ignore[misc]
    specs = _spec(train), _spec(val)
    GIVEN.update(zip(specs, (train, val), strict=True))
    try:
        yield specs
    finally:
        for spec in specs:
            GIVEN.pop(spec, None)


def open_given(spec: str) -> Source:
    """Return the registered source of a spec."""
    if spec not in GIVEN:
        raise HoldfastError(
            f"data {spec!r} were passed as Python objects and are not available here: pass them again or name others"
        )
    return GIVEN[spec]


def _spec(source: Any) -> str:
    from holdfast.records.fingerprints import content_fingerprint, data_fingerprint

    ids = [source.id(index) for index in range(len(source))]
    digest = data_fingerprint(ids, source.targets, content=content_fingerprint(source))
    return f"{NAME}:{getattr(source, 'name', type(source).__name__)}-{digest[:12]}"
