"""Safe reading of YAML files: plain data of limited size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.io.yaml import read_yaml
from tests.training.helpers import tiny


def test_a_huge_scalar_is_refused_before_it_is_parsed_and_never_quoted_in_full(tmp_path, capsys):
    with pytest.raises(HoldfastError, match="rules must have at most 1048576 letters, got 50000003"):
        read_yaml(f"a: {'x' * 50_000_000}", name="rules")
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps({**tiny(), "seed": "x" * 100_000}))
    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
    assert len(capsys.readouterr().err) < 3_000


@given(value=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(1, 17))
def test_every_way_to_write_a_number_with_an_exponent_is_read_as_that_number(value, digits):
    written = f"{value:.{digits}e}"
    for text in (written, written.replace("e+", "e"), written.upper()):
        assert read_yaml(text, name="number") == float(text)
