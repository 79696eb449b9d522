"""Corruptions, attacks, metrics, sets, suites, tasks and analyses of one's own, on the command line.

``holdfast COMMAND … --plugin FILE.py`` runs a file that registers them, any number of times; the variable
``HOLDFAST_PLUGINS`` names files or modules for every command, separated by commas.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.names import comma_list
from holdfast.own_code import remember_plugin

OPTION, VARIABLE = "--plugin", "HOLDFAST_PLUGINS"


def load_plugins(argv: Sequence[str]) -> list[str]:
    """Import what the environment and the arguments name, which runs their code; the other arguments are returned."""
    named, rest = _split(argv)
    for plugin in (*comma_list(os.environ.get(VARIABLE, "")), *named):
        _load(plugin)
    return rest


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    named, rest, words = [], [], iter(argv)
    for word in words:
        if word == OPTION:
            named.append(next(words, ""))
        elif word.startswith(f"{OPTION}="):
            named.append(word.partition("=")[2])
        else:
            rest.append(word)
    return named, rest


def _load(plugin: str) -> None:
    """By its name, with its folder on the path for good: worker processes import it from there."""
    path = Path(plugin).expanduser()
    folder, module = (str(path.parent.absolute()), path.stem) if path.suffix == ".py" else (os.getcwd(), plugin)
    if path.is_dir() or (path.suffix != ".py" and len(path.parts) > 1):
        raise HoldfastError(f"{OPTION} must be a file of Python or the name of a module, got {plugin!r}")
    if path.suffix == ".py" and not path.is_file():
        raise HoldfastError(f"{OPTION} must be a file of Python, but {plugin!r} is not there")
    if not module:
        raise HoldfastError(f"{OPTION} must be followed by a file of Python, got nothing")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise HoldfastError(f"{OPTION} must name what can be imported, got {plugin!r} ({error})") from error
    except HoldfastError:
        raise
    except Exception as error:  # whatever somebody's own code raises
        raise HoldfastError(f"{OPTION} {plugin!r} cannot be run ({type(error).__name__}: {error})") from error
    file = Path(loaded.__file__) if loaded.__file__ else None
    if path.suffix == ".py" and (file is None or not file.samefile(path)):
        raise HoldfastError(
            f"{OPTION} must have a name of its own, but {module!r} is also {str(file)!r}; call {plugin!r} otherwise"
        )
    if file is not None:
        remember_plugin(module, file)
