"""Plug-ins: loading their files, and a digest of the code that records keep."""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.io.validation import comma_list

# the plug-ins of this process by name, each with a digest of its file: they may change anything
PLUGINS: dict[str, str] = {}
PLUGIN_FILES: dict[str, Path] = {}  # and the files themselves, for machines that must run them, too

PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))


def remember_plugin(name: str, path: Path) -> None:
    """Note a plug-in that was run, for the headers of what is measured with it."""
    PLUGIN_FILES[name] = path.absolute()
    PLUGINS[name] = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def load_plugin_file(name: str, path: Path) -> None:
    """Import a plug-in by its name, with its folder on the path for good: worker processes import it from there."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.import_module(name)
    remember_plugin(name, path)


def plugins_header() -> dict[str, dict[str, str]]:
    """What a header says of the plug-ins: nothing where there are none."""
    return {"plugins": dict(sorted(PLUGINS.items()))} if PLUGINS else {}


def code_fingerprint(thing: Any) -> str:
    """A digest of a function or of an object's class, and of all that it uses from its own module."""
    start = thing if inspect.isfunction(thing) or isinstance(thing, type) else getattr(thing, "func", type(thing))
    digest = hashlib.blake2b(digest_size=8)
    for text in sorted(set(_reachable_sources(start, set()))):
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _reachable_sources(thing: Any, seen: set[int]) -> Iterator[str]:
    """The sources of a thing and of its module's functions, classes and plain values that it names."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    yield _source(thing)
    module = vars(sys.modules.get(thing.__module__, sys))
    for name in sorted({name for code in _codes(thing) for name in _names(code)}):
        value = module.get(name)
        if isinstance(value, PLAIN) and name in module:
            yield f"{name}={value!r}"
        elif getattr(value, "__module__", None) == thing.__module__ and (
            inspect.isfunction(value) or isinstance(value, type)
        ):
            yield from _reachable_sources(value, seen)


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into a console
        return "".join(_bytecode_digest(code) for code in _codes(thing))


def _codes(thing: Any) -> list[CodeType]:
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    plain = [inspect.unwrap(getattr(member, "__func__", member)) for member in members]
    return [member.__code__ for member in plain if inspect.isfunction(member)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _bytecode_digest(code: CodeType) -> str:
    inner = [_bytecode_digest(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_name}{code.co_code.hex()}{code.co_names}{inner}"


OPTION, VARIABLE = "--plugin", "HOLDFAST_PLUGINS"


def load_plugins(argv: Sequence[str]) -> list[str]:
    """Import what the environment and the arguments name, which runs their code; the other arguments are returned."""
    named, rest = _split_plugin_options(argv)
    for plugin in (*comma_list(os.environ.get(VARIABLE, "")), *named):
        _load_plugin(plugin)
    return rest


def _split_plugin_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    named, rest, words = [], [], iter(argv)
    for word in words:
        if word == OPTION:
            named.append(next(words, ""))
        elif word.startswith(f"{OPTION}="):
            named.append(word.partition("=")[2])
        else:
            rest.append(word)
    return named, rest


def _load_plugin(plugin: str) -> None:
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
