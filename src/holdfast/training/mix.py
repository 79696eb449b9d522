"""``holdfast mix``: WiSE-FT and model soups of finished models, as run folders with their parents in the recipe.

The averages themselves are models/weight_averaging.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from timm.models._hub import save_config_for_hf
from torch import Tensor, nn

from holdfast.data.official_sets import is_official
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.models.factory import load_torch_model
from holdfast.models.weight_averaging import (
    GREEDY_RULES,
    average,
    greedy_soup,
    has_batch_statistics,
    reestimate_batch_norm,
)
from holdfast.registry import model_spec
from holdfast.runtime.dry_run import human_bytes
from holdfast.training.mix_parents import NO_DATA, Parent, State, need_images, other_heads, read_parents
from holdfast.training.recipe import DataRecipe, MixRecipe, ModelRecipe, Recipe
from holdfast.training.recipe_files import check_values, load_recipe, to_yaml
from holdfast.training.recipe_images import RecipeImages, open_images, validation_scores
from holdfast.training.run_folder import CONFIG, RunFolder
from holdfast.training.seeding import Stream, seeded


@dataclass(frozen=True)
class MixResult:
    """A mixture: its folder, the weight of every parent, and its validation scores (%) where they were measured."""

    folder: Path
    weights: Mapping[str, float]
    scores: Mapping[str, float] = field(default_factory=dict)


def mix(
    *models: str | Path,
    out: str | Path,
    alpha: float | Sequence[float] = 0.5,
    soup: str | None = None,
    greedy: str = "released",
    train: str | None = None,
    val: str | None = None,
    validate: bool = False,
) -> list[MixResult]:
    """Average the weights of models of one architecture: WiSE-FT, or a soup. One run folder per mixture.

    Args:
        models: runs (``run:DIR``, a folder, ``run:DIR@best``) or ``timm:NAME[@FILE]``; of two that are interpolated
            the start comes first.
        out: the new run's folder; with several ``alpha`` one folder ``alpha-…`` for each is made in it.
        alpha: weight of the second of two models.
        soup: ``uniform`` or ``greedy`` instead of an interpolation, for two models or more.
        greedy: a greedy soup accepts what raises the validation score (``released``) or does not lower it (``paper``).
        train: training images, instead of those of the last run: for BatchNorm's statistics and linear probes.
        val: validation images, instead of those of the last run: greedy soups choose on these.
        validate: measure every mixture on the validation images.
    """
    recipe = mix_recipe(models, soup=soup, greedy=greedy, train=train, val=val)
    assert recipe.model.mix is not None
    alphas = [alpha] if isinstance(alpha, int | float) else list(alpha)
    if soup is not None:
        alphas = [recipe.model.mix.alpha]
    folders = [Path(out) / f"alpha-{value:g}" for value in alphas] if len(alphas) > 1 else [Path(out)]
    recipes = [_with_alpha(recipe, value) for value in alphas]
    for mixed, folder in zip(recipes, folders, strict=True):
        _check_folder(folder)
        check_values(mixed)
    parents = read_parents(recipe)
    return [
        mix_run(mixed, folder, parents=parents, validate=validate)
        for mixed, folder in zip(recipes, folders, strict=True)
    ]


def mix_recipe(
    models: Sequence[str | Path], *, soup: str | None, greedy: str, train: str | None = None, val: str | None = None
) -> Recipe:
    """The recipe of a mixture: that of the last parent that is a run, with the parents in ``model.mix``."""
    if len(models) < 2:
        raise HoldfastError(f"holdfast mix needs at least two models, got {len(models)}")
    if soup is None and len(models) > 2:
        raise HoldfastError(f"alpha weighs two models, got {len(models)}; --soup uniform or greedy takes several")
    if soup not in (None, "uniform", "greedy"):
        raise HoldfastError(f"soup must be uniform or greedy, got {soup!r}")
    if greedy not in GREEDY_RULES:
        raise HoldfastError(f"greedy must be one of {', '.join(GREEDY_RULES)}, got {greedy!r}")
    specs = [_spec(model) for model in models]
    base = _base_recipe(specs)
    mixed: Any = MixRecipe(parents=specs, rule=soup or "interpolate", greedy=greedy)  # type: ignore[arg-type]
    own = train if train is not None and base.data.val == NO_DATA else base.data.val  # the validation part of the same
    data = replace(base.data, train=train or base.data.train, val=val or own)
    return replace(base, data=data, model=replace(base.model, adapt=None, mix=mixed))


def _with_alpha(recipe: Recipe, alpha: float) -> Recipe:
    assert recipe.model.mix is not None
    return replace(recipe, model=replace(recipe.model, mix=replace(recipe.model.mix, alpha=float(alpha))))


def _spec(model: str | Path) -> str:
    spec = model_spec(str(model))
    return str(model) if spec.kind else f"run:{model}"


def _base_recipe(specs: Sequence[str]) -> Recipe:
    """The recipe of the last run among the parents; of none a recipe without images."""
    for spec in reversed(specs):
        folder = model_spec(spec).folder
        if folder is not None and RunFolder(folder).recipe.is_file():
            return load_recipe(RunFolder(folder).recipe)
    return Recipe(
        data=DataRecipe(train=NO_DATA, val=NO_DATA), model=ModelRecipe(name=model_spec(specs[-1]).architecture)
    )


# ---------------------------------------------------------------------- the mixture


def mix_run(recipe: Recipe, out: Path, *, parents: Sequence[Parent] | None = None, validate: bool = False) -> MixResult:
    """Make the mixture that a recipe's ``model.mix`` describes and write its run folder, all at once."""
    _check_folder(out)
    parents = parents or read_parents(recipe)
    mixer = _Mixer(recipe, parents)
    weights, notes = mixer.weights()
    state = mixer.state(weights)
    scores = mixer.scores(state) if validate else {}
    _write(out, recipe, parents, state, {"weights": weights, **notes}, scores)
    return MixResult(out, dict(zip([parent.spec for parent in parents], weights, strict=True)), scores)


