"""Formatting of numbers and names for readers."""

from holdfast.reporting.formatting import clean_name, distinct_names, number, signed


def test_names_become_one_printable_line():
    assert clean_name("a\n b\t\x00c\ud800") == "a b \N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"
    assert len(clean_name("x" * 500)) == 80
    assert distinct_names(["a", "a", "a (2)", "b"]) == ["a", "a (2)", "a (2) (2)", "b"]


def test_numbers_are_written_as_people_read_them():
    assert [number(value) for value in (1.25, -0.04, -3.0, float("nan"))] == ["1.2", "0.0", "−3.0", "–"]
    assert [signed(value) for value in (1.0, 0.04, -2.0)] == ["+1.0", "0.0", "−2.0"]
