"""Plug-ins: loading their files, and digests of their code for the headers of records."""

import ast
import functools
import hashlib
import importlib
import inspect
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.io.validation import comma_list
from holdfast.runtime.own_code import own_files
from holdfast.runtime.value_text import first_text

# loaded plug-ins by name with a digest of their file, which headers record, because plug-ins may change any result
PLUGINS: dict[str, str] = {}
PLUGIN_FILES: dict[str, Path] = {}  # their files, for Ray workers that must load them, too


def remember_plugin(name: str, path: Path) -> None:
    """Record a loaded plug-in for the headers of later results."""
    PLUGIN_FILES[name] = path.absolute()
    PLUGINS[name] = _digest([path.read_bytes(), *(text.encode() for text in _imported_files(name))])


def load_plugin_file(name: str, path: Path) -> None:
    """Import a plug-in by name; its folder stays on the path, because worker processes import it from there."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    importlib.import_module(name)
    remember_plugin(name, path)


def plugins_header() -> dict[str, dict[str, str]]:
    """Header entry of the loaded plug-ins; empty if there are none."""
    return {"plugins": dict(sorted(PLUGINS.items()))} if PLUGINS else {}


def code_fingerprint(thing: Any) -> str:
    """Digest of a function or an object's class, with all that it uses from its module and the files imported there."""
    start = thing if inspect.isfunction(thing) or isinstance(thing, type) else getattr(thing, "func", type(thing))
    texts = sorted({*_reachable_sources(start, set()), *_imported_files(start.__module__)})
    return _digest(text.encode("utf-8", "surrogateescape") for text in texts)


def _imported_files(name: str) -> list[str]:
    """The user's own files that a module imports, with digests; not the module itself, nor installed packages."""
    return sorted(f"{other} {digest}" for other, digest in own_files([name], seen=set()).items() if other != name)


def _digest(contents: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def _reachable_sources(thing: Any, seen: set[int]) -> Iterator[str]:
    """Yield the sources of an object and of its module's functions, classes and plain values that it names."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    source = _source(thing)
    yield source
    module = vars(sys.modules.get(thing.__module__, sys))
    for name in sorted({name for code in _codes(thing) for name in _names(code)} | _names_in(source)):
        if name in module:
            yield f"{name}={first_text(module[name])}"
            yield from _sources_in(module[name], thing.__module__, seen)


def _sources_in(value: Any, module: str, seen: set[int]) -> Iterator[str]:
    """Yield the sources of functions and classes of a module, also of those in containers and of objects."""
    if isinstance(value, Mapping):
        value = list(value.values())
    elif isinstance(value, functools.partial):
        value = [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _sources_in(each, module, seen)
    elif getattr(value, "__module__", None) == module:
        yield from _reachable_sources(
            value if inspect.isroutine(value) or isinstance(value, type) else type(value), seen
        )


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


def _names_in(source: str) -> set[str]:
    """Names in a source: what is evaluated once, such as decorators, defaults and base classes, is in no bytecode."""
    try:
        return {node.id for node in ast.walk(ast.parse(textwrap.dedent(source))) if isinstance(node, ast.Name)}
    except SyntaxError:  # a lambda within other code, or a digest of bytecode
        return set()


def _bytecode_digest(code: CodeType) -> str:
    inner = [_bytecode_digest(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_name}{code.co_code.hex()}{code.co_names}{inner}"


OPTION, VARIABLE = "--plugin", "HOLDFAST_PLUGINS"


def load_plugins(argv: Sequence[str]) -> list[str]:
    """Import the plug-ins of the environment and the arguments, which runs their code; returns the other arguments."""
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
    """Import a plug-in by name; its folder stays on the path, because worker processes import it from there."""
    if not plugin:
        raise HoldfastError(f"{OPTION} must be followed by a Python file or a module name, got nothing")
    path = Path(plugin).expanduser()
    folder, module = (str(path.parent.absolute()), path.stem) if path.suffix == ".py" else (os.getcwd(), plugin)
    if path.is_dir() or (path.suffix != ".py" and len(path.parts) > 1):
        raise HoldfastError(f"{OPTION} must be a Python file or a module name, got {plugin!r}")
    if path.suffix == ".py" and not path.is_file():
        raise HoldfastError(f"{OPTION} must be a Python file, but {plugin!r} does not exist")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise HoldfastError(f"{OPTION} {plugin!r} cannot be imported ({error})") from error
    except HoldfastError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise HoldfastError(f"{OPTION} {plugin!r} failed while loading ({type(error).__name__}: {error})") from error
    file = Path(loaded.__file__) if loaded.__file__ else None
    if path.suffix == ".py" and (file is None or not file.samefile(path)):
        raise HoldfastError(
            f"{OPTION} must have a unique module name, but {module!r} is also {str(file)!r}; rename {plugin!r}"
        )
    if file is not None:
        remember_plugin(module, file)
