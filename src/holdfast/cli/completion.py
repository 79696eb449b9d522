"""``holdfast completion``: a shell script that completes commands, options, recipes and studies."""

from argparse import Namespace

from jsonargparse import ArgumentParser

from holdfast.cli.list import LISTERS
from holdfast.cli.main import COMMANDS, build_parser
from holdfast.studies.config import study_names
from holdfast.training.recipe_files import recipe_names

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast completion``."""
    parser.add_argument(
        "shell", choices=SHELLS, help='for bash, put `eval "$(holdfast completion bash)"` into ~/.bashrc'
    )


def run(arguments: Namespace) -> None:
    """Print the completion script of the chosen shell."""
    words = _words()
    print(_fish(words) if arguments.shell == "fish" else _bash(words, zsh=arguments.shell == "zsh"))


def _words() -> dict[str, list[str]]:
    """Completions by command: its options, and the values of its first argument."""
    names = {"list": sorted(LISTERS), "train": recipe_names(), "study": study_names(), "completion": list(SHELLS)}
    return {
        command: [*names.get(command, []), *(o for a in build_parser(command)._actions for o in a.option_strings)]
        for command in COMMANDS
    }


def _bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "\n".join(f"    {command}) words='{' '.join(found)}' ;;" for command, found in words.items())
    script = f"""_holdfast() {{
  local words current="${{COMP_WORDS[COMP_CWORD]}}"
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  [ "$COMP_CWORD" -eq 1 ] && words='{" ".join(words)}'
  COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
}}
complete -o filenames -F _holdfast holdfast"""
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def _fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c holdfast -n __fish_use_subcommand -f -a '{' '.join(words)}'"]
    for command, found in words.items():
        lines.append(f"complete -c holdfast -n '__fish_seen_subcommand_from {command}' -a '{' '.join(found)}'")
    return "\n".join(lines)
