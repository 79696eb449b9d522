"""Every fenced block of README and docs is run, page by page, with small stand-ins for what is large or elsewhere."""

import ast
import builtins
import importlib
import runpy
import shlex
import shutil
import sys
import time
import tomllib
from glob import glob
from pathlib import Path

import pytest
import yaml

from tests.docs import world
from tests.docs.blocks import PAGES, ROOT, Block, blocks_of

LANGUAGES = {"bash", "python", "yaml", "text"}
LAUNCHERS = {"torchrun", "accelerate"}
REGISTRIES = (
    "holdfast.analysis.registry:ANALYSES",
    "holdfast.corruptions.apply:FUNCTIONS",
    "holdfast.corruptions.severities:KINDS",
    "holdfast.data:OFFICIAL",
    "holdfast.data.factory:SOURCES",
    "holdfast.evaluation.suites:ATTACKS",
    "holdfast.evaluation.suites:_CELLS",
    "holdfast.evaluation.suites:STORED",
    "holdfast.evaluation.suites:SUITES",
    "holdfast.methods.robust_training:TERMS",
    "holdfast.metrics:METRICS",
    "holdfast.models.adaptation:ADAPTERS",
    "holdfast.tasks:TASKS",
)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "world"
    folder.mkdir()
    world.build(folder)
    return folder


@pytest.fixture
def place(built, tmp_path, monkeypatch) -> Path:
    """A folder of its own for every page, with all that it may name."""
    folder = tmp_path / "here"
    folder.mkdir()
    for entry in built.iterdir():
        if entry.name == "runs":
            shutil.copytree(entry, folder / entry.name)
        else:
            (folder / entry.name).symlink_to(entry)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def registries(place, tmp_path_factory):
    """After a page as they were before it."""
    homes = [name.split(":") for name in REGISTRIES]
    tables = [getattr(importlib.import_module(module), table) for module, table in homes]
    before = [dict(table) for table in tables]
    _forget_modules_below(tmp_path_factory.getbasetemp())
    yield
    _forget_modules_below(tmp_path_factory.getbasetemp())
    for table, held in zip(tables, before, strict=True):
        table.clear()
        table.update(held)


def _forget_modules_below(folder: Path) -> None:
    """Pages may have modules of the same name, such as my_models.py; those of other tests count, too."""
    root = folder.resolve()
    for name, module in list(sys.modules.items()):
        if root in Path(getattr(module, "__file__", None) or "/").resolve().parents:
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_fence_says_what_is_in_it(page):
    strange = [block.place for block in blocks_of(page) if block.language not in LANGUAGES]
    assert strange == [], f"a block must be one of {sorted(LANGUAGES)}"
    hidden = [b.place for b in blocks_of(page) if b.language == "text" and b.text.startswith(("holdfast ", "$ "))]
    assert page.name == "README.md" or hidden == [], "commands must be bash, to be run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_blocks_of_a_page_run(page, registries, place):
    run_page([block for block in blocks_of(page) if block.remark != "full"])


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_long_blocks_of_a_page_run(page, registries, place):
    blocks = blocks_of(page)
    if not any(block.remark == "full" for block in blocks):
        pytest.skip("none here")
    run_page(blocks)


def run_page(blocks: list[Block]) -> None:
    names: dict = {"__name__": "__main__"}
    for block in blocks:
        began = time.process_time()
        try:
            if block.remark != "not run" or block.language == "bash":
                RUN[block.language](block, names)
        except BaseException as error:
            error.add_note(f"in the block at {block.place}")
            raise
        print(f"{block.place}: {time.process_time() - began:.1f} s", file=sys.stderr)


def run_python(block: Block, names: dict) -> None:
    """In the names of the page's blocks before; what begins with ``# name.py`` is that file, and imported."""
    text = world.small(block.text)
    first = text.splitlines()[0]
    if first.startswith("# ") and first.endswith(".py"):
        file = Path(first.removeprefix("# "))
        file.write_text(text)
        names |= vars(importlib.import_module(file.stem))
        return
    for name in missing_names(text, names):
        make = world.NAMES.get(block.page, {}).get(name) or world.NAMES[""].get(name)
        assert make, f"{block.place} uses {name!r}, which nothing on the page defines and tests/docs/world.py neither"
        names[name] = make()
    exec(compile(world.smaller_calls(text), block.place, "exec"), names)


