"""Run folders: recipe.yaml, log.jsonl, checkpoints/, and in the end model.safetensors and config.json.

An adapted model is stored as its added modules (models/adaptation.py) and the frozen model's two files in backbone/.
One process at a time trains in a folder; the lock of a process that died is free.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timm.models._hub import save_config_for_hf
from torch import nn

from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.models.adaptation import BACKBONE, adapter_named, adapter_of
from holdfast.models.segmenter import Segmenter
from holdfast.training.augment.classification import ImageFormat
from holdfast.training.checkpoint import save_weights
from holdfast.training.initialize import ResumedRun, named_model, size_argument
from holdfast.training.phases import phase_notes
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import differences, load_recipe, to_yaml

CONFIG = "config.json"


@dataclass(frozen=True)
class RunFolder:
    """Paths and state of a run folder."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, with the links last and best."""
        return self.path / "checkpoints"

    @property
    def recipe(self) -> Path:
        """The file of the complete recipe."""
        return self.path / "recipe.yaml"

    @property
    def finished(self) -> bool:
        """Whether the run has written its model."""
        return (self.path / CONFIG).is_file() or adapter_of(self.path) is not None  # the files that are written last

    @property
    def resumed(self) -> ResumedRun:
        """The run in this folder, to be resumed."""
        try:
            names = json.loads((self.checkpoints / CONFIG).read_text(encoding="utf-8"))["label_names"]
            return ResumedRun(tuple(map(str, names)))
        except (OSError, ValueError, KeyError, TypeError):
            return ResumedRun(earlier_version=any(self.checkpoints.glob("step-*")))

    def check(self, recipe: Recipe, *, resume: bool) -> None:
        """Raise an error for a folder with a run, unless it is resumed with the same recipe."""
        if not self.recipe.exists():
            return
        if not resume:
            raise HoldfastError(f"{str(self.path)!r} already holds a run; add --resume or choose another --out")
        other = differences(load_recipe(self.recipe), recipe)
        if other:
            shown = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
            raise HoldfastError(
                f"{str(self.path)!r} is a run of another recipe: {shown}; a run resumes with its own recipe: omit "
                f"these values, or start a new run from its weights with --init run:{self.path} and another --out"
            )

    @contextmanager
    def locked(self, recipe: Recipe, *, resume: bool) -> Iterator[None]:
        """Make and lock the folder and write the recipe; a failure before the first log line removes them again."""
        with atomic.remove_on_failure(self.path, unless=(self.path / "log.jsonl").exists):
            try:
                self.checkpoints.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._not_writable(error) from error
            with lock_folder(self.path):
                self.check(recipe, resume=resume)  # another process may have started in between
                try:
                    atomic.write_text(self.recipe, to_yaml(recipe))
                except OSError as error:
                    raise self._not_writable(error) from error
                yield

    def _not_writable(self, error: OSError) -> HoldfastError:
        return HoldfastError(f"out must be a folder we can write to, got {str(self.path)!r} ({error.strerror})")


def export_model(
    model: nn.Module, folder: Path, *, recipe: Recipe, image: ImageFormat, classes: tuple[str, ...]
) -> None:
    """Write the model for ``timm.create_model("local-dir:RUN", pretrained=True)``; adapters use their own format."""
    if recipe.model.adapt is not None:
        (folder / BACKBONE).mkdir(exist_ok=True)
        plain = replace(recipe, model=replace(recipe.model, adapt=None))
        frozen: Any = model.backbone
        export_model(frozen, folder / BACKBONE, recipe=plain, image=image, classes=classes)
        adapter_named(recipe.model.adapt.name).save(model, folder, phase_notes(recipe))
        return
    write_config(model, folder, recipe=recipe, image=image, classes=classes, weights=True)


def write_config(
    model: nn.Module,
    folder: Path,
    *,
    recipe: Recipe,
    image: ImageFormat,
    classes: tuple[str, ...],
    weights: bool = False,
) -> None:
    """Write ``config.json``, from which the model is rebuilt, after its weights if ``weights`` is set."""
    encoder = named_model(recipe.model).name or ""
    dense = isinstance(model, Segmenter)
    name = "segmenter" if dense else encoder
    describe(model, image=image, architecture=name.split(".", maxsplit=1)[0], num_classes=len(classes))
    for attribute, value in (("num_classes", len(classes)), ("num_features", None)):
        if not hasattr(model, attribute):  # a user's module without the attributes that timm reads
            setattr(model, attribute, value)
    own = {"encoder": encoder.split(".", maxsplit=1)[0]} if dense else size_argument(name, recipe.data.size)
    arguments = {**recipe.model.kwargs, **own}
    try:
        if weights:
            with atomic.replace_file(folder / "model.safetensors") as temporary:
                save_weights(model, temporary)
        with atomic.replace_file(folder / CONFIG) as temporary:
            path: Any = temporary  # annotated as text, used as a path
            save_config_for_hf(model, path, model_config={"label_names": list(classes)}, model_args=arguments)
            _sort_model_args(temporary)
    except OSError as error:
        raise HoldfastError(f"the model cannot be written into {str(folder)!r} ({error.strerror})") from error


def _sort_model_args(path: Path) -> None:
    """Sort the arguments of a model: timm records them in another order for a model that was loaded from a folder."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if "model_args" in config:
        config["model_args"] = dict(sorted(config["model_args"].items()))
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def describe(model: nn.Module, *, image: ImageFormat, **more: Any) -> None:
    """Set timm's data configuration of a model to the recipe's input format."""
    described: Any = model  # timm keeps this dictionary on the module
    described.pretrained_cfg = {
        **(getattr(described, "pretrained_cfg", None) or {}),
        **more,
        "input_size": (3, image.size, image.size),
        "mean": image.mean,
        "std": image.std,
        "interpolation": image.interpolation,
        "crop_pct": image.crop_pct,
    }


try:
    import fcntl
except ImportError:  # Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()


def check_free(folder: Path) -> None:
    """Raise an error for a folder that another process trains in."""
    if folder.is_dir():
        with lock_folder(folder):
            pass


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder itself (flock), so that no lock file remains; without effect where flock is not supported."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    _held.add(descriptor)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HoldfastError(
            f"another process is training in {str(folder)!r}; wait for it or choose another --out"
        ) from error
    except OSError:  # NFS without locks
        return


def _let_go() -> None:
    """Release the lock in forked workers: they may outlive their parent, and a lock lasts while it is open anywhere."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
