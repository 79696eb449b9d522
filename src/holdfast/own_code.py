"""A digest of somebody's own code, so that records of two things with one name are never mixed."""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

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


def plugins_told() -> dict[str, dict[str, str]]:
    """What a header says of the plug-ins: nothing where there are none."""
    return {"plugins": dict(sorted(PLUGINS.items()))} if PLUGINS else {}


def code_fingerprint(thing: Any) -> str:
    """A digest of a function or of an object's class, and of all that it uses from its own module."""
    start = thing if inspect.isfunction(thing) or isinstance(thing, type) else getattr(thing, "func", type(thing))
    digest = hashlib.blake2b(digest_size=8)
    for text in sorted(set(_reached(start, set()))):
        digest.update(text.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _reached(thing: Any, seen: set[int]) -> Iterator[str]:
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
            yield from _reached(value, seen)


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into a console
        return "".join(_compiled(code) for code in _codes(thing))


def _codes(thing: Any) -> list[CodeType]:
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    plain = [inspect.unwrap(getattr(member, "__func__", member)) for member in members]
    return [member.__code__ for member in plain if inspect.isfunction(member)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _compiled(code: CodeType) -> str:
    inner = [_compiled(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_name}{code.co_code.hex()}{code.co_names}{inner}"
