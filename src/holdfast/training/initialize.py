"""Initialisation of a run's model: random, pretrained or earlier weights, a head of the right size, frozen parts."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import timm
from torch import nn

from holdfast.data import Source
from holdfast.data.class_labels import of_folders
from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.models import create_model, model_names
from holdfast.models.checkpoints import holds_ema, load_checkpoint, read_weights
from holdfast.models.factory import download_model
from holdfast.models.segmenter import segmenter
from holdfast.registry import model_spec
from holdfast.training.recipe import ModelRecipe, Recipe

TAP_ARGUMENTS = ("tap", "tap_branches")


def named_model(recipe: ModelRecipe) -> ModelRecipe:
    """The recipe with its model's name, which ``timm:NAME`` or ``run:DIR`` may give; a run gives arguments, too."""
    start, kwargs = model_spec(recipe.init or ""), recipe.kwargs
    if start.kind == "timm":
        told = start.rest
    elif start.kind == "run":
        config = _run_config(Path(start.rest))
        arguments = config.get("model_args", {})
        # for a segmenter, its encoder
        told = str(arguments.get("encoder") or config.get("architecture") or "")
        if recipe.name is None and not kwargs and "encoder" not in arguments:
            kwargs = {key: value for key, value in arguments.items() if key != "img_size"}  # data.size decides that
    else:
        told = recipe.name or ""
    if not told:
        raise HoldfastError("the recipe names no model: set model.name, or --init to timm:NAME or run:DIR")
    if recipe.name == f"tap_{_plain(told)}":  # weights trained without TAP
        told = recipe.name
    if recipe.name and _plain(recipe.name) != _plain(told):
        raise HoldfastError(f"model.name and init must agree, got {recipe.name!r} and {recipe.init!r} ({told})")
    return replace(recipe, name=told, kwargs=kwargs)


@dataclass(frozen=True)
class ResumedRun:
    """A run to resume: its classes in their order, or whether it is from an earlier version."""

    classes: tuple[str, ...] | None = None
    earlier_version: bool = False


def with_init_settings(recipe: Recipe) -> Recipe:
    """A classifier's recipe with size, normalisation and crop of ``--init run:DIR`` where it leaves them open."""
    start = model_spec(recipe.model.init or "")
    if start.kind != "run":
        return recipe
    told = _run_config(Path(start.rest)).get("pretrained_cfg") or {}
    found = {name: told.get(name) for name in ("mean", "std", "crop_pct")}
    found["size"] = (told.get("input_size") or [None])[-1]
    missing = {name: value for name, value in found.items() if value and getattr(recipe.data, name) is None}
    return replace(recipe, data=replace(recipe.data, **missing))


def class_order(resumed: ResumedRun, recipe: ModelRecipe, train: Source) -> tuple[str, ...] | None:
    """The order of a run's classes: that of the resumed run, or of the run whose head it starts with."""
    if resumed.classes is not None:
        return resumed.classes
    if resumed.earlier_version:  # which sorted class folders by name as text
        return tuple(sorted(train.classes)) if of_folders(train) else None
    start = model_spec(recipe.init or "")
    if start.kind != "run" or recipe.head == "new":
        return None
    names = _run_config(Path(start.rest)).get("label_names")
    return tuple(map(str, names)) if isinstance(names, list) and names else None


def described_start(recipe: ModelRecipe) -> str:
    """A sentence about the weights that a run starts from."""
    start = model_spec(recipe.init or "")
    if recipe.init is None:
        return "starts from random weights"
    if start.kind == "timm":
        return f"starts from the pretrained weights of {recipe.init}"
    path, ema = _init_file(recipe)
    if ema:
        others = "; use --init-weights raw for the others" if recipe.init_weights == "auto" else ""
        return f"starts from the averaged (EMA) weights of {recipe.init}{others}"
    raw = recipe.init_weights == "raw" and (path.parent.name == "last" or holds_ema(path))
    return f"starts from the {'raw ' if raw else ''}weights of {recipe.init}"


def start_model(recipe: ModelRecipe, *, classes: int, size: int | None) -> nn.Module:
    """Build the model of a recipe for a number of classes and an image size, and load its initial weights."""
    recipe = named_model(recipe)
    assert recipe.name is not None
    kwargs = {**recipe.kwargs, "num_classes": classes, **size_argument(recipe.name, size)}
    if model_spec(recipe.init or "").kind == "timm":
        model = _load_pretrained(recipe, kwargs) if not _adds_tap(recipe) else _load_under_tap(recipe, kwargs)
    else:
        model = _build(recipe.name, **kwargs)
        if recipe.init is not None:
            _load(model, recipe, classes=classes)
    freeze(model, recipe.frozen)
    return model


def start_segmenter(recipe: ModelRecipe, *, classes: int) -> nn.Module:
    """Build a segmenter with the recipe's model as encoder and load its initial weights, or a classifier's."""
    recipe = named_model(recipe)
    assert recipe.name is not None
    pretrained = model_spec(recipe.init or "").kind == "timm"
    options = {**recipe.kwargs, **({"pretrained": True} if pretrained else {})}
    try:
        model = segmenter(recipe.name, num_classes=classes, **options)
    except (TypeError, OSError, RuntimeError) as error:
        reason = first_line(error)
        raise HoldfastError(f"a segmenter of {recipe.name} cannot be built with model.kwargs ({reason})") from error
    if recipe.init is not None and not pretrained:
        _load(model, recipe, classes=classes)
    freeze(model, recipe.frozen)
    return model


