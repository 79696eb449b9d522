"""Plug-ins and imports written from the pages of November 2026 run unchanged, whatever has been renamed since.

The pages in ``pages`` and the names in ``public_names.txt`` are copies of that day: nobody edits them.
"""

import importlib
import operator
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from holdfast.tasks import TASKS
from tests.docs import blocks
from tests.docs.test_blocks import built, place, registries, run_page  # noqa: F401  (fixtures)

HERE = Path(__file__).parent
PUBLIC = (HERE / "public_names.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_public_name_can_still_be_imported(name):
    module, _, attributes = name.partition(":")
    found = importlib.import_module(module)
    assert not attributes or operator.attrgetter(attributes)(found) is not None


@pytest.mark.parametrize(
    ("page", "languages"),
    [
        ("bring-your-own.md", {"python", "bash"}),
        ("objectives.md", {"python"}),
        ("analysis-overview.md", {"python"}),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("registries", "place")
def test_the_plug_ins_of_a_page_run_unchanged(page, languages, tmp_path, monkeypatch):
    for name, value in counting_of_that_day(tmp_path).items():  # which a page imports from a clone
        monkeypatch.setattr(f"tests.tasks.counting.{name}", value, raising=False)
    known = {"analysis-overview.md": "docs/analysis/overview.md"}.get(page, f"docs/{page}")
    found = [replace(block, page=known) for block in blocks.blocks_of(HERE / "pages" / page)]
    run_page([block for block in found if block.language in languages and block.remark != "full"])


def counting_of_that_day(folder):
    plugin = folder / "counting.py"
    plugin.write_bytes((HERE / "pages" / "counting.py.txt").read_bytes())
    own = runpy.run_path(str(plugin))
    return {name: own[name] for name in ("CountBright", "Counting", "Squares")}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_task_of_ones_own_runs_unchanged(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.tasks.TASKS", dict(TASKS))
    own = counting_of_that_day(tmp_path)
    holdfast.tasks.register_task(own["Counting"]())
    records = holdfast.evaluate(own["CountBright"](), own["Squares"](), "clean,pgd5", workers=0, show=False)
    assert records.summary(intervals=False)["clean"].value == 100


@pytest.mark.parametrize(
    "before",
    [
        "",
        pytest.param("import holdfast.lab.look", marks=pytest.mark.full),
        "from holdfast.lab.look import Picture",
    ],
)
def test_a_function_with_the_name_of_a_moved_module_can_be_called_also_after_that_was_imported(before):
    call = "from holdfast.lab import look\ntry: look()\nexcept TypeError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", f"{before}\n{call}"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("inspect_image() missing")
