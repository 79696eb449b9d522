"""Learning-rate schedule and parameter groups of the published segmentation models, as pure functions.

SegFormer, FAN and TAP+ADL as released: AdamW with a learning rate that falls linearly to 0 after a linear warm-up, ten
times higher in the head; only names with ``norm`` in them are exempt from weight decay.
"""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

WARMUP_RATIO = 1e-6


def poly_factor(step: int, *, steps: int, power: float = 1.0, warmup: int = 1500, ratio: float = WARMUP_RATIO) -> float:
    """The factor of the base learning rate at a step, counted from 0.

    >>> round(6e-5 * poly_factor(750, steps=160_000), 9)
    2.9859e-05
    """
    poly = (1 - step / steps) ** power
    return poly * (1 - (1 - step / warmup) * (1 - ratio)) if step < warmup else poly


def poly_schedule(optimizer: Optimizer, *, steps: int, warmup: int) -> Callable[[int], None]:
    """A function that sets each group's learning rate at a step, relative to its initial one."""
    bases = [group["lr"] for group in optimizer.param_groups]

    def set_rates(step: int) -> None:
        factor = poly_factor(step, steps=steps, warmup=min(warmup, steps))
        for group, base in zip(optimizer.param_groups, bases, strict=True):
            group["lr"] = base * factor

    return set_rates


def segmentation_groups(
    parameters: Iterable[tuple[str, nn.Parameter]], *, lr: float, weight_decay: float, head_factor: float = 10.0
) -> list[dict[str, Any]]:
    """Parameter groups by name: ``head`` with a higher learning rate, ``norm`` without weight decay, and the rest.

    As released, biases, layer scales, batch norms and the class token are decayed; ``head`` takes precedence over
    ``norm``.
    """
    rules = {"head": (lr * head_factor, weight_decay), "norm": (lr, 0.0), "": (lr, weight_decay)}
    groups: dict[str, list[nn.Parameter]] = {rule: [] for rule in rules}
    for name, parameter in parameters:
        if parameter.requires_grad:
            groups[next(rule for rule in rules if rule in name)].append(parameter)
    return [
        {"params": members, "lr": rules[rule][0], "weight_decay": rules[rule][1]}
        for rule, members in groups.items()
        if members
    ]
