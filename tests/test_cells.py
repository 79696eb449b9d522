"""``CellSpec``: family, kind and severity of a cell as data; its name serves for display and file names only."""

import pytest

from holdfast.cells import CellSpec, spec_of
from holdfast.errors import HoldfastError


def test_the_header_of_a_cell_says_its_family():
    assert spec_of({"cell": "night", "family": "condition", "kind": "night"}) == CellSpec("night", "condition", "night")
    with pytest.raises(HoldfastError, match="cell 'fog' must name its family"):
        spec_of({"cell": "fog"})
