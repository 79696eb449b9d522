"""Tables about evaluations and gates that stop early are what the simulations measured, and keep their promises."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "perf" / "results"
PARTS = json.loads((RESULTS / "anytime.json").read_text(encoding="utf-8"))["parts"]
GATES = json.loads((RESULTS / "sequential_gate.json").read_text(encoding="utf-8"))["gates"]


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("how-many-images.md", "anytime.md"),
        ("how-many-images.md", "anytime_sizes.md"),
        ("production.md", "sequential_gate.md"),
    ],
)
def test_pages_show_the_measured_tables(page: str, table: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert (RESULTS / table).read_text(encoding="utf-8").strip() in text


@pytest.mark.parametrize(("data", "least"), [("CIFAR-10", 25), ("Imagenette", 15), ("demo digits", 11)])
def test_equal_half_widths_need_far_fewer_passes(data: str, least: float) -> None:
    assert min(row["times"] for row in PARTS["curves"] if row["data"] == data and row["depth"] == 8) >= least


def test_half_a_point_needs_about_a_percent_of_the_passes() -> None:
    assert all(row["most"] <= 1.2 and row["half_width"] <= 0.5 for row in PARTS["large"])


def test_intervals_hold_where_evaluations_stop() -> None:
    assert {row["score"] for row in PARTS["coverage"]} == {"mean", "retention", "mCE", "paired difference"}
    assert all(row["worlds"] == 2000 and 93 <= row["coverage"] <= 98.5 for row in PARTS["coverage"])


def test_gates_that_stop_early_err_in_at_most_five_percent() -> None:
    assert all(
        row["either_worse"] <= 5 for row in GATES if row["drop"] <= row["margin"] and "worse" not in row["scenario"]
    )
    assert all(row["either_no_worse"] <= 5 for row in GATES if row["scenario"] == "on the margin")
    assert all(row["no_worse"] <= 5 for row in GATES if row["drop"] > row["margin"])


def test_large_drops_are_decided_soon() -> None:
    drops = [row for row in GATES if row["rule"] == "mCA no worse" and row["drop"] == 5]
    assert all(row["worse"] == 100 and row["passes"] <= 0.6 for row in drops)


def test_goals_of_small_drops_and_equal_models_are_met_and_missed_as_the_page_says() -> None:
    found = {(row["models"], row["drop"], row["margin"], row["rules"]): row for row in GATES if "mCA" in row["rule"]}
    seed = "trained with another seed"
    for drop, margin, goal in ((2, 0.5, 3), (0, 1, 8)):
        for models in ("trained a little differently", "hardly changed"):
            assert all(found[models, drop, margin, rules]["passes"] <= goal for rules in (1, 2))
        assert all(found[seed, drop, margin, rules]["median"] > goal for rules in (1, 2))
    assert found[seed, 2, 0.5, 1]["median"] <= 3.3
    assert [round(found[seed, 0, 1, rules]["median"]) for rules in (1, 2)] == [15, 24]
