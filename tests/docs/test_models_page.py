"""The table of docs/models.md holds what is counted."""

import pytest

from holdfast.models.flops import measure_cost
from tests.docs.blocks import ROOT


def models_with_their_cost() -> list[list[str]]:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = text.partition("| model | image | params M | GMACs |")[2].partition("\n\n")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("row", models_with_their_cost(), ids=lambda row: row[0])
def test_what_the_page_says_of_a_model_is_what_is_counted(row):
    name, image, parameters, gmacs, *_ = row
    cost = measure_cost(name)
    assert (str(cost.image_size[0]), f"{cost.parameters / 1e6:.2f}", f"{cost.gmacs:.2f}") == (image, parameters, gmacs)
