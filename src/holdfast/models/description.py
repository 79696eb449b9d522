"""Text description of a model that is the same in every process: values by content, the user's code by its source.

Code of installed packages (torch, timm, Holdfast itself) is described by name; records hold the versions. All other
code is described by its source: a class, its bases, and everything it uses from its module or imports. Addresses,
absolute paths, times and the order of sets never enter the description.
"""

import ast
import enum
import functools
import inspect
import os
import re
import sys
import textwrap
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.runtime.own_code import digest, imported_modules, is_own, own_files

OF_EVERY_MODULE = {
    *vars(nn.Module()),
    "training",
    "pretrained_cfg",
    "default_cfg",
}  # attributes without effect on outputs
DEEPEST = 100  # levels of nested values
_PLAIN = (bool, int, float, complex, bytes, type(None), slice, range)


class Parts(dict[str, str]):
    """The parts of a model's description by name; filled by `add_model`."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, Any] = {}  # keeps described objects alive, so that no other object gets the same id
        self._open: set[int] = set()
        self._numbers: dict[int, int] = {}  # order in which objects were described
        self._files: set[str] = set()  # modules that were looked up
        self.packages: set[str] = set()
        self.own_code = False

    def add_model(self, model: nn.Module, name: str = "") -> None:
        """Add classes, hooks, settings, buffers and tensors of all modules, except the parameters."""
        self._kept |= {id(module): module for module in model.modules()}
        for path, module in model.named_modules(prefix=name):
            self[f"{path} class"] = type(module).__qualname__
            self._add_class(type(module))
            if isinstance(module, torch.jit.ScriptModule):
                self._add_script(path, module)
                continue
            for key, buffer in module._buffers.items():
                self[f"{path} buffer {key}"] = self.text(buffer)
            self._add_settings(path, module)
        for key, value in model.state_dict().items():
            if not isinstance(value, Tensor):  # packed weights of int8 layers, and other state beside tensors
                self[f"{name} state {key}"] = self.text(value)

    def _add_script(self, path: str, module: torch.jit.ScriptModule) -> None:
        """Add the code of every method of a scripted or traced module, and the constants and attributes in it."""
        attributes: set[str] = set()
        for name in module._c._method_names():
            code, constants = module._c._get_method(name).code_with_constants
            self[f"{path} code {name}"] = re.sub(r"___torch_mangle_\d+\.", "", code)
            self[f"{path} constants {name}"] = self.text(getattr(constants, "const_mapping", constants))
            attributes |= set(re.findall(r"\bself\.(\w+)", code))
        for name in sorted(attributes):
            value = getattr(module, name, None)
            if not isinstance(value, nn.Module) and name not in module._parameters:
                self[f"{path}.{name}"] = self.text(value)

    def _add_settings(self, path: str, module: nn.Module) -> None:
        own = is_own(type(module))
        for key, value in vars(module).items():
            if key in OF_EVERY_MODULE or (not own and (key.startswith("_") or _caches(value))):
                continue
            self[f"{path}.{key}"] = self.text(value)
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
            if is_own(hook):
                self[f"{path} hook {getattr(hook, '__qualname__', type(hook).__qualname__)}"] = self.text(hook)

    # ------------------------------------------------------------------ values

    def text(self, value: Any) -> str:
        """Describe a value by its content, or by its type if the content is unknown."""
        if id(value) in self._open:
            return "itself"
        if len(self._open) > DEEPEST:
            return "deeper"
        self._open.add(id(value))
        try:
            return self._plain(value) or self._container(value) or self._callable(value) or self._object(value)
        finally:
            self._open.discard(id(value))

    def _plain(self, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, str | Path):  # without the folder, which does not matter
            return repr(os.path.basename(value) if os.path.isabs(value) else str(value))
        if isinstance(value, Tensor):
            return tensor_text(value)
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            return f"array {value.dtype} {value.shape} {digest(np.ascontiguousarray(value).tobytes())}"
        return "device" if isinstance(value, torch.device) else ""

    def _container(self, value: Any) -> str:
        if isinstance(value, list | tuple | deque):
            return f"{type(value).__name__}[{', '.join(map(self.text, value))}]"
        if isinstance(value, set | frozenset):
            return f"set[{', '.join(sorted(map(self.text, value)))}]"
        if isinstance(value, re.Pattern):
            return f"pattern[{value.pattern!r}, {value.flags}]"
        if isinstance(value, Mapping):
            return f"dict[{', '.join(sorted(f'{self.text(k)}: {self.text(v)}' for k, v in value.items()))}]"
        return ""

    def _callable(self, value: Any) -> str:
        if isinstance(value, functools.partial):
            return f"partial {self.text(value.func)} {self.text(value.args)} {self.text(value.keywords)}"
        if isinstance(value, MethodType):
            return f"method {self.text(value.__func__)} of {self.text(value.__self__)}"
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            self._add_class(value)
        if isinstance(value, type | BuiltinFunctionType):
            return f"{value.__module__}.{value.__qualname__}" if not is_own(value) else value.__qualname__
        return self._wrapper(value)

    def _wrapper(self, value: Any) -> str:
        """A function that a library has wrapped or compiled: of ``functools.lru_cache`` or ``torch.jit.script``."""
        if isinstance(value, torch.jit.ScriptFunction):
            return f"script {digest(value.code.encode())}"  # type: ignore[attr-defined]
        wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
        if not callable(wrapped) or is_own(type(value)):
            return ""
        return f"{type(value).__qualname__} of {self.text(wrapped)}"

    def _function(self, function: FunctionType) -> str:
        if not is_own(function):
            return f"{function.__module__}.{function.__qualname__}"
        self._add_code(function)
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        held = self.text([cells, function.__defaults__, function.__kwdefaults__])
        return f"function {function.__qualname__} {digest(_source(function)[0].encode())} {held}"

    def _object(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, ModuleType):
            self._add_files([value.__name__])
            return f"module {value.__name__}"
        if isinstance(value, nn.Module):  # not registered, as in a plain list
            return "network" if id(value) in self._kept else self._network(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        self._add_class(kind)
        if is_own(kind) or is_dataclass(kind) or isinstance(value, SimpleNamespace | Namespace):
            if id(value) in self._numbers:  # described once, even if several share it
                return f"{kind.__qualname__} no. {self._numbers[id(value)]}"
            self._kept[id(value)], self._numbers[id(value)] = value, len(self._numbers)
            held = {key: each for key, each in _attributes(value).items() if key not in OF_EVERY_MODULE}
            return f"{kind.__qualname__} {self.text(held)}"
        return f"{kind.__module__}.{kind.__qualname__}"

    def _network(self, network: nn.Module) -> str:
        inner = Parts()
        inner.add_model(network)
        self._kept[id(network)] = network
        self.own_code |= inner.own_code
        parameters = {name: tensor_text(value) for name, value in network.named_parameters()}
        return f"network {digest(repr(sorted({**inner, **parameters}.items())).encode())}"

    # ------------------------------------------------------------------ code

    def _add_class(self, kind: type) -> None:
        """Add a class with its bases; for classes of packages, only the members that were replaced."""
        for each in kind.__mro__:
            if id(each) in self._kept:
                continue
            if is_own(each):
                self._add_code(each)
                continue
            self._kept[id(each)] = each
            self.packages.add(each.__module__.partition(".")[0])
            for member in list(vars(each).values()):
                if isinstance(member, FunctionType) and is_own(member):
                    self[f"{each.__qualname__}.{member.__name__}"] = self.text(member)

    def _add_code(self, thing: Any) -> None:
        if id(thing) in self._kept:
            return
        self._kept[id(thing)] = thing
        self.own_code = True
        source, names, imports = _source(thing)
        self[f"code {thing.__qualname__} {digest(source.encode())}"] = ""
        space = getattr(thing, "__globals__", None) or vars(sys.modules.get(thing.__module__, ModuleType("")))
        for name in sorted(names & space.keys()):
            self._add_global(f"{thing.__qualname__} names {name}", space[name], names)
        self._add_files(imports)
        for name, member in list(vars(thing).items()) if isinstance(thing, type) else ():
            self._add_member(thing, name, member)

    def _add_global(self, name: str, value: Any, names: set[str]) -> None:
        if not isinstance(value, ModuleType):
            self[name] = self.text(value)
        elif not is_own(value):
            self[name] = value.__name__
        else:
            self._add_files([value.__name__])
            for attribute in sorted(names & vars(value).keys()):
                held = vars(value)[attribute]
                if isinstance(held, ModuleType) and held.__name__.startswith(f"{value.__name__}."):
                    self._add_global(f"{name}.{attribute}", held, names)  # a package's module, as in a.b.function()
                else:
                    self[f"{name}.{attribute}"] = self.text(held)

    def _add_member(self, owner: type, name: str, member: Any) -> None:
        """Add a class member: a method from elsewhere, or the current value."""
        plain = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(plain, FunctionType):
            if is_own(plain) and not plain.__qualname__.startswith(f"{owner.__qualname__}."):
                self[f"{owner.__qualname__}.{name}"] = self.text(plain)
        elif not name.startswith("__") and name != "_abc_impl" and not isinstance(plain, property):
            self[f"{owner.__qualname__}.{name}"] = self.text(plain)

    def _add_files(self, names: Iterable[str]) -> None:
        """Add whole modules of the user's code, and those that they import."""
        for name, content in own_files(names, seen=self._files).items():
            self.own_code = True
            self[f"file {name} {content}"] = ""


