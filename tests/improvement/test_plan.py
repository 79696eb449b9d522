"""A plan fills its budget, keeps the time per candidate equal, and refuses what does not fit."""

import json
import re

import pytest

from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.improvement.costs import MeasuringCost, TrainingCost
from holdfast.improvement.improve import make_request
from holdfast.improvement.plan import Room, Step, divide, length_of, read_plan
from tests.improvement.plans import short_plan

COSTS = {
    name: TrainingCost(start=1.0, epoch=factor * 10.0, steps=40)
    for name, factor in (("plain", 1), ("low-lr", 1), ("augmix", 3), ("afat", 2), ("sam", 2), ("adl", 1.5))
}
TESTING = {
    ("clean", "corruptions-135"): MeasuringCost(1.0, 0.46),
    ("quick",): MeasuringCost(1.0, 0.16),
}


def room(budget: float, **changes) -> Room:
    given = {
        "costs": COSTS,
        "overhead": 2.0,
        "choosing": MeasuringCost(1.0, 0.11),
        "testing": TESTING,
        "counts": {"choose": 500, "test": 1000},
        "mixes": True,
    }
    return Room(budget=budget, **given | changes)


def spent(room: Room) -> float:
    """What a division takes by its forecasts."""
    found = divide(room)
    sizes = [rung.keep for rung in found.rungs]
    measured = sum(sizes) + sizes[-1] * (len(found.alphas) - 1) + (2 + sizes[-1]) * found.soups
    seconds = measured * room.choosing.of(found.choose)
    seconds += (2 * room.seeds + room.mixes) * room.testing[found.suites].of(found.test)
    seconds += sum(rung.keep * rung.seconds for rung in found.rungs)
    return seconds + 2 * (room.seeds - 1) * found.rungs[-1].seconds


@pytest.mark.parametrize("budget", [600.0, 3600.0, 4 * 3600.0])
@pytest.mark.parametrize("changes", [{}, {"mixes": False}, {"seeds": 3}])
def test_the_forecast_of_a_plan_fills_its_budget(budget, changes):
    assert 0.6 * budget <= spent(room(budget, **changes)) <= 0.9 * budget


def test_a_larger_budget_takes_more_candidates_and_more_images():
    small, large = divide(room(400.0)), divide(room(4 * 3600.0))
    assert set(small.names) < set(large.names) == set(COSTS)
    assert small.test <= large.test == 1000
    assert large.suites == ("clean", "corruptions-135")
    assert all(reason == "does not fit the budget" for reason in small.left_out.values())


@pytest.mark.parametrize("changes", [{}, {"mixes": False}, {"seeds": 3}, {"costs": dict([*COSTS.items()][:1])}])
def test_a_budget_that_is_too_small_is_refused_with_the_smallest_that_is_enough(changes):
    with pytest.raises(HoldfastError, match="--budget must be at least about") as refused:
        divide(room(30.0, **changes))
    amount, unit = re.search(r"at least about ([\d.]+) (s|min|h)", str(refused.value)).groups()
    least = float(amount) * {"s": 1, "min": 60, "h": 3600}[unit]
    assert divide(room(1.1 * least, **changes)).names
    with pytest.raises(HoldfastError, match="--budget must be at least about"):
        divide(room(0.7 * least, **changes))


def test_everyone_gets_the_same_time_so_cheaper_steps_mean_more_epochs():
    lengths = {name: length_of(COSTS[name], 103.0, overhead=2.0) for name in ("plain", "augmix", "afat")}
    assert lengths == {"plain": {"epochs": 10}, "augmix": {"epochs": 3}, "afat": {"epochs": 5}}
    assert length_of(COSTS["augmix"], 33.0, overhead=2.0) == {"epochs": 1}
    assert length_of(COSTS["augmix"], 18.0, overhead=2.0) == {"steps": 20, "whole": 0.5}
    assert length_of(COSTS["plain"], 103.0, overhead=2.0, slower=2.0) == {"epochs": 4}


@pytest.fixture
def written(tmp_path):
    """The path of a plan.json, and its values."""
    request = make_request(None, budget="1h", data={}, test="digits:test", recipe="digits/vit_nano")
    names = {"plain": {}, "low-lr": {"optimizer": {"lr": 1e-4}}}
    lengths = {"0": {"plain": {"epochs": 2}, "low-lr": {"steps": 3, "whole": 0.5}}}
    plan = short_plan(request, names, choosing=Step("digits[1::2]", ("clean", "selection"), 30), lengths=lengths)
    plan.write(tmp_path)
    assert read_plan(tmp_path / "plan.json") == plan
    return tmp_path / "plan.json", json.loads((tmp_path / "plan.json").read_text())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("report", "left out"),  # as an earlier version wrote it
        ("version", 2),
        ("costs", {}),
        ("costs", {"plain": {"start": 0.1, "epoch": "1 s", "steps": 2}}),
        ("candidates", {"low-lr": {}}),
        ("choice", {"start": 0.0, "image": 0.0}),
        ("choosing", {"data": "digits", "suites": "clean", "images": 30}),
        ("testing", {"data": "digits:test", "suites": ["quick"], "images": 0}),
        ("rungs", []),
        ("lengths", {}),
        ("lengths", {"0": {"plain": {}, "low-lr": {"epochs": 1}}}),
        ("request", None),
        ("seeds", True),
    ],
)
def test_a_plan_of_an_earlier_version_or_a_damaged_one_is_refused_in_one_sentence(written, capsys, key, value):
    path, values = written
    changed = {name: each for name, each in values.items() if name != key}
    path.write_text(json.dumps(changed if value == "left out" else changed | {key: value}))
    words = ["improve", "digits/vit_nano", "--data.test=digits:test", "--budget", "1h", "--out", str(path.parent)]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "plan.json' cannot be read as a plan of this version; choose another --out" in line
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff"])
def test_a_file_that_is_no_plan_is_refused(tmp_path, text):
    (tmp_path / "plan.json").write_text(text, encoding="latin-1")
    with pytest.raises(HoldfastError, match="cannot be read as a plan of this version; choose another --out"):
        read_plan(tmp_path / "plan.json")
