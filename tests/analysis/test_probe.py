"""`Probe`: the model of [0,1] images under analysis, with its clean and corrupted images."""

import pytest

from holdfast.analysis.probe import parse_cell
from holdfast.errors import HoldfastError


@pytest.mark.parametrize("cell", ["occlusion/0", "occlusion/101", "occlusion", "occlusion/a"])
def test_a_percentage_that_is_none_is_one_sentence(cell):
    with pytest.raises(HoldfastError, match="occlusion must have a percentage of patches from 1 to 100"):
        parse_cell(cell)
