"""Rounds: which (image, cell) pairs are measured next, whatever was measured before."""

import numpy as np

from holdfast.evaluation.order import Order
from holdfast.evaluation.rounds import Rounds

CLEAN = 5


def rounds_of(images, *, cells=5, passes=12):
    return Rounds(Order(np.random.default_rng(0).permutation(images), cells), tuple(range(cells)), CLEAN, passes=passes)


def pairs(part):
    """The pairs of a part, clean ones included."""
    found = [(pick.cell, row) for pick in part.picks for row in pick.rows]
    return found + [(CLEAN, row) for pick in part.picks for row in pick.clean]


def counts_of(rounds, goals, done):
    """Images per cell after every round; checks that nothing is measured twice and every image is measured clean."""
    done, found = done.copy(), []
    for part in rounds.parts(goals, done.copy()):
        assert part.passes == len(pairs(part))
        for cell, row in pairs(part):
            assert not done[cell, row]
            done[cell, row] = True
        if len(found) == part.round:
            found.append(None)
        found[part.round] = done.sum(axis=1).tolist()
    assert done[CLEAN][done[:CLEAN].any(axis=0)].all()
    return found


def test_every_round_gives_every_cell_the_same_number_of_images_until_all_are_used():
    rounds = rounds_of(100)
    found = counts_of(rounds, [range(5)], np.zeros((6, 100), bool))
    assert [each[:CLEAN] for each in found] == [[depth] * 5 for depth in rounds.depths]
    assert [each[CLEAN] for each in found] == [min(100, 5 * depth) for depth in rounds.depths]
    assert found[-1] == [100] * 6


def test_parts_are_small_and_balanced():
    for part in rounds_of(100).parts([range(5)], np.zeros((6, 100), bool)):
        assert part.passes <= 12
        assert len({len(pick.rows) for pick in part.picks if pick.cell != CLEAN}) == 1


def test_a_goal_of_some_cells_draws_images_of_these_only():
    rounds, done = rounds_of(100), np.zeros((6, 100), bool)
    for cell in range(5):
        done[cell, rounds.rows(cell, 8)] = True
    done[CLEAN] = done[:5].any(axis=0)
    found = counts_of(rounds, [(1, 2)], done)
    assert [each[:CLEAN] for each in found] == [[8, depth, depth, 8, 8] for depth in rounds.depths[1:]]
    assert rounds.reached(range(5), done) == 1
    assert rounds.reached((1, 2), done) == 1


def test_two_goals_go_on_side_by_side_and_a_shared_cell_is_measured_once():
    rounds, done = rounds_of(100), np.zeros((6, 100), bool)
    for cell in (0, 1):
        done[cell, rounds.rows(cell, 10)] = True
        done[CLEAN, rounds.rows(cell, 10)] = True
    found = counts_of(rounds, [(0, 1), (1, 2)], done)
    assert found[0][:CLEAN] == [12, 12, 8, 0, 0]
    assert found[-1][:CLEAN] == [100, 100, 100, 0, 0]


def test_an_interrupted_round_is_completed_first():
    rounds, done = rounds_of(100), np.zeros((6, 100), bool)
    parts = list(rounds.parts([range(5)], done))
    stopped = next(number for number, part in enumerate(parts) if part.round == 2) + 1
    for part in parts[:stopped]:
        for cell, row in pairs(part):
            done[cell, row] = True
    assert rounds.reached(range(5), done) == 2
    assert rounds.begun(range(5), done)
    assert not rounds.begun((1,), np.zeros((6, 100), bool))
    again = [pair for part in rounds.parts([range(5)], done) for pair in pairs(part)]
    assert sorted(again) == sorted(pair for part in parts[stopped:] for pair in pairs(part))


def test_images_measured_before_are_measured_clean():
    rounds, done = rounds_of(20), np.zeros((6, 20), bool)
    done[:5] = True  # a corrupted set, without its clean images
    done[3, 7] = False
    (last,) = counts_of(rounds, [range(5)], done)[-1:]
    assert last == [20] * 6


def test_the_clean_cell_may_be_the_only_one():
    rounds = Rounds(Order(np.arange(30), 1), (CLEAN,), None)
    found = counts_of(rounds, [(CLEAN,)], np.zeros((6, 30), bool))
    assert [each[CLEAN] for each in found] == rounds.depths
