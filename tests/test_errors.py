"""Errors in one sentence, and hints for misspelt names."""

from holdfast.errors import HoldfastError, first_line, nearest


def test_a_bad_value_is_a_value_error():
    assert issubclass(HoldfastError, ValueError)


def test_the_first_line_of_an_error_is_its_message_or_else_its_class():
    assert first_line(RuntimeError("\n out of memory \nat line 3")) == "out of memory "
    assert first_line(KeyError()) == "KeyError"


def test_what_was_probably_meant_is_named():
    known = ("fog", "frost", "snow", "contrast")
    assert nearest("frozt", known) == "; did you mean 'frost' or 'fog'?"
    assert nearest("frozt", known, count=1) == "; did you mean 'frost'?"
    assert nearest("xyz", known) == ""
