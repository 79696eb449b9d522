"""What is done to an image, as a short text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.lab.edits import Edits, damage_text, parse_edits

STEPS = st.one_of(
    st.builds(
        Edits,
        st.sampled_from(["fog", "gaussian_noise", "jpeg_compression"]),
        st.integers(1, 5).map(float),
        st.none() | st.integers(0, 99),
    ),
    st.builds(Edits, st.sampled_from(["occlude", "learned"]), st.sampled_from([0.05, 0.1, 0.5, 1.0])),
    st.builds(Edits, st.sampled_from(["fgsm", "pgd"]), st.sampled_from([0.5, 1.0, 8.0])),
    st.sets(st.integers(0, 63), min_size=1).map(lambda s: Edits("hide", 0, None, (8, 8), tuple(sorted(s)))),
)


@given(st.lists(STEPS, max_size=6))
def test_a_text_brings_back_what_it_was_made_of(steps):
    assert parse_edits(damage_text(tuple(steps))) == tuple(steps)


def test_order_is_kept():
    assert [step.kind for step in parse_edits(" pgd/8, fog/3@7 ,hide/8x8:3.1.1")] == ["pgd", "fog", "hide"]
    assert damage_text(parse_edits("pgd/8,fog/3@7,hide/8x8:3.1.1")) == "pgd/8,fog/3@7,hide/8x8:1.3"
    assert parse_edits("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fog", "must look like"),
        ("fgo/3", "'fog'"),
        ("fog/6", "severity"),
        ("fog/2.5", "whole number"),
        ("fog/nan", "must"),
        ("fog/1e400", "must"),
        ("hide/8x8:64", "0…63"),
        ("hide/99x99:0", "64×64"),
        ("hide/8x8", "hide/8x8:27.28"),
        ("occlude/0", "(0, 1]"),
        ("occlude/nan", "(0, 1]"),
        ("pgd/1000", "255ths"),
        ("fog/3@99999999999", "must look like"),
        ("<b>/3", "must look like"),
        ("../etc/passwd", "must look like"),
        (",".join(["fog/1"] * 13), "at most 12"),
    ],
)
def test_anything_else_is_one_sentence(text, said):
    with pytest.raises(HoldfastError) as error:
        parse_edits(text)
    assert said in str(error.value)
