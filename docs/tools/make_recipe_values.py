"""Makes docs/recipe-values.md from the dataclasses of a recipe: ``python docs/tools/make_recipe_values.py``."""

from pathlib import Path

from holdfast.cli.train import _descriptions, _format_default
from holdfast.io.markdown import table
from holdfast.io.validation import in_words
from holdfast.training.recipe_files import leaves

PAGE = Path(__file__).parents[1] / "recipe-values.md"
INTRODUCTION = """# All recipe values

*Made from the recipe's dataclasses by `docs/tools/make_recipe_values.py`; a test keeps it current.*

A recipe is a YAML file with these values, nested by their dots; omitted values have the default. On the command
line each is an option of [`holdfast train`](train.md) and [`holdfast study`](studies.md): `--train.epochs=10`. In
Python: `overrides={"train": {"epochs": 10}}`. Lists and mappings are
written as YAML: `--model.kwargs='{drop_path_rate: 0.1}'`.
"""


def page() -> str:
    """The whole page."""
    rows: dict[str, list[list[str]]] = {}
    for path, kind, field in leaves():
        section, _, name = path.rpartition(".")
        default = field.default_factory() if callable(field.default_factory) else field.default
        cells = (f"`{path}`", in_words(kind), f"`{_format_default(default)}`", _descriptions(section)[name])
        rows.setdefault(section, []).append([cell.replace("|", "\\|") for cell in cells])
    parts = [INTRODUCTION]
    for section, held in rows.items():
        parts += [f"## {section or 'The recipe itself'}", table(["value", "type", "default", "meaning"], held)]
    return "\n\n".join(parts).lstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
