"""Fourier positional encoding: sines of the row and the column, projected to the token width."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.layers.positional import fourier_code


@given(height=st.integers(1, 9), width=st.integers(1, 9), floor=st.booleans())
@settings(max_examples=25, deadline=None)
def test_positional_code_equals_its_definition(height, width, floor):
    code = fourier_code(height, width, floor=floor)
    assert code.shape == (height, width, 64)
    row, column, i = height - 1, width // 2, 7
    half = i // 2 if floor else i / 2
    omega = 10000 ** (2 * half / 32)
    assert code[row, column, i].item() == pytest.approx(
        math.cos(2 * math.pi * (row + 1) / (height + 1e-6) / omega), abs=1e-5
    )
    assert code[row, column, 32].item() == pytest.approx(
        math.sin(2 * math.pi * (column + 1) / (width + 1e-6)), abs=1e-5
    )
