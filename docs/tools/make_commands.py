"""Makes docs/commands.md from the commands' own parsers: ``python docs/tools/make_commands.py``."""

from argparse import SUPPRESS, Action
from pathlib import Path

from holdfast.cli.main import COMMANDS, build_parser
from holdfast.io.markdown import table
from holdfast.training.recipe_files import leaves

PAGE = Path(__file__).parents[1] / "commands.md"
INTRODUCTION = """# All commands

*Made from the commands' own help by `docs/tools/make_commands.py`; a test keeps it current.*

`holdfast COMMAND --help` prints the same. `--plugin FILE.py` after any command runs
[a file of your own](bring-your-own.md) first. Exit codes are 0 for success,
1 if `holdfast gate` fails,
2 after an error, which is one sentence, and 128 + the signal after Ctrl-C or SIGTERM.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(section(command) for command in COMMANDS)])


def section(command: str) -> str:
    """One command: what it does, its arguments and options; values of a recipe have a page of their own."""
    parser = build_parser(command)
    options = {option for action in parser._actions for option in action.option_strings}
    values = {f"--{path}" for path, _, _ in leaves()} if "--train.epochs" in options else set()
    shown = [action for action in parser._actions if not values & set(action.option_strings) and action.dest != "help"]
    described = COMMANDS[command]
    lines = [f"## holdfast {command}", "", f"{described[0].upper()}{described[1:]}.", ""]
    lines += [table(["argument", "default", "meaning"], [row(action) for action in shown if is_public(action)])]
    if values:
        lines += ["", "And every [value of a recipe](recipe-values.md): `--train.epochs=10`."]
    return "\n".join([*lines, ""])


def is_public(action: Action) -> bool:
    """Whether the help shows it."""
    return action.help != SUPPRESS


def row(action: Action) -> list[str]:
    """One line of the table."""
    value = "" if action.nargs == 0 or not action.option_strings else f" {action.metavar or action.dest.upper()}"
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    default = action.default
    given = "" if default is None or default is False or default in ("", SUPPRESS) else code(str(default))
    meaning = " ".join((action.help or "").replace("%%", "%").split())
    return [code(f"{names}{value}"), given, meaning.replace("|", "\\|")]


def code(text: str) -> str:
    """Code in a cell: a bar ends the cell on GitHub, and the site shows the backslash that would prevent it."""
    return f"`{text}`" if "|" not in text else f"<code>{text.replace('|', '&#124;')}</code>"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
