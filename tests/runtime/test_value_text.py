"""Values of plug-ins are described by their content."""

import functools
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from holdfast.runtime.value_text import first_text, value_text


@dataclass
class Own:
    levels: list = field(default_factory=lambda: [1, 2])


SAME_TYPE = [
    (1, 2),
    ([1, [2]], [1, [3]]),
    ((1, np.zeros(2000)), (1, np.eye(2000)[0])),
    ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ({1, 2}, {1, 3}),
    (np.zeros(3), np.ones(3)),
    (np.zeros(3), np.zeros((3, 1))),
    (np.array([[1], "a"], object), np.array([[2], "a"], object)),
    (torch.zeros(2), torch.ones(2)),
    (slice(0, 2), slice(1, 2)),
    (range(2), range(3)),
    (functools.partial(max, 1), functools.partial(max, 2)),
    (Own(), Own([1, 3])),
]


@pytest.mark.parametrize(("one", "other"), SAME_TYPE)
def test_values_of_one_type_differ_by_their_content(one, other):
    assert value_text(one) != value_text(other)


def test_the_order_of_a_dict_or_set_and_copies_do_not_count():
    assert value_text({"a": 1, "b": 2}) == value_text({"b": 2, "a": 1})
    assert value_text({"x", "y", "z"}) == value_text({"z", "y", "x"})
    assert value_text([np.arange(3)]) == value_text([np.arange(3).copy()])


def test_a_text_is_the_same_in_every_process():
    code = (
        "import numpy, re; from holdfast.runtime.value_text import value_text; "
        "print(value_text([{'a', 'b', 'c'}, numpy.arange(3), numpy, max, re.compile('a'), object(), lambda x: x]))"
    )
    run = functools.partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run().stdout == run().stdout != ""


def test_a_value_that_holds_itself_ends():
    endless: list = []
    endless.append(endless)
    assert "deeper" in value_text(endless)


def test_what_code_keeps_in_a_dict_while_it_runs_does_not_count():
    cache: dict = {}
    empty = first_text(cache)
    cache["texture"] = 1
    assert first_text(cache) == empty != first_text({"texture": 1})
