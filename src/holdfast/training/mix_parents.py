"""The models that ``holdfast mix`` averages: their weights, and why some cannot be averaged."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.models.adaptation import adapter_of
from holdfast.models.checkpoint_keys import head_keys
from holdfast.models.checkpoints import read_weights
from holdfast.models.factory import architecture_of, load_torch_model
from holdfast.models.weight_averaging import check_same_tensors
from holdfast.registry import model_spec
from holdfast.training.linear_probe import fit_head, linear_head
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import load_recipe
from holdfast.training.recipe_images import open_images
from holdfast.training.run_folder import CONFIG, RunFolder
from holdfast.training.seeding import Stream, seeded

logger = logging.getLogger(__name__)

NO_DATA = "none"  # in the recipe of a mixture of models that no run tells the images of
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Parent:
    """A model that is mixed: weights, and of a run what ``config.json`` and ``recipe.yaml`` say."""

    spec: str
    state: State
    config: Mapping[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None
    classes: tuple[str, ...] | None = None

    @property
    def architecture(self) -> str | None:
        """The timm name, where it is known."""
        return self.config.get("architecture")


def read_parents(recipe: Recipe, *, fit: bool = True) -> list[Parent]:
    """The weights of all parents; refuses models that cannot be averaged.

    A start with another head gets that of a linear probe, unless ``fit`` is False.
    """
    assert recipe.model.mix is not None
    mixed = recipe.model.mix
    if len(mixed.parents) < 2 or (mixed.rule == "interpolate" and len(mixed.parents) != 2):
        raise HoldfastError(
            f"model.mix.parents must be two models to interpolate, or two and more for a soup; got {mixed.parents}"
        )
    parents = [_read_parent(spec) for spec in mixed.parents]
    last = parents[-1]
    for parent in parents[:-1]:
        _check_alike(parent, last)
    if mixed.rule == "interpolate" and other_heads(parents[0], last):
        if not fit:
            return parents
        parents[0] = _with_probe(parents[0], last, recipe)
    check_same_tensors([parent.state for parent in parents])
    if sentence := _independent_starts(parents):
        logger.warning(sentence)
    return parents


def _read_parent(spec: str) -> Parent:
    parsed = model_spec(spec)
    folder = parsed.folder
    if folder is None:
        loaded = load_torch_model(spec, what="holdfast mix")
        return Parent(
            spec, loaded.model.state_dict(), {"architecture": architecture_of(loaded.model)}, None, loaded.classes
        )
    if adapter_of(folder) is not None:
        raise HoldfastError(f"{str(folder)!r} is a frozen model with adapters; only whole models can be averaged")
    recipe = load_recipe(RunFolder(folder).recipe) if RunFolder(folder).recipe.is_file() else None
    files = [folder / CONFIG, folder / "model.safetensors"]
    if parsed.checkpoint or not all(path.is_file() for path in files):
        loaded = load_torch_model(spec, what="holdfast mix")
        config = _config(folder if files[0].is_file() else folder / "checkpoints")
        return Parent(spec, loaded.model.state_dict(), config, recipe, loaded.classes)
    config = _config(folder)
    names = config.get("label_names")
    return Parent(spec, read_weights(files[1]), config, recipe, tuple(map(str, names)) if names else None)


def _config(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise HoldfastError(f"{str(folder / CONFIG)!r} cannot be read as a model's configuration") from error


def _check_alike(one: Parent, other: Parent) -> None:
    """What shapes do not tell: the architecture's name and arguments, classes and their order, normalisation."""
    pair = f"{one.spec} and {other.spec}"
    names = [name.split(".")[0] for parent in (one, other) if (name := parent.architecture)]
    if len(set(names)) > 1:
        raise HoldfastError(
            f"models must have the same architecture to be averaged, but {pair} are {' and '.join(names)}"
        )
    if len(one.classes or ()) == len(other.classes or ()) and one.classes != other.classes:
        raise HoldfastError(
            f"models must have the same classes in the same order to be averaged; those of {pair} differ"
        )
    if one.recipe is None or other.recipe is None:
        return
    arguments = [parent.config.get("model_args") or {} for parent in (one, other)]
    if arguments[0] != arguments[1]:
        raise HoldfastError(f"models must have the same architecture to be averaged, but model.kwargs of {pair} differ")
    for key in ("mean", "std", "input_size"):
        values = [(parent.config.get("pretrained_cfg") or {}).get(key) for parent in (one, other)]
        if values[0] != values[1]:
            raise HoldfastError(
                f"models must see alike images to be averaged, but {key} of {pair} is {values[0]} and {values[1]}"
            )


def other_heads(start: Parent, end: Parent) -> bool:
    """Whether the start's head is not that of the end's classes: of another shape, or the end began with a new one."""
    if any(key in start.state and start.state[key].shape != value.shape for key, value in end.state.items()):
        return True
    return start.classes is None and end.recipe is not None and end.recipe.model.head == "new"


def _with_probe(start: Parent, end: Parent, recipe: Recipe) -> Parent:
    """The start with a head for the classes of the end, fitted to its frozen features: a random one would be noise."""
    model: Any = load_torch_model(start.spec, what="holdfast mix").model
    head = head_keys(model)
    for key, value in end.state.items():
        if key not in head and (key not in start.state or start.state[key].shape != value.shape):
            raise HoldfastError(
                f"models must have the same architecture to be averaged, but {key!r} of {start.spec} and {end.spec} "
                "differs"
            )
    need_images(recipe, f"{start.spec} has another head than {end.spec}; a linear probe for it")
    linear_head(model)  # refuses what no probe can be fitted to
    model.reset_classifier(next(len(end.state[key]) for key in sorted(head) if key in end.state))
    with seeded(Stream.WEIGHTS, recipe.seed):
        images = open_images(recipe, model, classes=end.classes)
        probe = fit_head(model, images.each_training_image(), images.each_validation_image(), device=images.device)
    logger.warning(
        "%s has another head than %s: it gets a linear probe's, %.2f %% in validation",
        start.spec,
        end.spec,
        probe.accuracy,
    )
    return replace(start, state={key: value.cpu() for key, value in model.state_dict().items()}, classes=end.classes)


def _independent_starts(parents: Sequence[Parent]) -> str | None:
    """What is wrong with averaging networks that did not start from the same weights."""
    starts = {
        (parent.recipe.model.init, None if parent.recipe.model.init else parent.recipe.seed)
        for parent in parents
        if parent.recipe is not None and parent.recipe.model.init not in {other.spec for other in parents}
    }
    chained = {parent.recipe.model.init for parent in parents if parent.recipe} & {parent.spec for parent in parents}
    if len(starts) < 2 or chained:
        return None
    return "the models did not start from the same weights; averages of independently trained networks are near chance"


def need_images(recipe: Recipe, what: str) -> None:
    """Refuse what cannot be done without images, where no run tells any."""
    if NO_DATA in (recipe.data.train, recipe.data.val):
        raise HoldfastError(f"{what} needs training images: --train-data, or a run among the models")
