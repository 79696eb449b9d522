"""What a run starts from: a model with random, pretrained or earlier weights, a fitting head, and frozen parts."""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
from timm.models import load_state_dict, model_entrypoint
from torch import Tensor, nn

from holdfast.errors import HoldfastError, nearest
from holdfast.models import create_model, model_names
from holdfast.training.recipe import ModelRecipe

log = logging.getLogger(__name__)


def named_model(recipe: ModelRecipe) -> ModelRecipe:
    """The recipe with its model's name, which ``timm:NAME`` and ``run:DIR`` also tell."""
    kind, _, rest = (recipe.init or "").partition(":")
    if kind == "timm":
        told = rest
    elif kind == "run":
        told = _run_config(Path(rest))["architecture"]
    else:
        told = recipe.name or ""
    if not told:
        raise HoldfastError("model.name must name a model, or --init must be timm:NAME or run:DIR; got neither")
    if recipe.name and _plain(recipe.name) != _plain(told):
        raise HoldfastError(f"model.name and init must agree, got {recipe.name!r} and {recipe.init!r} ({told})")
    return replace(recipe, name=told)


def start_model(recipe: ModelRecipe, *, classes: int, size: int | None) -> nn.Module:
    """Build the model of a recipe for so many classes and that image size, and load what it starts from."""
    recipe = named_model(recipe)
    assert recipe.name is not None
    kwargs = {**recipe.kwargs, "num_classes": classes, **size_argument(recipe.name, size)}
    if recipe.init is None:
        model = _build(recipe.name, **kwargs)
    elif recipe.init.startswith("timm:"):
        model = _pretrained(recipe, kwargs)
    else:
        model = _build(recipe.name, **kwargs)
        _load(model, recipe)
    freeze(model, recipe.frozen)
    return model


def freeze(model: nn.Module, names: list[str]) -> None:
    """Exclude the named modules or parameters from training."""
    for name in names:
        found = [p for key, p in model.named_parameters() if key == name or key.startswith(f"{name}.")]
        if not found:
            known = {key.rsplit(".", depth)[0] for key, _ in model.named_parameters() for depth in range(3)}
            raise HoldfastError(f"model.frozen: {name!r} is no part of the model{nearest(name, known)}")
        for parameter in found:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HoldfastError(f"model.frozen must leave something to train, got {names}")


def train_mode(model: nn.Module) -> None:
    """Training mode, except for modules all of whose parameters are frozen: their statistics stay as they are."""
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()


def _build(name: str, **kwargs: Any) -> nn.Module:
    try:
        return create_model(name, **kwargs)
    except TypeError as error:
        raise HoldfastError(f"model.kwargs must be arguments of {name} ({error})") from error


def size_argument(name: str, size: int | None) -> dict[str, int]:
    """``img_size`` for models that must know it; convolutional ones of timm do not take it."""
    known = timm.is_model(_plain(name))
    fixed = _plain(name) in model_names() or (known and _default_cfg(name).get("fixed_input_size", False))
    return {"img_size": size} if size is not None and fixed else {}


def _plain(name: str) -> str:
    return name.split(".", maxsplit=1)[0]  # without the tag of the pretrained weights


def _default_cfg(name: str) -> dict[str, Any]:
    cfg = timm.get_pretrained_cfg(name, allow_unregistered=True)
    return cfg.to_dict() if cfg is not None else {}


# ------------------------------------------------------------------ pretrained by timm


def _pretrained(recipe: ModelRecipe, kwargs: dict[str, Any]) -> nn.Module:
    assert recipe.name is not None
    known = _default_cfg(recipe.name).get("num_classes")
    if recipe.head == "keep" and known != kwargs["num_classes"]:
        raise _other_classes(f"timm:{recipe.name}", known, kwargs["num_classes"])
    try:
        model = create_model(recipe.name, pretrained=True, **kwargs)
    except HoldfastError:
        raise
    except Exception as error:  # every transport of huggingface_hub has exceptions of its own
        raise HoldfastError(
            f"the weights of timm:{recipe.name} cannot be fetched ({_first_line(error)}); "
            f"with a file at hand: --model.name={recipe.name} --init FILE"
        ) from error
    if recipe.head == "new":
        model.reset_classifier(kwargs["num_classes"])
    return model


# ------------------------------------------------------------------ from a file or a run


def _load(model: nn.Module, recipe: ModelRecipe) -> None:
    assert recipe.init is not None
    path = _run_weights(Path(recipe.init[4:])) if recipe.init.startswith("run:") else Path(recipe.init)
    weights = _fit_keys(_read_weights(path), model, recipe.name or "")
    heads = _head_keys(model)
    own = model.state_dict()
    misfit = [key for key in heads if key in weights and weights[key].shape != own[key].shape]
    if misfit and recipe.head == "keep":
        raise _other_classes(str(path), len(weights[misfit[0]]), len(own[misfit[0]]))
    if misfit or recipe.head == "new":
        log.info("%s has another head: starting with a new one of %d classes", path, len(own[heads[0]]))
        weights = {key: value for key, value in weights.items() if key not in heads}
    _check_fit(weights, own, optional=set(heads), path=path, name=recipe.name or "")
    model.load_state_dict(weights, strict=False)


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise HoldfastError(f"init must be timm:NAME, run:DIR or a weight file; {str(path)!r} does not exist")
    try:
        return load_state_dict(str(path), use_ema=True, weights_only=True)
    except Exception as error:  # damaged files and refused pickles raise errors of many kinds
        raise HoldfastError(f"{str(path)!r} cannot be read safely as weights ({_first_line(error)})") from error


def _fit_keys(weights: dict[str, Tensor], model: nn.Module, name: str) -> dict[str, Tensor]:
    """The architecture's own filter: renames old keys, resamples positions to the model's resolution."""
    for module in (model_entrypoint(_plain(name)).__module__, type(model).__module__):
        fit: Callable[..., dict[str, Tensor]] | None = getattr(sys.modules[module], "checkpoint_filter_fn", None)
        if fit is not None:
            return fit(weights, model)
    return weights


def _check_fit(
    weights: dict[str, Tensor], own: dict[str, Tensor], *, optional: set[str], path: Path, name: str
) -> None:
    missing = sorted(own.keys() - weights.keys() - optional)
    unknown = sorted(weights.keys() - own.keys())
    shapes = sorted(key for key in weights.keys() & own.keys() if weights[key].shape != own[key].shape)
    for what, keys in (("lacks", missing), ("adds", unknown), ("has other shapes of", shapes)):
        if keys:
            shown = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
            raise HoldfastError(f"{str(path)!r} does not fit the model {name}: it {what} {shown}")


def _head_keys(model: nn.Module) -> list[str]:
    names = getattr(model, "pretrained_cfg", {}).get("classifier") or []
    heads = [names] if isinstance(names, str) else list(names)
    return [key for key in model.state_dict() if any(key.startswith(f"{head}.") for head in heads)]


def _run_config(run: Path) -> dict[str, Any]:
    try:
        return json.loads((run / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"init run:{run} must be a finished run with model.safetensors and config.json") from error


def _run_weights(run: Path) -> Path:
    _run_config(run)
    return run / "model.safetensors"


def _other_classes(origin: str, has: int | None, wanted: int) -> HoldfastError:
    return HoldfastError(
        f"{origin} has {has} classes but the data have {wanted}; model.head=auto or new starts with a new head"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
