"""Values of JSON as instances of the types that wrote them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from holdfast.io.typed_json import from_json


@dataclass(frozen=True)
class Inner:
    name: str
    size: float = 1.0


@dataclass(frozen=True)
class Outer:
    parts: tuple[Inner, ...]
    by_name: Mapping[str, Mapping[str, Sequence[float]]]
    free: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()


WRITTEN = Outer((Inner("a"), Inner("b", 2)), {"x": {"y": [1, 2.5]}}, {"z": [None, {}]}, ("c",))


def test_what_was_written_is_read_again():
    assert from_json(json.loads(json.dumps(asdict(WRITTEN))), Outer) == WRITTEN


def test_values_with_a_default_may_be_missing():
    assert from_json({"parts": [{"name": "a"}], "by_name": {}}, Outer) == Outer((Inner("a"),), {})


@pytest.mark.parametrize(
    "changed",
    [
        {"parts": "ab"},
        {"parts": [{"name": "a", "size": "1"}]},
        {"parts": [{"name": None}]},
        {"parts": [{"size": 1.0}]},
        {"parts": [["a", 1.0]]},
        {"by_name": []},
        {"by_name": {"x": {"y": 1.0}}},
        {"words": "c"},
        {"words": [1]},
        {"more": 1},
    ],
)
def test_values_of_other_types_are_refused(changed):
    with pytest.raises(TypeError):
        from_json(json.loads(json.dumps(asdict(WRITTEN))) | changed, Outer)
