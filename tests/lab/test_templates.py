"""Fragments of the lab's page."""

from types import SimpleNamespace

import pytest
from jinja2 import UndefinedError

from holdfast.lab.templates import asset, fragment

ATTENTION = SimpleNamespace(
    layer=2, head=-1, stability=0.5, unit="tokens", effective=(3.0, 4.0), top_share=(0.25, 0.123)
)


def test_values_are_written_as_people_read_them_and_text_is_escaped():
    text = fragment("numbers.html", attention=ATTENTION)
    assert "<dt>stability of layer 3</dt><dd>0.5000</dd>" in text
    assert "12.3 %" in text
    picture = SimpleNamespace(form="wide", url="data:", title="<script>")
    assert "&lt;script&gt;" in fragment("more.html", inside=SimpleNamespace(pictures=[picture]))


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        fragment("numbers.html")


def test_assets_are_those_of_the_package():
    assert "addEventListener" in asset("lab.js")
    with pytest.raises(FileNotFoundError):
        asset("none.js")
