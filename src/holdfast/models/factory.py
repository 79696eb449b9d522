"""Model specs: loads a model from ``run:DIR``, ``timm:NAME[@FILE]``, ``python:module:function``, ``onnx:FILE`` …"""

import importlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
from torch import Tensor, nn

from holdfast.errors import HoldfastError, first_line, nearest
from holdfast.models import create_model, model_names
from holdfast.models.adaptation import BACKBONE, adapter_of
from holdfast.models.checkpoint_keys import head_keys, segmenter_arguments
from holdfast.models.checkpoints import architecture_arguments, fill_exactly, load_checkpoint, read_weights
from holdfast.models.hub_offline import quick_hub
from holdfast.models.model_folder import load_folder
from holdfast.models.segmenter import segmenter
from holdfast.models.torchvision_builders import build_torchvision
from holdfast.registry import MODEL_FORMS, ModelSpec, load, model_spec
from holdfast.runtime.device import unwrap_model


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model and its name.

    Attributes:
        model: the module.
        name: its name in records.
        folder: the run folder that it comes from, where its records are stored; None for other models.
        classes: class names, if its files have them.
        given: whether the caller passed a module, which stays on its device.
        own_weights: whether the weights are the folder's ``model.safetensors``, not a checkpoint's or an adapter's.
    """

    model: nn.Module
    name: str
    folder: Path | None = None
    classes: tuple[str, ...] | None = None
    given: bool = False
    own_weights: bool = False


def load_model(model: nn.Module | str | Path) -> LoadedModel:
    """Load the model that a spec names; a path without prefix is a run folder, a module is returned as it is."""
    if isinstance(model, nn.Module):
        return LoadedModel(model, architecture_of(model), given=True)
    text, spec = str(model), model_spec(str(model))
    if spec.kind:
        return SPECS[spec.kind](spec.rest)
    if spec.folder is not None:
        return _of_run(text)
    raise unknown_model(text)


def unknown_model(text: str) -> HoldfastError:
    """The error for text that is neither a spec nor a folder, with the spec that was probably meant."""
    path, kind = Path(text).expanduser(), text.partition(":")[0]
    if timm.is_model(text.partition("@")[0]):
        hint = f"; did you mean 'timm:{text}'?"
    elif path.suffix == ".onnx":
        hint = f"; did you mean 'onnx:{text}'?"
    elif path.is_file():
        hint = f": a weight file needs its architecture, as in timm:NAME@{text}"
    elif close := nearest(kind, MODEL_FORMS) if ":" in text else "":
        hint = close
    elif os.sep in kind:
        return HoldfastError(f"model must be a run's folder or a spec such as timm:NAME, but {text!r} does not exist")
    else:
        close = nearest(text, timm.list_models(), count=1, cutoff=0.8).replace("'", "'timm:", 1)
        hint = close or f"; expected a run's folder or one of {', '.join(MODEL_FORMS.values())}"
    return HoldfastError(f"model must be a module, a run's folder or a spec, got {text!r}{hint}")


def without_model(folder: Path) -> HoldfastError | None:
    """The error for a folder of runs, or of records alone, whose model is elsewhere."""
    if any((folder / name).exists() for name in ("config.json", "recipe.yaml", BACKBONE)):
        return None
    headers = sorted([*folder.glob("records/*/evaluation.json"), *folder.glob("*/evaluation.json")])
    if not headers:
        return _folder_of_runs(folder)
    try:
        name = json.loads(headers[0].read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError):
        name = "a model that is elsewhere"
    return HoldfastError(f"{str(folder)!r} holds records but no model; give the model itself: {name}")


def _folder_of_runs(folder: Path) -> HoldfastError | None:
    runs = sorted(str(file.parent) for file in folder.glob("*/recipe.yaml"))
    if not runs:
        return None
    some = ", ".join(map(repr, runs[:3])) + (" …" if len(runs) > 3 else "")
    return HoldfastError(f"{str(folder)!r} is not a run, but holds runs: {some}; give one of them")


def load_torch_model(model: nn.Module | str | Path, *, what: str) -> LoadedModel:
    """`load_model` for code that needs a torch module; raises an error for an ONNX file, naming ``what``."""
    loaded = load_model(model)
    if not all(getattr(module, "differentiable", True) for module in loaded.model.modules()):
        raise HoldfastError(
            f"{what} needs the layers of a model, which an ONNX file does not have; give the model it was exported from"
        )
    return loaded


def _of_run(rest: str) -> LoadedModel:
    spec = ModelSpec("run", rest)
    folder = spec.folder or Path(rest)
    if adapter := adapter_of(folder):
        if spec.checkpoint:
            raise HoldfastError(f"checkpoint must not be given for a run of adapters, got {spec.checkpoint!r}")
        return LoadedModel(adapter.load(folder), f"run:{folder}", folder, _class_names(folder / BACKBONE))
    if not (folder / "config.json").is_file() and (folder / "checkpoints" / "last").is_dir():
        return _of_stopped_run(folder, spec.checkpoint)
    if (error := without_model(folder)) is not None:
        raise error
    model = _of_folder(folder, what="a finished run's folder")
    if not spec.checkpoint:
        return LoadedModel(model, f"run:{folder}", folder, _class_names(folder), own_weights=True)
    fill_exactly(model, _checkpoint_file(folder, spec.checkpoint))
    return LoadedModel(model, f"run:{folder}@{spec.checkpoint}", folder, _class_names(folder))


def _of_stopped_run(folder: Path, checkpoint: str) -> LoadedModel:
    """The model of an unfinished run, from its checkpoints."""
    checkpoints, on = folder / "checkpoints", f"resume it with holdfast train --out {folder} --resume"
    if not checkpoint:
        raise HoldfastError(
            f"the run in {str(folder)!r} has not finished: use --checkpoint last or --checkpoint best, or {on}"
        )
    if not (checkpoints / "config.json").is_file():
        raise HoldfastError(
            f"the run in {str(folder)!r} has not finished and its model cannot be built from it: it adapts a model, "
            f"or was started by an earlier Holdfast; {on}"
        )
    chosen = _checkpoint_file(folder, checkpoint if checkpoint in ("best", "last") else "last")
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:  # a folder in timm's format
        for name, file in (("config.json", checkpoints / "config.json"), ("model.safetensors", chosen)):
            (Path(temporary) / name).symlink_to(file.resolve())
        model = _of_folder(Path(temporary), what="a run's folder")
    if checkpoint not in ("best", "last"):
        fill_exactly(model, _checkpoint_file(folder, checkpoint))
    return LoadedModel(model, f"run:{folder}@{checkpoint}", folder, _class_names(checkpoints))


def _checkpoint_file(folder: Path, checkpoint: str) -> Path:
    """The weights of ``best`` or ``last``, averaged ones if the run has them; or a file."""
    home = folder / "checkpoints" / checkpoint
    if checkpoint not in ("best", "last"):
        path = Path(checkpoint).expanduser()
        if not path.is_file():
            raise HoldfastError(f"checkpoint must be best, last or a file, got {checkpoint!r}")
        return path
    found = [home / name for name in ("ema.safetensors", "model.safetensors") if (home / name).is_file()]
    if not found:
        raise HoldfastError(f"checkpoint {checkpoint!r} does not exist: {str(home)!r} holds no weights")
    return found[0]


def _of_local_dir(rest: str) -> LoadedModel:
    folder = Path(rest).expanduser()
    model = _of_folder(folder, what="a converted model's folder")
    return LoadedModel(model, f"local-dir:{rest}", classes=_class_names(folder))


def _class_names(folder: Path) -> tuple[str, ...] | None:
    """The class names that training wrote beside the model; None for plain numbers."""
    try:
        names = json.loads((folder / "config.json").read_text(encoding="utf-8"))["label_names"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if whole and names else None


def _of_folder(folder: Path, *, what: str) -> nn.Module:
    missing = [name for name in ("config.json", "model.safetensors") if not (folder / name).is_file()]
    if missing:
        names = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
        raise HoldfastError(f"model must be {what}, but {names} missing in {str(folder)!r}")
    try:
        return load_folder(folder)
    except HoldfastError:
        raise
    except Exception as error:  # a damaged file fails in json, safetensors, timm or torch
        raise HoldfastError(f"the model in {str(folder)!r} cannot be loaded ({first_line(error)})") from error


def _of_timm(rest: str) -> LoadedModel:
    name, _, checkpoint = rest.partition("@")
    if checkpoint:
        path = Path(checkpoint).expanduser()
        model = _model_of_checkpoint(path, name)
        loaded = load_checkpoint(model, path)
        if any(key in head_keys(model) for key in loaded.left_out):
            raise HoldfastError(
                f"{checkpoint} has no classification head that fits {name}: it is a backbone; train a head first, with "
                f"holdfast train RECIPE --model.name={name} --init {checkpoint} --method linear-probe"
            )
        if loaded.left_out:
            raise HoldfastError(f"{checkpoint} must hold all weights of {name}, but {loaded.left_out[0]} does not fit")
        return LoadedModel(model, f"timm:{rest}")
    return LoadedModel(download_model(name, instead=f"to load a file, use timm:{name}@FILE"), f"timm:{name}")


def download_model(name: str, *, instead: str, **arguments: Any) -> nn.Module:
    """A timm model with its published weights; ``instead`` ends the error message if they cannot be downloaded."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # it logs every attempt; one error at the end is enough
    try:
        with quick_hub():
            return create_model(name, pretrained=True, **arguments)
    except HoldfastError:
        raise
    except Exception as error:  # every transport of huggingface_hub has exceptions of its own
        raise HoldfastError(
            f"the weights of timm:{name} cannot be downloaded ({first_line(error)}); {instead}"
        ) from error
    finally:
        hub.setLevel(level)


