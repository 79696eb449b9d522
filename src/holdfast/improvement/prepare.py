"""From a request to a plan: opens model and images, times both, and divides the budget."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.improvement.candidates import AGAINST, ATTACKS, LOW_LR, PLAIN, Candidate, candidate, chosen_candidates
from holdfast.improvement.costs import (
    TrainingCost,
    by_the_clock,
    first_that_trains,
    levelled,
    measuring_cost,
    trial,
)
from holdfast.improvement.halves import Shares, share_images, stopped_by
from holdfast.improvement.plan import Plan, Room, Step, check_control, divide, with_lengths
from holdfast.io.yaml import read_yaml
from holdfast.metrics.scoring.registry import scoring_of
from holdfast.models.factory import load_torch_model
from holdfast.registry import model_spec
from holdfast.tasks import task_named
from holdfast.training.linear_probe import linear_head
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import as_values, load_recipe

Tell = Callable[[str], None]
SUITES = {  # against: what chooses, and what is reported, the fullest first
    "corruptions": (("clean", "selection"), (("clean", "corruptions-135"), ("quick",))),
    "attacks": (("clean", "pgd5"), (("clean", "pgd:eps=1/255,steps=20"), ("clean", "pgd:eps=1/255,steps=10"))),
}
SEGMENTER_ATTACKS = (("clean", "segpgd5"), (("clean", "segpgd:eps=1/255,steps=20"),))
PROBING = 0.5  # of an epoch: a look at every image, and regressions


@dataclass(frozen=True)
class Request:
    """What ``holdfast improve`` is asked for.

    Attributes:
        recipe: how plain training is done; its length is only that of the learning rate's warm-up in relation.
        test: spec of the test images; None takes a part of the validation images.
        budget: wall time in seconds.
        methods: names of candidates; empty for the default ones.
        seeds: seeds of the winner and of plain training in the report.
        against: ``corruptions`` or ``attacks``.
    """

    recipe: Recipe
    test: str | None = None
    budget: float = 3600.0
    methods: tuple[str, ...] = ()
    seeds: int = 1
    against: str = "corruptions"

    def __post_init__(self) -> None:
        if self.against not in AGAINST:
            raise HoldfastError(f"--against must be one of {', '.join(AGAINST)}, got {self.against!r}")
        if not 1 <= self.seeds <= 20:
            raise HoldfastError(f"--seeds must be a number from 1 to 20, got {self.seeds}")
        if self.recipe.model.mix is not None or self.recipe.model.adapt is not None:
            raise HoldfastError("the recipe must train a whole model, got one with model.mix or model.adapt")

    def plain(self) -> dict[str, Any]:
        """As nested values for plan.json."""
        own = {name: getattr(self, name) for name in ("test", "budget", "seeds", "against")}
        return {**own, "methods": list(self.methods), "recipe": as_values(self.recipe)}


def request_of(values: Mapping[str, Any]) -> Request:
    """The request in a plan.json."""
    return Request(**{**values, "recipe": load_recipe(values["recipe"]), "methods": tuple(values["methods"])})


def model_values(model: str) -> dict[str, Any]:
    """Recipe values of ``--model``; raises an error for models that cannot be trained."""
    spec = model_spec(model)
    if spec.folder is not None:
        return {"init": f"run:{spec.folder}", "name": None}
    if spec.kind == "timm":
        name, sign, file = spec.rest.partition("@")
        return {"name": name, "init": file} if sign else {"init": model, "name": None}
    if not spec.kind and ":" not in spec.rest:
        return {"name": spec.rest, "init": None}
    why = "an ONNX file has no gradients" if spec.kind == "onnx" else f"got {model!r}"
    raise HoldfastError(f"--model must be one that can be trained, run:DIR, timm:NAME or timm:NAME@FILE; {why}")


def make_plan(request: Request, *, out: Path, tell: Tell = lambda line: None, slots: int = 1) -> Plan:
    """Open and time everything, and divide the budget for so many trainings at once; nothing is written to ``out``."""
    shares = share_images(request.recipe.data, request.test)
    base = replace(request.recipe, data=stopped_by(request.recipe.data, shares.stop))
    _check_augmentation(base)
    named = chosen_candidates(request.methods, against=request.against)
    out_of = dict[str, str]()
    for name in named:
        if (reason := _unsuitable(name, base, shares)) is not None:
            out_of[name] = reason
    found, costs = dict[str, Candidate](), dict[str, TrainingCost]()
    for name in named:
        if name in out_of:
            continue
        tell(f"timing {name} …")
        try:
            if name == LOW_LR:  # which costs what plain training does
                found[name], costs[name] = candidate(name, base)[0], costs[PLAIN]
            else:
                found[name], costs[name] = first_that_trains(candidate(name, base), base)
        except HoldfastError as error:
            if name == PLAIN:
                raise
            out_of[name] = str(error)
    costs = levelled(costs)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        tell("timing an evaluation …")
        run = Path(folder) / "trial"
        overhead = trial(found[PLAIN].recipe(base, length={"epochs": 1}), run, costs[PLAIN])
        start, remark = _start_of(base, shares, run, out=out)
        if len(costs) == 1 and not start:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in out_of.items()) or "--methods names no other"
            raise HoldfastError(f"there must be a candidate beside plain training, got none ({reasons})")
        choosing, testing = suites_of(request, shares)
        choose = open_data(shares.choose, split="val", exif=base.data.exif)
        test = open_data(shares.test, split="test", exif=base.data.exif)
        amp, spec = base.train.precision in ("bf16", "fp16"), f"run:{run}"
        timed = [measuring_cost(spec, choose, choosing, amp=amp, out=run / "choose")]
        timed += [
            measuring_cost(spec, test, suites, amp=amp, out=run / f"test{number}")
            for number, suites in enumerate(testing)
        ]
        choice, *reports = by_the_clock(timed)
        room = Room(
            budget=request.budget,
            costs={name: _with_probe(name, cost, base, start) for name, cost in costs.items()},
            overhead=overhead,
            choosing=choice,
            testing=dict(zip(testing, reports, strict=True)),
            counts=shares.counts,
            mixes=bool(start),
            seeds=request.seeds,
            slots=slots,
            first=PROBING * costs[PLAIN].epoch if start.startswith(f"run:{out}") else 0.0,
        )
    division = divide(room)
    plan = Plan(
        request=request.plain(),
        start=start,
        probe=start.startswith(f"run:{out}"),
        candidates={name: dict(found[name].values) for name in division.names},
        costs={name: room.costs[name] for name in division.names},
        overhead=round(overhead, 3),
        choice=room.choosing,
        report=room.testing[division.suites],
        left_out={**out_of, **division.left_out},
        rungs=division.rungs,
        stop=shares.stop,
        choosing=Step(shares.choose, choosing, division.choose),
        testing=Step(shares.test, division.suites, division.test),
        alphas=division.alphas,
        soups=division.soups,
        seeds=request.seeds,
        slots=slots,
        remarks=tuple(filter(None, (shares.remark, remark))),
    )
    check_control(plan)
    return with_lengths(plan, 0, division.names)


def suites_of(request: Request, shares: Shares) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Suites that choose, and those of the report, the fullest first."""
    if request.against == ATTACKS and not task_named(shares.task).evaluation.standard_attack:
        raise HoldfastError("--against attacks is for classification and segmentation, got data of detection")
    if request.against == ATTACKS and not scoring_of(shares.task).one_class:
        return SEGMENTER_ATTACKS
    return SUITES[request.against]


