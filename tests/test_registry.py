"""Registries: one way to add a row, a name only once; rows that were assigned before still are, with a warning."""

import pytest

import holdfast.analysis.registry
import holdfast.attention.registry
import holdfast.benchmarks
import holdfast.deploy.detection_layouts
import holdfast.evaluation.suites
import holdfast.methods
import holdfast.metrics.custom
import holdfast.models.adaptation
import holdfast.tasks
from holdfast.attention import register_reader
from holdfast.cli.list import LISTERS
from holdfast.cli.main import main
from holdfast.data import SOURCES, register_source
from holdfast.errors import HoldfastError
from holdfast.registry import Registry, add_row, load
from tests.tasks.counting import COUNTING

# every registry, the function that adds to it, and a further row
ROWS = {
    "analysis": (holdfast.analysis.registry.ANALYSES, holdfast.analysis.registry.register_analysis, None),
    "term": (holdfast.methods.TERMS, holdfast.methods.register_term, lambda options, context: None),
    "objective": (holdfast.methods.OBJECTIVES, holdfast.methods.register_objective, lambda: None),
    "adapter": (holdfast.models.adaptation.ADAPTERS, holdfast.methods.register_adapter, None),
    "data": (SOURCES, register_source, lambda rest, *, split: None),
    "benchmark": (holdfast.benchmarks.BENCHMARKS, holdfast.benchmarks.register_benchmark, None),
    "layout": (
        holdfast.deploy.detection_layouts.LAYOUTS,
        holdfast.deploy.detection_layouts.register_layout,
        None,
    ),
    "metric": (holdfast.metrics.custom.METRICS, holdfast.metrics.custom.register_metric, lambda cells: []),
}


@pytest.fixture(autouse=True)
def as_before():
    tables = [rows for rows, _, _ in ROWS.values()] + [holdfast.tasks.TASKS, holdfast.attention.registry.READERS]
    held = [dict(rows) for rows in tables]
    yield
    for rows, before in zip(tables, held, strict=True):
        rows.clear()
        rows.update(before)


@pytest.mark.parametrize("what", ROWS)
def test_a_row_is_added_by_name_object_and_line_and_only_once(what, recwarn):
    rows, register, row = ROWS[what]
    row = next(iter(rows.values())) if row is None else row
    register("another", row, "a line")
    assert "another" in rows
    lines = {**holdfast.methods.OBJECTIVE_LINES, "another": "a line"} if what == "objective" else {}
    line = lines.get("another") or getattr(rows["another"], "line", None) or rows["another"].suite
    assert line == "a line"
    assert not [each for each in recwarn if each.category is DeprecationWarning]
    with pytest.raises(HoldfastError, match=f"{what} 'another' is already registered: choose another name"):
        register("another", row, "a line")


def test_a_task_has_its_line_and_its_old_call_warns():
    holdfast.tasks.register_task("counting", COUNTING, "how many squares")
    assert holdfast.tasks.task_named("counting").line == "how many squares"
    with pytest.raises(HoldfastError, match="name must be that of the task, 'counting', got 'other'"):
        holdfast.tasks.register_task("other", COUNTING)
    dict.pop(holdfast.tasks.TASKS, "counting")
    with pytest.warns(DeprecationWarning, match=r"register_task now takes \(name, task, line\)"):
        holdfast.tasks.register_task(COUNTING)


@pytest.mark.parametrize("what", ROWS)
def test_rows_are_still_assigned_with_a_warning(what):
    rows, register, _ = ROWS[what]
    with pytest.warns(DeprecationWarning, match=rf"assigning rows is deprecated; use holdfast\.\S*{register.__name__}"):
        rows["assigned"] = "a row"
    assert rows["assigned"] == "a row"


def test_assigning_a_row_works_and_says_what_to_call():
    rows = Registry({"one": 1}, register="holdfast.register_number")
    with pytest.warns(DeprecationWarning, match=r"use holdfast\.register_number"):
        rows["two"] = 2
    assert dict(rows) == {"one": 1, "two": 2}
    with pytest.raises(HoldfastError, match="number 'two' is already registered"):
        add_row(rows, "two", 3, what="number")


def cells(name, source, steps, extra):
    return []


def look(name, folder):
    return None


def test_suites_and_official_sets_take_their_old_order_with_a_warning(monkeypatch):
    suites = holdfast.evaluation.suites
    for name in ("SUITES", "_CELLS", "STORED", "SETS"):
        monkeypatch.setattr(suites, name, dict(getattr(suites, name)))
    suites.register_suite("new", cells, "a line")
    with pytest.warns(DeprecationWarning, match=r"register_suite now takes \(name, cells, line\)"):
        suites.register_suite("old", "a line", cells)
    assert suites._CELLS["new"] is suites._CELLS["old"] is cells
    assert suites.SUITES["new"] == suites.SUITES["old"] == "a line"
    suites.register_official("newer", look, "a line")
    with pytest.warns(DeprecationWarning, match=r"register_official now takes \(name, look, line\)"):
        suites.register_official("older", "a line", look)
    assert suites.SETS["newer"] == suites.SETS["older"]


def test_a_reader_is_registered_for_a_class_of_modules_once():
    reader = next(iter(holdfast.attention.registry.READERS.values()))
    register_reader(int, reader)
    with pytest.raises(HoldfastError, match="already registered"):
        register_reader(int, reader)


def test_what_lies_above_is_loaded_by_its_name():
    assert load("holdfast.registry:add_row") is add_row


LISTED = {
    "analyses": "stability",
    "benchmarks": "fan-16",
    "corruptions": "glass_blur",
    "data": "cityscapes-c",
    "layouts": "rt-detr",
    "methods": "robust: afat",
    "metrics": "hits",
    "models": "fan_nano_hybrid",
    "recipes": "digits/fan_nano",
    "studies": "camvid/main",
    "suites": "pgd5-rspc",
    "tasks": "one class per pixel",
}


@pytest.mark.parametrize("what", LISTERS)
def test_registries_are_listed(what, capsys):
    holdfast.metrics.register_metric("hits", lambda cells: [], "a line")
    assert main(["list", what]) == 0
    assert LISTED[what] in capsys.readouterr().out