def _model_of_checkpoint(path: Path, name: str) -> nn.Module:
    """The model that a checkpoint belongs to: a segmenter if it has such a head, else a classifier."""
    state = read_weights(path)
    arguments = segmenter_arguments(state)
    if arguments is None:
        return create_model(name, **_model_arguments(state, name))
    return segmenter(name, **arguments)


def _model_arguments(state: Mapping[str, Tensor], name: str) -> dict[str, Any]:
    """Model arguments that a checkpoint implies: the number of classes, and for our models the kinds of blocks."""
    if name in model_names():
        return architecture_arguments(state, name)
    config = timm.get_pretrained_cfg(name)
    classifier = (config.classifier if config is not None else None) or "head"
    head = f"{classifier if isinstance(classifier, str) else classifier[0]}.weight"
    return {"num_classes": len(state[head])} if head in state and state[head].ndim else {}


def _of_python(rest: str) -> LoadedModel:
    module, _, function = rest.partition(":")
    if not function:
        raise HoldfastError(f"model python:{rest} must name a module and a function, as in python:my_models:build")
    make = _import_function(module, function)
    try:
        model = make()
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise HoldfastError(f"python:{rest} raised {type(error).__name__} ({first_line(error)})") from error
    if not isinstance(model, nn.Module):
        raise HoldfastError(f"python:{rest} must return a torch module, got {type(model).__name__}")
    return LoadedModel(model, f"python:{rest}")