def _caches(value: Any) -> bool:
    """Whether an attribute of a package's module is a cache of tensors by device or size, not a setting."""
    return isinstance(value, Mapping) and any(isinstance(each, Tensor) for each in value.values())


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, in slots or not."""
    slots = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
    held = {name: getattr(value, name) for name in names if not name.startswith("__") and hasattr(value, name)}
    return {**held, **getattr(value, "__dict__", {})}


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if it is empty
    except ValueError:
        return False
    return True


def tensor_text(tensor: Tensor) -> str:
    """Describe a tensor by its type, shape and content, on any device."""
    described = f"tensor {tensor.dtype} {tuple(tensor.shape)}"
    if tensor.is_meta:
        return described
    values = tensor.detach()
    if values.is_quantized:
        described += f" {tensor_text(values.dequantize())}"  # includes the scales
        values = values.int_repr()
    if values.layout != torch.strided:
        values = values.to_dense()
    return f"{described} {digest(tensor_bytes(values))}"


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor on any device."""
    values = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    return values.reshape(-1).view(torch.uint8).numpy().tobytes()


def _source(thing: Any) -> tuple[str, set[str], set[str]]:
    """The source of a class or function without comments and layout, the names in it and the modules it imports.

    The compiled code is included: the file may have been edited since it was imported.
    """
    codes = [thing.__code__] if isinstance(thing, FunctionType) else list(_codes(thing))
    compiled, names = "".join(map(_compiled, codes)), {name for code in codes for name in _code_names(code)}
    if thing.__name__ == "<lambda>":  # whose source lines contain other code
        return compiled, names, set()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError, IndexError):  # typed into a console
        return compiled, names, set()
    package = getattr(sys.modules.get(thing.__module__), "__package__", None) or ""
    return ast.dump(tree) + compiled, names | set(_names(tree)), imported_modules(tree, package=package)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _codes(kind: type) -> Iterator[CodeType]:
    for _, member in sorted(vars(kind).items()):
        plain = inspect.unwrap(getattr(member, "__func__", getattr(member, "fget", member)))
        if isinstance(plain, FunctionType):
            yield plain.__code__


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _code_names(inner)


def _compiled(code: CodeType) -> str:
    inner = [_compiled(each) if isinstance(each, CodeType) else _constant(each) for each in code.co_consts]
    return f"{code.co_name}{code.co_code.hex()}{code.co_names}{inner}"


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)
