"""A class has one colour."""

from holdfast.plotting.class_colours import PALETTE, class_colour, hex_colour


def test_colours_differ_and_repeat_after_the_last():
    colours = [class_colour(number) for number in range(len(PALETTE))]
    assert len(set(colours)) == len(PALETTE)
    assert class_colour(len(PALETTE)) == colours[0]


def test_html_has_the_same_colour():
    assert [hex_colour(number) for number in (0, 1)] == ["#0072b2", "#d55e00"]
    assert all(bytes.fromhex(hex_colour(number)[1:]) == bytes(class_colour(number)) for number in range(40))