def size_argument(name: str, size: int | None) -> dict[str, int]:
    """The argument ``img_size`` for models that have it; timm's convolutional models do not."""
    known = timm.is_model(_plain(name))
    fixed = _plain(name) in model_names() or (known and _default_cfg(name).get("fixed_input_size", False))
    return {"img_size": size} if size is not None and fixed else {}


def freeze(model: nn.Module, names: list[str]) -> None:
    """Exclude the named modules or parameters from training."""
    for name in names:
        found = [p for key, p in model.named_parameters() if key == name or key.startswith(f"{name}.")]
        if not found:
            known = {key.rsplit(".", depth)[0] for key, _ in model.named_parameters() for depth in range(3)}
            raise HoldfastError(f"model.frozen: {name!r} is not a part of the model{nearest(name, known)}")
        for parameter in found:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HoldfastError(f"model.frozen must leave something to train, got {names}")


def train_mode(model: nn.Module) -> None:
    """Set training mode, except for modules whose parameters are all frozen: their statistics must not change."""
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            module.eval()


def _build(name: str, **kwargs: Any) -> nn.Module:
    try:
        return create_model(name, **kwargs)
    except HoldfastError:
        raise
    except Exception as error:  # a model may raise anything for unsuitable arguments
        reason = first_line(error)
        raise HoldfastError(f"model.kwargs must be arguments of {name} ({reason})") from error


def _load_pretrained(recipe: ModelRecipe, kwargs: dict[str, Any]) -> nn.Module:
    assert recipe.name is not None
    classes, known = kwargs["num_classes"], _default_cfg(recipe.name).get("num_classes")
    if recipe.head == "keep" and known != classes:
        raise _other_classes(f"timm:{recipe.name}", has=known, wanted=classes)
    instead = f"to start from a file, use --model.name={recipe.name} --init FILE"
    model = download_model(recipe.name, instead=instead, **kwargs)
    if recipe.head == "new":
        model.reset_classifier(classes)
    return model


def _adds_tap(recipe: ModelRecipe) -> bool:
    return recipe.name == f"tap_{_plain(model_spec(recipe.init or '').rest)}"


def _load_under_tap(recipe: ModelRecipe, kwargs: dict[str, Any]) -> nn.Module:
    """The model with a new TAP, and the pretrained weights of the model without it in all other modules."""
    assert recipe.name is not None
    stock = replace(recipe, name=model_spec(recipe.init or "").rest)
    weights = _load_pretrained(stock, {key: value for key, value in kwargs.items() if key not in TAP_ARGUMENTS})
    model = _build(recipe.name, **kwargs)
    model.load_state_dict(weights.state_dict(), strict=False)
    return model


def _load(model: nn.Module, recipe: ModelRecipe, *, classes: int) -> None:
    """Load a file; position embeddings and PAAS masks are interpolated to the model's resolution."""
    path, ema = _init_file(recipe)
    loaded = load_checkpoint(model, path, ema=ema if holds_ema(path) else None)
    head = next((key for key in loaded.left_out if key.endswith(".weight")), None)
    if recipe.head == "keep" and head is not None:
        weights = read_weights(path)
        has = len(weights[head]) if head in weights and weights[head].ndim else 0
        raise _other_classes(str(path), has=has, wanted=classes)
    if recipe.head == "new":
        model.reset_classifier(classes)


def _init_file(recipe: ModelRecipe) -> tuple[Path, bool]:
    """The file of the initial weights, and whether to load its averaged ones, according to ``init_weights``."""
    init = recipe.init or ""
    start = model_spec(init)
    if start.kind == "run":
        path, ema = _file_of_run(Path(start.rest), recipe.init_weights)
    else:
        path = Path(init)
        if not path.is_file():
            raise HoldfastError(f"init must be timm:NAME, run:DIR or a weight file; {init!r} does not exist")
        ema = recipe.init_weights != "raw" and holds_ema(path)
    if not path.is_file():
        raise HoldfastError(f"init must be timm:NAME, run:DIR or a weight file; {str(path)!r} does not exist")
    if recipe.init_weights == "ema" and not ema:
        raise HoldfastError(f"init {init!r} holds no averaged (EMA) weights; omit --init-weights ema")
    return path, ema


def _file_of_run(run: Path, asked: str) -> tuple[Path, bool]:
    """The weights that a run exported, averaged if it has EMA; the raw weights are in its last checkpoint."""
    last = run / "checkpoints" / "last"
    averaged = (last / "ema.safetensors").is_file()
    if averaged and asked == "raw":
        return last / "model.safetensors", False
    return run / "model.safetensors", averaged


def _run_config(run: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((run / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise HoldfastError(f"init run:{run} must be a finished run with model.safetensors and config.json") from error


def _other_classes(origin: str, *, has: int | None, wanted: int) -> HoldfastError:
    return HoldfastError(
        f"{origin} has {has} classes but the data have {wanted}; set model.head to auto or new for a new head"
    )


def _plain(name: str) -> str:
    return name.split(".", maxsplit=1)[0]  # without the tag of the pretrained weights


def _default_cfg(name: str) -> dict[str, Any]:
    cfg = timm.get_pretrained_cfg(name, allow_unregistered=True)
    return cfg.to_dict() if cfg is not None else {}