def missing_names(text: str, names: dict) -> list[str]:
    """What a block reads and neither it, the page's blocks before nor Python defines."""
    nodes = list(ast.walk(ast.parse(text)))
    used = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    made = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return [name for name in dict.fromkeys(used) if name not in made | names.keys() | set(dir(builtins))]


def run_bash(block: Block, names: dict) -> None:
    for line in world.small(block.text).replace("\\\n", " ").splitlines():
        for command in line.split(" && "):
            words = [name for word in shlex.split(command, comments=True) for name in expanded(word)]
            if words and (block.remark != "not run" or words[0] == "holdfast"):
                run_command(words, block)


def expanded(word: str) -> list[str]:
    """As the shell does it; the first two are enough."""
    return sorted(glob(word))[:2] or [word] if "*" in word else [word]


def run_command(words: list[str], block: Block) -> None:
    if words[0] in LAUNCHERS:  # what several processes do is tested with the loop and the runner
        words = words[words.index("-m") + 1 :]
    program, rest = words[0], words[1:]
    if program == "holdfast":
        run_holdfast(rest, block)
    elif program == "make":
        targets = (ROOT / "Makefile").read_text()
        assert f"\n{rest[0]}: " in targets or f"\n{rest[0]}:\n" in targets
    elif program == "pip":
        assert_installable(rest)
    elif words[:2] == ["python", "-c"]:
        exec(compile(words[2], block.place, "exec"), {})
    elif program == "python":
        sys.argv = rest
        runpy.run_path(str(ROOT / rest[0]), run_name="__main__")
    else:
        raise AssertionError(f"{block.place}: nobody here knows how to run {program!r}")


def run_holdfast(words: list[str], block: Block) -> None:
    from holdfast.cli.main import build_parser, main

    if block.remark == "not run" or any(word.endswith("…") for word in words):  # as far as it says something
        options = {option for action in build_parser(words[0])._actions for option in action.option_strings}
        assert {word.split("=")[0] for word in words if word.startswith("--")} <= options | {"--plugin"}
        return
    world.make_room(words)
    fine = {0, 1} if words[0] == "gate" else {0}  # a gate may be shut
    assert main(world.smaller(words)) in fine, f"{block.place}: holdfast {' '.join(world.smaller(words))}"


def assert_installable(words: list[str]) -> None:
    """Nothing is installed; the extras that are named exist, of the distribution that is ours."""
    (what,) = words[1:]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    name, _, asked = what.rstrip("]").partition("[")
    assert name in (".", "holdfast-vision"), name
    assert {extra for extra in asked.split(",") if extra} <= set(extras)


def run_yaml(block: Block, names: dict) -> None:
    """A study, rules of a gate, or some values of a recipe: run for a step."""
    import holdfast
    from holdfast.data.class_maps import Outputs, open_class_map
    from holdfast.studies.config import load_study

    text = world.small(block.text)
    values = yaml.safe_load(text)
    if "aggregation" in values:
        name = text.split("# ")[1].split("\n")[0]
        Path(name).write_text(text)
        assert open_class_map(name, Outputs(1000)).members
        return None
    if "rules" in values:
        Path("rules.yaml").write_text(text)
        return run_holdfast(["gate", "runs/b", "--against", "runs/a", "--rules", "rules.yaml"], block)
    if "rows" in values or "sweep" in values:
        Path("study.yaml").write_text(text if "recipe" in values else f"# As before\nextends: cifar10/main\n{text}")
        assert load_study("study.yaml").rows
        return None
    tiny = {
        "data": {"train_subset": 8, "val_subset": 8, "workers": 0},
        "train": {"epochs": 1, "batch_size": 4, "device": "cpu"},
        "schedule": {"warmup_epochs": 0},
    }
    return holdfast.train("digits/fan_nano", out=f"runs/{block.line}", overrides={**values, **tiny}, show=False)


def run_nothing(block: Block, names: dict) -> None:
    """Text: what a command prints or a folder holds."""


RUN = {"python": run_python, "bash": run_bash, "yaml": run_yaml, "text": run_nothing}
