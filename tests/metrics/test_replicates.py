"""Replicates of every quantity of every cell equal a recomputation without the images of the group."""

from dataclasses import replace

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare
from holdfast.metrics.replicates import in_order, replicate_cells, used_images
from holdfast.metrics.summary import formulas_of, summarise
from holdfast.records.records import CellRecord, Records
from tests.metrics.test_average_precision import found_fields, random_case, truth_fields
from tests.records.making_records import cell, described, names, records

KINDS = ("fog", "snow")


def classified(images_of):
    """Cells with random answers, each of the given images out of 230."""
    rng = np.random.default_rng(0)
    cells = {}
    for name, chosen in images_of.items():
        made = cell(rng.random(len(chosen)) < 0.7, ids=names(230)[chosen])
        nll = rng.random(len(chosen)).astype(np.float32)
        cells[name] = replace(made, targets=chosen % 10, fields={**made.fields, "nll": nll})
    return records(cells)


def segmented(images_of):
    rng = np.random.default_rng(1)
    cells = {}
    for name, chosen in described({name: cell([True]) for name in images_of}).items():
        count = len(images_of[name])
        parts = rng.integers(5, 50, (count, 3, 3))
        parts[:, 2] = np.minimum(parts[:, 0], parts[:, 1]) // 2
        fields = {"counts": parts, "bands": np.stack([parts] * 5, axis=1), "boundary": parts}
        ids = np.array([f"scenes/{number:03d}" for number in images_of[name]])
        cells[name] = CellRecord(ids, np.zeros(count, np.int64), fields, chosen.header, task="segmentation")
    return Records.of({"task": "segmentation", "classes": 3, "class_names": ["a", "b", "c"]}, cells)


def detected(images_of):
    images, found = random_case(1)
    fields = truth_fields(images) | found_fields(found, len(images))
    ids = np.array([f"{number:03d}" for number in range(len(images))])
    cells = {}
    for name, made in described({name: cell([True]) for name in images_of}).items():
        every = CellRecord(ids, np.zeros(len(ids), np.int64), fields, made.header, task="detection")
        cells[name] = in_order(every, ids[images_of[name] % len(ids)])
    return Records.of({"task": "detection", "classes": 3}, cells)


MAKERS = {"classification": classified, "segmentation": segmented, "detection": detected}


def same_images(count):
    return {name: np.arange(count) for name in ("clean", *(f"{kind}/{s}" for kind in KINDS for s in (1, 5)))}


def other_images(count):
    """Odd or even images from cell to cell, as in a partial evaluation; clean has all of them."""
    every = np.arange(count)
    return {name: every[place % 2 :: 2] if place else every for place, name in enumerate(same_images(count))}


def recomputed_without(cells, used, groups, group):
    """The quantities of the images that stay, from records that never had the others."""
    gone = set(used.ids[groups.numbers == group].tolist()) if group is not None else set()
    kept = {
        name: in_order(held, [each for each in used.of_cell(name).tolist() if each not in gone])
        for name, held in cells.items()
    }
    return replicate_cells(kept, used_images(kept, images="own"), None)


