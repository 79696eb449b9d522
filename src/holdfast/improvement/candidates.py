"""The candidates of ``holdfast improve``: names of ``--method``, sums of them, and plain training's own variants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import timm

from holdfast.errors import HoldfastError, nearest
from holdfast.methods import ADAPTERS, TERMS
from holdfast.training.initialize import named_model
from holdfast.training.method_options import STEPS, method_values
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import as_values, load_recipe, merge

PLAIN, LOW_LR, TAP, START = "plain", "low-lr", "tap", "start"
CORRUPTIONS, ATTACKS = AGAINST = ("corruptions", "attacks")
# the most promising first: a small budget takes the first that fit
DEFAULTS = {
    CORRUPTIONS: (
        PLAIN,
        LOW_LR,
        "augmix",
        "afat",
        "lp-ft",
        "augmix+afat",
        "sam",
        "lp-ft+augmix",
        "adl",
        "adl+afat",
        "tap+adl",
    ),
    ATTACKS: (PLAIN, LOW_LR, "adversarial", "trades", "tora", "lp-ft+adversarial", "mart"),
}
# what finetune_afat says, where attention can be read; the adversary's own choice where it cannot
AFAT_BY_ATTENTION = {"weight": 1.0, "ratio": 0.1, "selection": "attention"}
TAP_FACTOR = 10.0  # of the learning rate: at the head's own, TAP stays at the identity
TRADE_OFF = 0.5  # TORA's λ: one of them, as every candidate is one model


@dataclass(frozen=True)
class Candidate:
    """A way to fine-tune: its name and the values that it adds to the recipe.

    Attributes:
        name: ``plain``, ``low-lr``, or methods joined by ``+``.
        values: nested recipe values.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def recipe(self, base: Recipe, *, length: Mapping[str, Any] | None = None, seed: int | None = None) -> Recipe:
        """The complete recipe for a length, ``{"epochs": 3}`` or ``{"steps": 40}``, and a seed."""
        values = merge(as_values(base), self.values)
        if length is not None:
            values = merge(values, shortened(base, length))
        return load_recipe(merge(values, {"seed": base.seed if seed is None else seed}))


def chosen_candidates(names: Sequence[str], *, against: str) -> tuple[str, ...]:
    """The names of the candidates, plain training first; by default those for what the model must hold against."""
    chosen = tuple(dict.fromkeys([PLAIN, *(names or DEFAULTS[against])]))
    known = [PLAIN, LOW_LR, TAP, *(name for name in (*TERMS, *STEPS) if name != "linear-probe"), *ADAPTERS]
    for name in chosen:
        for part in name.split("+"):
            if part not in known:
                raise HoldfastError(
                    f"--methods must be {PLAIN}, {LOW_LR}, {TAP}, methods of `holdfast list methods`, or sums such as "
                    f"augmix+afat; got {part!r}{nearest(part, known)}"
                )
    return chosen


def candidate(name: str, base: Recipe) -> list[Candidate]:
    """The ways to train a candidate, the preferred one first; another is taken where the model does not allow it."""
    parts = [part for part in name.split("+") if part not in (PLAIN, LOW_LR, TAP)]
    values: dict[str, Any] = method_values(",".join(parts), {}) if parts else {}
    if LOW_LR in name.split("+"):
        values = merge(values, {"optimizer": {"lr": base.optimizer.lr / 10}})
    if TAP in name.split("+"):
        values = merge(values, _tap_values(base))
    if any(adapter.weights is not None for part, adapter in ADAPTERS.items() if part in parts):
        values = merge(values, {"train": {"phases": {"run": "all", "weights": [TRADE_OFF]}}})
    if "afat" not in parts:
        return [Candidate(name, values)]
    by_attention = merge(values, {"objective": {"options": {"afat": AFAT_BY_ATTENTION}}})
    return [Candidate(name, by_attention), Candidate(name, values)]


def _tap_values(base: Recipe) -> dict[str, Any]:
    """TAP in the model of a recipe, near the identity if its weights were trained without (docs/tap.md)."""
    model = named_model(base.model)
    detects = model.name == "detector"
    name = str(model.kwargs.get("encoder") if detects else model.name).split(".", maxsplit=1)[0]
    ours = name.startswith(("fan_", "rvt_")) and not name.startswith("fan_swin")
    if not ours and not timm.is_model(f"tap_{name}"):
        raise HoldfastError(f"there is no TAP for {name}")
    found = name if ours else f"tap_{name}"
    tap = {"tap": "tap-identity" if base.model.init else "tap"}
    own = {"encoder": found, "encoder_options": tap} if detects else tap
    return {
        "model": {"name": "detector" if detects else found, "kwargs": merge(model.kwargs, own)},
        "optimizer": {"lr_factors": {"dilation_predictor": TAP_FACTOR}},
    }


def shortened(base: Recipe, length: Mapping[str, Any]) -> dict[str, Any]:
    """Recipe values for another length: the share of the warm-up stays, nothing cools down, few validations."""
    schedule, train = base.schedule, base.train
    epochs = length.get("epochs")
    before = max(train.epochs, 1)
    after = float(epochs if epochs is not None else length["whole"])
    values: dict[str, Any] = {
        "train": {"epochs": epochs, "steps": None}
        if epochs is not None
        else {"steps": length["steps"], "epochs": before},
        "schedule": {
            "warmup_epochs": round(schedule.warmup_epochs * after / before, 4),
            "warmup_steps": max(1, round(schedule.warmup_steps * after / before)),
            "cooldown_epochs": 0,
            "drops": [max(1, round(drop * after / before)) for drop in schedule.drops],
        },
    }
    values["train"]["eval_epochs"] = max(1, round(after / 10))
    return values