def _check_folder(out: Path) -> None:
    if RunFolder(out).recipe.exists():
        raise HoldfastError(f"{str(out)!r} already holds a run; choose another --out")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HoldfastError(f"out must be a new or empty folder, got {str(out)!r}")


class _Mixer:
    """Averages parents, with a model and images at hand only where BatchNorm or a score needs them."""

    def __init__(self, recipe: Recipe, parents: Sequence[Parent]) -> None:
        assert recipe.model.mix is not None
        self.recipe, self.parents, self.settings = recipe, parents, recipe.model.mix
        self._opened: tuple[nn.Module, RecipeImages] | None = None

    def weights(self) -> tuple[list[float], dict[str, Any]]:
        """The weight of every parent, and what the log says about how it was found."""
        count = len(self.parents)
        if self.settings.rule == "interpolate":
            return [1 - self.settings.alpha, self.settings.alpha], {}
        if self.settings.rule == "uniform":
            return [1 / count] * count, {}
        self._check_held_out()
        alone = [self._first_score(_only(number, count)) for number in range(count)]
        soup = greedy_soup(
            alone, lambda members: self._first_score(_mean_of(members, count)), GREEDY_RULES[self.settings.greedy]
        )
        notes = {"tried": [self.parents[number].spec for number in soup.tried], "scores": alone, "score": soup.score}
        return _mean_of(soup.members, count), notes

    def _first_score(self, weights: Sequence[float]) -> float:
        return next(iter(self.scores(self.state(weights)).values()))

    def state(self, weights: Sequence[float]) -> State:
        """The averaged weights; of a real average BatchNorm's statistics are those of training images."""
        mean = average([parent.state for parent in self.parents], weights)
        if 1.0 in weights or not has_batch_statistics(mean):
            return mean
        need_images(self.recipe, "BatchNorm's statistics do not average; estimating them anew")
        model, images = self._open()
        model.load_state_dict(mean)
        with seeded(Stream.WEIGHTS, self.recipe.seed):
            reestimate_batch_norm(model, images.shuffled_training_images(self.settings.images))
        return {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}

    def scores(self, state: State) -> dict[str, float]:
        """Of some weights on the validation images."""
        need_images(self.recipe, "a validation score")
        model, images = self._open()
        model.load_state_dict(dict(state))
        return validation_scores(model, images)

    def _open(self) -> tuple[nn.Module, RecipeImages]:
        if self._opened is None:
            last = self.parents[-1]
            model = load_torch_model(last.spec, what="holdfast mix").model
            self._opened = model, open_images(self.recipe, model, classes=last.classes)
        return self._opened

    def _check_held_out(self) -> None:
        """A soup that was chosen on test images, or on somebody's training images, would look better than it is."""
        val = self.recipe.data.val
        if val.endswith(":test") or ":test," in val or is_official(val):
            raise HoldfastError(f"a greedy soup must be chosen on validation images, never on a test set; got {val!r}")
        for parent in self.parents:
            data = parent.recipe.data if parent.recipe is not None else self.recipe.data
            if (data.train, data.val) != (self.recipe.data.train, val):
                raise HoldfastError(
                    f"a greedy soup needs validation images that no ingredient was trained on, but {parent.spec} has "
                    f"data.train {data.train} and data.val {data.val}, not {self.recipe.data.train} and {val}"
                )


