"""The one hash of weights: to keep models apart in records, and to compare them across processes and runs."""

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


def weights_fingerprint(*states: Mapping[str, Tensor]) -> str:
    """A hash of every weight and statistic of some state dictionaries, by name."""
    digest = hashlib.sha256()
    for state in states:
        for key, value in sorted(state.items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def model_fingerprint(model: nn.Module, views: Sequence[str]) -> str:
    """A hash of the weights, the classes and plain settings of all modules, and the names of the predictions."""
    digest = hashlib.blake2b(weights_fingerprint(model.state_dict()).encode(), digest_size=16)
    for name, module in model.named_modules():
        settings = {k: v for k, v in sorted(vars(module).items()) if _is_setting(k, v)}
        digest.update(f"{name}\0{type(module).__qualname__}\0{settings}\0".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
    digest.update("\0".join(views).encode())
    return digest.hexdigest()


def _is_setting(name: str, value: object) -> bool:
    return not name.startswith("_") and name != "training" and _is_plain(value)


def _is_plain(value: object) -> bool:
    """What looks the same in every process, unlike functions and objects."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)