def _check_augmentation(base: Recipe) -> None:
    """Who trains on the kinds that choose or are reported would win by that."""
    if base.augment.corruption is not None:
        raise HoldfastError(
            "augment.corruption must be null: corruptions choose the winner and are reported, and a model that was "
            f"trained on them would win by that; got {base.augment.corruption}"
        )


def _unsuitable(name: str, base: Recipe, shares: Shares) -> str | None:
    """Why a candidate makes no sense here; whether model and task allow it is tried."""
    if "lp-ft" not in name.split("+"):
        return None
    if not scoring_of(shares.task).one_class:
        return f"a linear probe is for classifiers, these are data of {shares.task}"
    return None if base.model.init else "a linear probe needs a pretrained model"


def _start_of(base: Recipe, shares: Shares, run: Path, *, out: Path) -> tuple[str, str]:
    """Spec of the model that interpolations start from, and a remark."""
    if not base.model.init:
        return "", "no interpolation: training starts from nothing"
    start = model_spec(base.model.init)
    classes = tuple(open_data(base.data.train, split="train").classes)
    if start.folder is not None and base.model.head != "new" and _classes_of(start.folder) == classes:
        return f"run:{start.folder}", ""
    if not scoring_of(shares.task).one_class:
        return "", f"no interpolation: {base.model.init} has no head for these data"
    try:
        linear_head(load_torch_model(f"run:{run}", what="holdfast improve").model)
    except HoldfastError as error:
        return "", f"no interpolation: {error}"
    return f"run:{out / 'start'}", "the start has no head for these classes: it gets that of a linear probe"


def _classes_of(folder: Path) -> tuple[str, ...]:
    try:
        config: Any = read_yaml((folder / "config.json").read_text(encoding="utf-8"), name="config.json")
        return tuple(map(str, config["label_names"]))
    except (OSError, KeyError, TypeError, ValueError):
        return ()


def _with_probe(name: str, cost: TrainingCost, base: Recipe, start: str) -> TrainingCost:
    if "lp-ft" not in name.split("+"):
        return cost
    return replace(cost, start=cost.start + PROBING * cost.epoch)


def names_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """Names of candidates from a comma list or a sequence."""
    words = text.split(",") if isinstance(text, str) else text
    return tuple(word.strip() for word in words if word.strip())
