"""Makes docs/recipe-values.md from the dataclasses of a recipe: ``python docs/tools/make_recipe_values.py``."""

from pathlib import Path

from holdfast.cli.train import _descriptions, _format_default
from holdfast.io.validation import in_words
from holdfast.training.recipe_files import leaves

PAGE = Path(__file__).parents[1] / "recipe-values.md"
INTRODUCTION = """# All recipe values

*Made from the recipe's dataclasses by `docs/tools/make_recipe_values.py`; a test keeps it current.*

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
        cells = (f"`{path}`", in_words(kind), f"`{_format_default(default)}`", _descriptions(section)[name])
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(part if part.startswith("|") else f"\n{part}" for part in parts).lstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
