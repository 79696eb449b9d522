"""Nothing that people can type is missing in the docs: options of commands, public names, recipe values."""

import importlib
import importlib.util
import re

import pytest

from holdfast.cli.main import COMMANDS, build_parser
from holdfast.training.recipe_files import leaves
from tests.docs.blocks import PAGES, ROOT

TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
PACKAGES = ("", "analysis", "attacks", "attention", "corruptions", "data", "evaluation", "methods", "metrics", "models")
PACKAGES += ("published", "records", "reporting", "reporting.export", "studies", "tasks", "training")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_the_docs(command):
    options = {option for action in build_parser(command)._actions for option in action.option_strings}
    asked = {option for option in options if option.startswith("--")} - {"--help"}
    values = {f"--{path}" for path, _, _ in leaves()}
    missing = sorted(option for option in asked if not _named(option.removesuffix("+"), values))
    assert missing == [], f"options of holdfast {command} that no page names"


def _named(option: str, values: set[str]) -> bool:
    """As it is typed; a value of a recipe also by its path."""
    names = (option, option.removeprefix("--")) if option in values else (option,)
    return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-]*\w)", TEXT) for name in names)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda name: f"holdfast.{name}".rstrip("."))
def test_every_public_name_is_in_the_docs(package):
    module = importlib.import_module(f"holdfast.{package}".rstrip("."))
    if f"\n::: {module.__name__}\n" in TEXT:  # the reference renders all of it
        return
    missing = [name for name in getattr(module, "__all__", ()) if not re.search(rf"\b{re.escape(name)}\b", TEXT)]
    assert missing == [], f"public names of {module.__name__} that no page names"


@pytest.mark.parametrize("script", ["make_recipe_values", "make_commands", "make_how_long"])
def test_a_page_that_is_made_is_current(script):
    made = made_by(script)
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), f"run python docs/tools/{script}.py"


def test_no_row_of_a_table_is_broken_in_two():
    assert [line for line in TEXT.splitlines() if line.startswith("| ") and not line.rstrip().endswith("|")] == []


def made_by(script: str):
    """A script of docs/tools as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "docs" / "tools" / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