def check_by_brute_force(made, images):
    cells = made.cells
    used = used_images(cells, images=images)
    groups = used.groups()
    found = replicate_cells(cells, used, groups)
    formulas = formulas_of(made, cells, found, reference=None)
    for group in (None, *range(0, groups.count, max(1, groups.count // 10))):
        again = recomputed_without(cells, used, groups, group)
        place = 0 if group is None else 1 + group
        for key in found:
            if len(found[key]) > 1 and key in again:
                assert found[key][place] == pytest.approx(again[key][0], rel=1e-12, abs=1e-12), (key, group)
        for formula in formulas:
            values = np.atleast_1d(formula.compute(found))
            if len(values) > 1 and again.keys() >= set(formula.reads):
                wanted = float(np.atleast_1d(formula.compute(again))[0])
                assert values[place] == pytest.approx(wanted, rel=1e-10, abs=1e-10, nan_ok=True), (formula.name, group)


@pytest.mark.parametrize(("task", "count"), [("classification", 230), ("segmentation", 12), ("detection", 6)])
@pytest.mark.parametrize("images", ["shared", "own"])
def test_a_replicate_is_what_the_images_that_stay_give(task, count, images):
    chosen = other_images(count)
    if images == "shared":  # odd and even images have none in common
        chosen = {name: np.union1d(each, np.arange(count - 3)) for name, each in chosen.items()}
    check_by_brute_force(MAKERS[task](chosen), images)


@pytest.mark.parametrize("task", MAKERS)
def test_own_images_of_a_complete_grid_give_the_same_numbers_to_the_last_digit(task):
    made = MAKERS[task](same_images({"classification": 230, "segmentation": 12, "detection": 6}[task]))
    shared, own = (summarise(made, images=images) for images in ("shared", "own"))
    assert [repr(score) for score in shared] == [repr(score) for score in own]


def test_a_cells_mean_is_over_its_own_images_and_its_interval_knows_how_few_they_are():
    cells = {"clean": cell([True] * 40), "fog/1": cell([True] * 4, ids=names(40)[[3, 9, 20, 31]])}
    summary = summarise(records(cells), images="own")
    alone = summarise(records({"fog/1": cells["fog/1"]}))
    assert summary["clean"].value == 100
    assert summary.images == 40
    for bound in ("value", "low", "high"):
        assert getattr(summary["accuracy/fog_partial"], bound) == getattr(alone["accuracy/fog_partial"], bound)


def test_the_error_of_a_cells_score_is_that_of_its_own_images():
    right = np.arange(30) % 3 > 0
    cells = {"clean": cell(np.arange(150) % 5 > 0), "fog/1": cell(right, ids=names(150)[::5])}
    summary, alone = summarise(records(cells), images="own"), summarise(records({"fog/1": cells["fog/1"]}))
    first, second = summary["accuracy/fog_partial"], alone["accuracy/fog_partial"]
    assert (first.low, first.high) == pytest.approx((second.low, second.high), rel=1e-9)


def test_a_paired_difference_of_partial_records_uses_the_pairs_that_both_have():
    rng = np.random.default_rng(5)
    one, other = (
        records(
            {
                "clean": cell(rng.random(60) < 0.8),
                "fog/1": cell(rng.random(30) < 0.6, ids=names(60)[start : start + 30]),
            }
        )
        for start in (0, 10)
    )
    found = compare(one, other, images="own").differences["accuracy/fog_partial"]
    both = names(60)[10:30]
    restricted = [
        records({name: in_order(held, both) if name == "fog/1" else held for name, held in each.cells.items()})
        for each in (one, other)
    ]
    again = compare(*restricted, images="own").differences["accuracy/fog_partial"]
    assert found == again
    assert found.first == pytest.approx(100 * in_order(one.cells["fog/1"], both).accuracy)


def test_cells_without_a_common_image_have_no_shared_scores_but_own_ones():
    cells = {"clean": cell([True, False], ids=["a", "b"]), "fog/1": cell([True, True], ids=["c", "d"])}
    with pytest.raises(HoldfastError, match="at least one common image"):
        summarise(records(cells))
    own = summarise(records(cells), images="own")
    assert (own["clean"].value, own["accuracy/fog_partial"].value, own.images) == (50, 100, 4)


def test_scores_of_whole_sets_come_from_the_images_that_are_compared():
    """AP of all of a cell's images was shown beside an interval of the shared ones."""
    made = detected({"clean": np.arange(6)})
    fewer = detected({"clean": np.arange(4)})
    found = compare(made, fewer).differences["clean"]
    assert found.first == found.second
    assert found.first == summarise(fewer)["clean"].value


def test_a_score_says_what_it_reads():
    for task, maker in MAKERS.items():
        made = maker(same_images({"classification": 60}.get(task, 6)))
        found = replicate_cells(made.cells, used_images(made.cells), None)
        for formula in formulas_of(made, made.cells, found, reference=None):
            assert formula.reads, formula.name
            formula.compute({key: found[key] for key in formula.reads})  # needs nothing else
            with pytest.raises(KeyError):
                formula.compute({key: found[key] for key in formula.reads[1:]})
