"""A record's class map in words, and which records may be compared."""

import pytest

from holdfast.records.class_map import (
    answer_protocol,
    answer_protocol_words,
    answers_in_short,
    class_map_options,
    class_map_words,
)

ONE = {"name": "wnid", "classes": "restricted", "aggregation": "none", "mapped": 10, "outputs": 1000, "digest": "a"}
MANY = {**ONE, "name": "imagenet-16", "aggregation": "mean", "mapped": 207, "digest": "b"}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ONE, "10 of the model's 1000 classes, answers restricted to them"),
        ({**ONE, "classes": "all"}, "10 of the model's 1000 classes, all outputs are answers"),
        (
            MANY,
            "16 classes from 207 of the model's 1000 outputs (imagenet-16), the mean of their probabilities, "
            "answers restricted to them",
        ),
    ],
)
def test_a_map_in_words(found, words):
    assert class_map_words({"class_map": found, "classes": 16}) == words


def test_protocols_that_differ_have_other_words():
    maps = [ONE, {**ONE, "classes": "all"}, MANY, {**MANY, "aggregation": "max"}, {**MANY, "digest": "c"}]
    maps.append({**MANY, "classes": "all"})
    assert len({answer_protocol({"class_map": each}) for each in maps}) == len(maps)
    assert answer_protocol({"class_map": ONE}) == answer_protocol({}) == class_map_words({}) == ""


def test_a_map_with_more_classes_than_the_data_is_another_choice():
    more = {**ONE, "name": "m.csv", "mapped": 3, "members": {"a": [1], "b": [2], "c": [3]}}
    assert answer_protocol({"class_map": more, "classes": 3}) == ""
    assert answer_protocol({"class_map": more, "classes": 2}) == "class map a, none, restricted"
    many = {**more, "aggregation": "mean", "members": {"a": [1, 4], "b": [2], "c": [3]}, "mapped": 4}
    assert class_map_words({"class_map": many, "classes": 2}).startswith("3 classes from 4 of the model's 1000 outputs")


def test_errors_tell_protocols_apart_in_words():
    wanted = "answers among the data's classes alone, one output each"
    assert answer_protocol_words({"class_map": ONE}) == answer_protocol_words({}) == wanted
    found = answer_protocol_words({"class_map": {**MANY, "digest": "0123456789"}, "classes": 16})
    assert found.startswith("16 classes from 207 of the model's 1000 outputs (imagenet-16)")
    assert found.endswith("(map 01234567)")


def test_the_command_repeats_what_is_not_usual():
    assert class_map_options({"class_map": ONE, "labels": "wnid"}) == []
    assert class_map_options({"class_map": {**ONE, "classes": "all"}, "labels": "wnid"}) == ["--classes", "all"]
    assert class_map_options({"class_map": ONE, "labels": "index"}) == ["--classes", "restricted"]
    assert class_map_options({"class_map": {**MANY, "name": "m.csv"}, "labels": "map"}) == ["--class-map", "m.csv"]
    assert (answers_in_short({"class_map": ONE}), answers_in_short({})) == ("restricted", "")
    assert answers_in_short({"class_map": {**MANY, "classes": "all"}}) == "mean of 207 outputs, all 1000 outputs"
