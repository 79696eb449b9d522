"""What ``--method`` stands for: recipe values by the name of a method, alone and in sums (``augmix,sam``)."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.io.validation import chosen_names
from holdfast.training.recipe_files import merge

# how steps are taken and what comes before them; they go with every objective
STEPS: dict[str, dict[str, Any]] = {
    "sam": {"optimizer": {"sam": {}}},
    "asam": {"optimizer": {"sam": {"adaptive": True, "rho": 0.5}}},
    "lp-ft": {"train": {"probe": {}}},
    "linear-probe": {"train": {"probe": {"only": True}}},
}
# terms that want more than their defaults; RandAugment has operations of ImageNet-C's kind, which AugMix leaves out
TERM_VALUES: dict[str, dict[str, Any]] = {
    "augmix": {"augment": {"rand_augment": None}},
    "noise2net_share": {"objective": {"options": {"noise2net_share": 0.5}}},
}
# what is added to a frozen model learns at one rate; 1e-3 is too high for a gate
ADAPTED = {"objective": {"name": "tora"}, "optimizer": {"lr": 3e-4, "lr_base_batch": None, "layer_decay": None}}
APART = (("sam", "asam"), ("lp-ft", "linear-probe"), ("adversarial", "trades", "mart"))  # one of each at most


def method_values(text: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe values of ``--method``, under those that were given beside it."""
    from holdfast.methods import ADAPTERS, TERMS

    names = chosen_names(text, [*TERMS, *STEPS, *ADAPTERS], one="method", several="--method")
    terms, adapters = [name for name in names if name in TERMS], [name for name in names if name in ADAPTERS]
    _check_sum(names, terms, adapters)
    values: dict[str, Any] = {}
    for name in names:
        values = merge(values, STEPS.get(name, {}))
    for name in terms:
        plain = {"objective": {"name": "robust", "options": {name: {}}}}
        values = merge(merge(values, plain), TERM_VALUES.get(name, {}))
    for name in adapters:
        values = merge(merge(values, ADAPTED), {"model": {"adapt": {"name": name}, **_named_by_start(given)}})
    options = (given.get("objective") or {}).get("options") or {}
    if "distillation" in names and not options.get("distillation"):
        raise HoldfastError("--method distillation needs a teacher: --objective.options.distillation.teacher=run:DIR")
    return merge(values, given)


def _check_sum(names: Sequence[str], terms: Sequence[str], adapters: Sequence[str]) -> None:
    for group in APART:
        if len(both := [name for name in names if name in group]) > 1:
            raise HoldfastError(f"--method must name one of {', '.join(group)}, got {' and '.join(both)}")
    alone = [name for name in names if name == "linear-probe"] or list(adapters)
    if alone and (len(names) > 1 and (terms or "linear-probe" in alone or len(adapters) > 1 or "lp-ft" in names)):
        raise HoldfastError(f"--method {alone[0]} trains by an objective of its own and goes with none of the others")


def _named_by_start(given: Mapping[str, Any]) -> dict[str, Any]:
    """A start that tells its model's name overrules that of the recipe."""
    start = str((given.get("model") or {}).get("init") or "")
    return {"name": None} if start.startswith(("timm:", "run:")) else {}
