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
    values = {f"--{path}" for path, _, _ in leaves()}
    options = {option for action in build_parser(command)._actions for option in action.option_strings}
    asked = {option for option in options if option.startswith("--")} - values - {"--help"}
    missing = sorted(option for option in asked if not re.search(rf"{re.escape(option)}(?![\w.-]*\w)", TEXT))
    assert missing == [], f"options of holdfast {command} that no page names"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda name: f"holdfast.{name}".rstrip("."))
def test_every_public_name_is_in_the_docs(package):
    module = importlib.import_module(f"holdfast.{package}".rstrip("."))
    missing = [name for name in getattr(module, "__all__", ()) if not re.search(rf"\b{re.escape(name)}\b", TEXT)]
    assert missing == [], f"public names of {module.__name__} that no page names"


def made_by(script: str):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "docs" / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_recipe_values_is_current():
    made = made_by("make_recipe_values").page()
    assert (ROOT / "docs" / "recipe-values.md").read_text(encoding="utf-8") == made, (
        "run python docs/make_recipe_values.py"
    )