def _only(number: int, count: int) -> list[float]:
    return [float(other == number) for other in range(count)]


def _mean_of(members: Sequence[int], count: int) -> list[float]:
    return [1 / len(members) if number in members else 0.0 for number in range(count)]


def _write(
    out: Path,
    recipe: Recipe,
    parents: Sequence[Parent],
    state: State,
    notes: Mapping[str, Any],
    scores: Mapping[str, float],
) -> None:
    lines = [{"event": "mix", "step": 0, "epoch": 0, **notes}]
    lines += [{"event": "epoch", "step": 0, "epoch": 0, **scores}] if scores else []
    lines += [{"event": "end", "step": 0, "epoch": 0, "best": next(iter(scores.values()), None)}]
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with atomic.new_folder(out) as folder:
            (folder / "model.safetensors").write_bytes(save(_untied(state)))
            _write_config(folder, parents)
            (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            (folder / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(out)!r} ({error.strerror})") from error


def _untied(state: State) -> dict[str, Tensor]:
    """Copies of tensors that several keys share, which the file format wants apart; a model ties them again."""
    seen: set[int] = set()
    apart = {}
    for key, value in state.items():
        apart[key] = value.clone() if value.data_ptr() in seen else value.detach().cpu().contiguous()
        seen.add(value.data_ptr())
    return apart


def _write_config(folder: Path, parents: Sequence[Parent]) -> None:
    """The configuration of the last parent that is a run; of none that of the last model, as timm reads it."""
    for parent in reversed(parents):
        if parent.recipe is not None:
            (folder / CONFIG).write_text(json.dumps(parent.config, indent=2), encoding="utf-8")
            return
    model = load_torch_model(parents[-1].spec, what="holdfast mix").model
    path: Any = folder / CONFIG  # annotated as text, used as a path
    save_config_for_hf(model, path)


def describe_mix(*models: str | Path, out: str | Path, alpha: Sequence[float], **options: Any) -> list[str]:
    """What a mixture would be, found without making it: the parents are read and checked."""
    recipe = mix_recipe(models, **{"soup": None, "greedy": "released", **options})
    assert recipe.model.mix is not None
    parents = read_parents(recipe, fit=False)
    _check_folder(Path(out))
    rule, count = recipe.model.mix.rule, len(parents)
    results = len(alpha) if rule == "interpolate" else 1
    looks = f"{2 * count - 1} validations on {recipe.data.val}" if rule == "greedy" else "no validation"
    averages = {"interpolate": sum(0 < value < 1 for value in alpha), "uniform": 1, "greedy": count}[rule]
    norms = has_batch_statistics(parents[-1].state)
    passes = (
        f"{averages} {'pass' if averages == 1 else 'passes'} over at most {recipe.model.mix.images:,} images"
        if norms
        else "no BatchNorm"
    )
    size = sum(tensor.nbytes for tensor in parents[-1].state.values())
    probe = ", a linear probe for the start" if rule == "interpolate" and other_heads(*parents) else ""
    return [
        f"would average {count} models ({rule}) into {out}: {results} run folder{'' if results == 1 else 's'}",
        f"  {looks}, {passes}{probe}",
        f"  on disk: {human_bytes(results * size)}",
    ]
