"""Makes docs/recipe-values.md from the dataclasses of a recipe: ``python docs/make_recipe_values.py``."""

import typing
from pathlib import Path
from typing import Any

from holdfast import older_recipes
from holdfast.cli.train import _descriptions, _shown
from holdfast.training.recipe_files import leaves

PAGE = Path(__file__).parent / "recipe-values.md"
INTRODUCTION = """# All recipe values

*Made from the recipe's dataclasses by `docs/make_recipe_values.py`; a test keeps it current.*

A recipe is a YAML file with these values, nested by their dots; what it leaves out has the default. On the command
line each is an option of [`holdfast train`](train.md) and [`holdfast study`](studies.md): `--train.epochs=10`. In
Python: `overrides={"train": {"epochs": 10}}`. Lists and mappings are
written as YAML: `--model.kwargs='{drop_path_rate: 0.1}'`.
"""


def page() -> str:
    """The whole page."""
    parts, last = [INTRODUCTION], None
    for path, kind, field in leaves():
        section, _, name = path.rpartition(".")
        if section != last:
            parts.append(
                f"## {section or 'The recipe itself'}\n\n| value | type | default | meaning |\n|---|---|---|---|"
            )
            last = section
        default = field.default_factory() if callable(field.default_factory) else field.default
        aliases = "".join(f", also `{flag}`" for flag in older_recipes.FLAGS.get(path, []))
        cells = (f"`{path}`{aliases}", written(kind), f"`{_shown(default)}`", _descriptions(section)[name])
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(part if part.startswith("|") else f"\n{part}" for part in parts).lstrip() + "\n"


def written(kind: Any) -> str:
    """A type as people say it."""
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if origin in (list, tuple):
        kinds = list(dict.fromkeys(written(each) for each in inner if each is not Ellipsis))
        count = f"{len(inner)} × " if origin is tuple and Ellipsis not in inner else "list of "
        return f"{count}{', '.join(kinds)}"
    if origin is dict:
        return "mapping"
    if inner:
        return " or ".join(written(each) for each in inner)
    return {"NoneType": "null", "str": "text", "int": "whole number", "float": "number", "bool": "true or false"}[
        kind.__name__
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
