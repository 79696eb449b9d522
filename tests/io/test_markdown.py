"""Markdown: a name shows as it is, whatever it contains, and a table has its cells in its columns."""

import pytest

from holdfast.io.markdown import escape, printable, table


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)>"),
        ("[x](javascript:alert(1)) | b\nc", r"\[x\](javascript:alert(1)) \| b c"),
        ("fan_tiny_8 *best* `x` #1", r"fan_tiny_8 \*best\* \`x\` \#1"),
        ("_private_ & co", r"\_private\_ &amp; co"),
        ("a\x1b[31mred\u202e", "a�\\[31mred�"),
    ],
)
def test_no_name_is_markup(name, text):
    assert escape(name) == text


def test_printable_text_is_one_line():
    assert printable(" two\n lines\t\x00") == "two lines �"


def test_a_table_aligns_its_numbers():
    assert table(["row", "value"], [["a", "1"]], numbers=[1]) == "| row | value |\n| --- | ---: |\n| a | 1 |"