def _import_function(module: str, function: str) -> Callable[[], object]:
    sys.path.insert(0, "")  # modules of the working folder can be imported, as in python itself
    try:
        found = getattr(importlib.import_module(module), function, None)
    except (Exception, SystemExit) as error:  # a missing module, or any error in it
        raise HoldfastError(f"python:{module}:{function} cannot be imported ({first_line(error)})") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise HoldfastError(f"python:{module}:{function} must be a function, but {module} has none of that name")
    return found


def _of_onnx(rest: str) -> LoadedModel:
    model, metadata = load("holdfast.deploy.onnx_model:load_onnx")(Path(rest).expanduser())
    return LoadedModel(model, f"onnx:{rest}", classes=metadata.classes)


def _of_hugging_face(rest: str) -> LoadedModel:
    model, classes = load("holdfast.deploy.huggingface:load_hugging_face")(rest)
    return LoadedModel(model, f"hf:{rest}", classes=classes)


def _of_torchvision(rest: str) -> LoadedModel:
    model, classes = build_torchvision(rest)
    return LoadedModel(model, f"torchvision:{rest}", classes=classes)


def architecture_of(model: nn.Module) -> str:
    """timm's name of the model's architecture, else the name of its class."""
    config = getattr(unwrap_model(model), "pretrained_cfg", None) or {}
    return str(config.get("architecture") or type(unwrap_model(model)).__name__)


SPECS: dict[str, Callable[[str], LoadedModel]] = {
    "run": _of_run,
    "local-dir": _of_local_dir,
    "timm": _of_timm,
    "python": _of_python,
    "onnx": _of_onnx,
    "hf": _of_hugging_face,
    "torchvision": _of_torchvision,
}
