"""Figures for print: vectors and bitmaps that name their model and say what they show."""

import re

import numpy as np
import pytest
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.plotting.files import alternative_text, name_model, parse_formats, save_figure
from holdfast.plotting.style import colour_bar, grid_of, new_figure, picture, tidy


@pytest.fixture
def figure():
    drawn = new_figure(4, 2)
    left, right = grid_of(drawn, 1, 2)[0]
    left.plot([0, 1, 2], [0.25, 0.5, 1.0], label="fan_nano")
    tidy(left, xlabel="layer", ylabel="cosine")
    shown = picture(right, np.linspace(0, 1, 12).reshape(3, 4), title="block 2")
    colour_bar(drawn, shown, right, label="share of attention, 0 to 1")
    return drawn


def test_alternative_texts_say_what_is_seen(figure):
    told = alternative_text(figure)
    assert "cosine over layer, curves of fan_nano, values from 0.25 to 1" in told
    assert "block 2, a map of 3 by 4 from 0 to 1" in told
    assert "Colours: share of attention, 0 to 1" in told


def test_a_single_model_is_named_once(figure):
    figure.axes[0].legend()
    assert name_model(figure, "fan_nano").get_suptitle() == ""
    assert name_model(figure, "rvt_nano").get_suptitle() == "rvt_nano"


def test_maps_have_axes(figure):
    assert figure.axes[1].get_xticks().tolist() == [0, 3]
    assert figure.axes[1].get_yticks().tolist() == [0, 2]


def test_every_format_holds_text_as_text_and_says_what_it_shows(figure, tmp_path):
    paths = save_figure(figure, tmp_path / "new" / "stability", formats=("png", "pdf", "svg"))
    assert [path.name for path in paths] == ["stability.png", "stability.pdf", "stability.svg"]
    bitmap = Image.open(paths[0])
    assert (round(bitmap.info["dpi"][0]), bitmap.size) == (300, (1200, 600))
    assert "cosine over layer" in bitmap.info["Description"]
    assert paths[1].read_bytes().startswith(b"%PDF")
    svg = paths[2].read_text()
    assert re.search(r"<text[^>]*>cosine</text>", svg)
    assert "cosine over layer" in svg


def test_unknown_formats_are_one_sentence():
    assert parse_formats("pdf, svg,pdf") == ("pdf", "svg")
    with pytest.raises(HoldfastError, match="--figures must be some of png, pdf, svg, got 'eps'"):
        parse_formats("eps")
