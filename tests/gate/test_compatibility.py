"""Record sets are compared where data, protocol and seed agree; of their images, the common ones are paired."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.gate.compatibility import check_comparable, find_differences, match_record_sets, pair_images
from holdfast.gate.paired_scores import paired_scores_of
from tests.records.making_records import cell, records

KNOWN = {"data_fingerprint": "abc", "seed": 0, "versions": {"holdfast": "0.1.0", "numpy": "2.0", "torch": "2.6"}}


def side(right=(True, False, True), *, ids=("a", "b", "c"), cells=None, **header):
    (found,) = paired_scores_of(records(cells or {"clean": cell(right, ids=ids)}, **{**KNOWN, **header}))
    return found


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({}, set()),
        ({"model": "another", "amp": "bf16", "versions": {**KNOWN["versions"], "torch": "2.7"}}, set()),
        ({"seed": 1}, {"seed"}),
        ({"data_fingerprint": "xyz", "preset": "cifar"}, {"data_fingerprint", "preset"}),
        ({"versions": {**KNOWN["versions"], "numpy": "1.26"}}, {"version of numpy"}),
    ],
)
def test_data_protocol_seed_and_what_makes_pixels_must_agree_and_the_model_may_differ(header, names):
    assert set(find_differences(side(**header), side())) == names
    if names:
        with pytest.raises(HoldfastError, match="evaluate again, or save the baseline again"):
            check_comparable(side(**header).header, side())


def test_every_set_of_the_baseline_finds_its_partner():
    first, second = side(), side(data="other", data_fingerprint="xyz")
    pairs = match_record_sets([second, first], [first, second])
    assert [(pair.new, pair.old) for pair in pairs] == [(first, first), (second, second)]
    with pytest.raises(HoldfastError, match="got 2 that match the baseline"):
        match_record_sets([first, side()], [first])


def test_common_images_are_paired_in_one_order():
    new = side([True, False, True], cells={"clean": cell([True, False, True], ids=["c", "a", "b"])})
    both = {"clean": cell([True] * 3, ids=["a", "b", "c"]), "pgd5": cell([False, True], ids=["b", "c"])}
    pair = pair_images(new, side(cells=both))
    assert pair.ids.tolist() == ["b", "c"]
    assert pair.cells == ("clean",)
    assert [columns["clean", "right"].tolist() for columns in pair.columns] == [[1, 1], [1, 1]]
    assert pair.counts == {"clean": 2}


def test_a_cell_of_another_definition_is_not_compared():
    old = side()
    new = replace(old, cells={"clean": {**old.cells["clean"], "suite": "another"}})
    pair = pair_images(new, old)
    assert (pair.cells, pair.unlike) == ((), ("clean",))
    assert pair.quantities == []


def test_other_images_are_refused():
    with pytest.raises(HoldfastError, match="must be evaluated on the images of the baseline"):
        pair_images(side(ids=("a", "b", "x")), side())
    empty = replace(side(), ids=np.array(["z"]), missing=("a", "b", "c"))
    with pytest.raises(HoldfastError, match="must have an image in common"):
        pair_images(empty, side())
