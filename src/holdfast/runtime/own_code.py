"""The user's own code: modules outside installed packages, the standard library and Holdfast, and what they import."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

PACKAGES = ("site-packages", "dist-packages")
NOT_OWN = tuple(
    os.path.realpath(place) + os.sep
    for place in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), str(Path(__file__).parents[1]))
)


def is_own(thing: Any) -> bool:
    """Whether a module, class, function or object comes from the user's own code."""
    if isinstance(thing, ModuleType):
        return _is_own_module(thing)
    plain = thing if isinstance(thing, type | FunctionType | BuiltinFunctionType) else getattr(thing, "func", thing)
    plain = getattr(plain, "__func__", plain)
    name = getattr(plain, "__module__", None) or getattr(type(plain), "__module__", None)
    if name is None or (isinstance(plain, FunctionType) and name not in sys.modules):
        return isinstance(plain, FunctionType)  # generated at run time, as by torch.fx
    module = sys.modules.get(name)
    return module is not None and _is_own_module(module)


def own_files(names: Iterable[str], *, seen: set[str]) -> dict[str, str]:
    """Digests of the user's own modules of these names and of those that they import, by name.

    Comments and layout do not count. ``seen`` has the names that were looked up before, and gets the new ones.
    """
    found: dict[str, str] = {}
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        with suppress(OSError, ValueError, SyntaxError):
            if (file := _own_file(name)) is not None:
                tree = ast.parse(Path(file).read_text(encoding="utf-8"))
                found[name] = digest(ast.dump(tree).encode("utf-8", "surrogateescape"))
                waiting += sorted(imported_modules(tree, package=_package(name, file)))
    return found


def imported_modules(tree: ast.AST, *, package: str) -> set[str]:
    """Names of the modules that code imports; for ``from a import b`` both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{each.name}" for each in node.names)}
    return found


def package_version(package: str) -> str:
    """Version of an installed package; empty for the standard library, or if it is installed under another name."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def digest(content: bytes) -> str:
    """A short hash of some bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _own_file(name: str) -> str | None:
    """The file of an own module, also before it is imported; None for others."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None) if _is_own_module(module) else None
    top, *below = name.split(".")
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(top)  # of the first name only: for others it would import what is above
        if spec is None:
            return None
        if not below:
            return spec.origin if spec.has_location and _is_own_file(str(spec.origin)) else None
        for place in spec.submodule_search_locations or ():
            path = Path(place, *below)
            for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
                if file.is_file() and _is_own_file(str(file)):
                    return str(file)
    return None


def _package(name: str, file: str) -> str:
    """The package that relative imports of a module start from."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__package__", None) or ""
    return name if Path(file).stem == "__init__" else name.rpartition(".")[0]


def _is_own_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", None) or ()), None)
    if file is None:
        return module.__name__ == "__main__"  # an interactive console
    return _is_own_file(file)


@functools.cache
def _is_own_file(file: str) -> bool:
    place = os.path.realpath(file)
    return not place.startswith(NOT_OWN) and not any(name in PACKAGES for name in Path(place).parts)
