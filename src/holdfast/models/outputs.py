"""`logits_of`: the logits in a model's output, from the usual containers; an error with a fix for any other."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError

NAMES = ("logits", "out")  # in transformers, and in torchvision's segmenters


def logits_of(output: Any) -> Any:
    """The logits in a model's output; torchvision-style detections are returned unchanged.

    Supported are a tensor, a tuple or list that starts with one, ``{"logits": …}``, ``{"out": …}`` and objects with
    ``.logits``.
    """
    if isinstance(output, Tensor) or _is_detections(output):
        return output
    if isinstance(output, Mapping):
        found = next((output[name] for name in NAMES if isinstance(output.get(name), Tensor)), None)
    elif isinstance(getattr(output, "logits", None), Tensor):
        found = output.logits
    else:
        first = output[0] if isinstance(output, tuple | list) and output else None
        found = first if isinstance(first, Tensor) and first.ndim > 1 else None
    if found is None:
        raise HoldfastError(_refusal(output))
    return found


class Logits(nn.Module):
    """Wrapper that returns only the logits of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """The logits of normalised images."""
        return logits_of(self.model(images))


def _is_detections(output: Any) -> bool:
    return isinstance(output, tuple | list) and all(isinstance(one, Mapping) and "boxes" in one for one in output)


def _refusal(output: Any) -> str:
    """The error message: what the model returned, and two lines of code that fix it."""
    came, helps = _came(output)
    wanted = "a tensor of logits, a tuple or list that starts with one, or logits named 'logits' or 'out'"
    lines = f"    forward = model.forward\n    model.forward = lambda images: {helps}"
    return f"the model must return {wanted}, got {came}; two lines fix it:\n{lines}"


def _came(output: Any) -> tuple[str, str]:
    """A description of a model's output, and an expression that extracts the logits."""
    if isinstance(output, Mapping):
        names = list(map(str, output)) or ["NAME"]
        return f"a dictionary of {', '.join(names)}", f'forward(images)["{names[0]}"]'
    kind = type(output).__name__
    if type(output).__module__ == "numpy":
        return f"a numpy {kind}", "torch.as_tensor(forward(images))"
    if isinstance(output, tuple | list):
        inside = type(output[0]).__name__ if output else "nothing"
        return f"a {kind} of {inside}", "torch.stack([torch.as_tensor(one) for one in forward(images)])"
    return f"an object of {kind}", "forward(images).NAME_OF_THE_LOGITS"
