"""Data of an inspection for the templates: images, predictions, attention."""

import pytest

from holdfast.lab.view_data import verdict


@pytest.mark.parametrize(
    ("before", "after", "state", "words"),
    [
        (("7", 1), ("7", 1), "good", "right"),
        (("7", 1), ("8", 0), "bad", "flips"),
        (("8", 0), ("7", 1), "good", "flips to correct"),
        (("8", 0), ("9", 0), "bad", "wrong"),
        (("8", None), ("8", None), "even", "holds"),
        (("8", None), ("9", None), "bad", "flips"),
    ],
)
def test_the_verdict_says_what_became_of_the_answer(before, after, state, words):
    one, two = ({"right": right, "top": [{"name": name, "chance": 0.5}]} for name, right in (before, after))
    found = verdict(one, two, changed=True)
    assert (found["state"], found["words"]) == (state, words)
    assert found["before"] == {"name": before[0], "value": "50.0 %"}
