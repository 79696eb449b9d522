"""Fingerprints of models: hashes of weights, settings and code that identify a model in records and across runs."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from holdfast.models.description import Parts, tensor_bytes, tensor_text
from holdfast.runtime.own_code import package_version

VERSIONED = ("torch", "timm", "holdfast", "builtins")  # every record names them, see records.fingerprints.versions


def weights_fingerprint(*states: Mapping[str, Tensor]) -> str:
    """A hash of all tensors of some state dictionaries, by name."""
    digest = hashlib.sha256()
    for state in states:
        for key, value in sorted(state.items()):
            digest.update(key.encode())
            digest.update(tensor_bytes(value) if _is_bytes(value) else Parts().text(value).encode())
    return digest.hexdigest()


def model_fingerprint(model: nn.Module, views: Sequence[str], *, exercise: Callable[[], object]) -> str:
    """A hash of a model's tensors and settings, of its user-defined code, and of the names of its predictions.

    Args:
        model: all its tensors enter, registered and persistent or not, and settings by their content.
        views: the names of its predictions.
        exercise: runs the model on some images; state that this changes (caches, counters) does not enter.
    """
    before = _parts(model)
    exercise()
    after = _parts(model)
    lasting = {key: text for key, text in after.items() if before.get(key) == text}
    parameters = {key: tensor_text(value) for key, value in model.named_parameters(remove_duplicate=False)}
    packages = {name: package_version(name) for name in after.packages if name not in VERSIONED}
    described = [sorted(each.items()) for each in (lasting, parameters, packages)]
    return hashlib.blake2b(
        repr([described, list(views)]).encode("utf-8", "surrogateescape"), digest_size=16
    ).hexdigest()


def has_own_code(model: nn.Module) -> bool:
    """Whether a model runs code that is not from an installed package."""
    return _parts(model).own_code


def first_fingerprint(model: nn.Module, views: Sequence[str]) -> str:
    """The fingerprint in records from before November 2026: a hash of weights, classes and plain settings."""
    digest = hashlib.blake2b(weights_fingerprint(model.state_dict()).encode(), digest_size=16)
    for name, module in model.named_modules():
        settings = {k: v for k, v in sorted(vars(module).items()) if _is_first_setting(k, v)}
        digest.update(f"{name}\0{type(module).__qualname__}\0{settings}\0".encode())
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, Tensor):
            digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
    digest.update("\0".join(views).encode())
    return digest.hexdigest()


def _parts(model: nn.Module) -> Parts:
    parts = Parts()
    parts.add_model(model)
    return parts


def _is_bytes(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_quantized


def _is_first_setting(name: str, value: object) -> bool:
    return not name.startswith("_") and name != "training" and _is_first_plain(value)


def _is_first_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_first_plain, value))
    return isinstance(value, bool | int | float | str)
