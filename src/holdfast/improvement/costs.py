"""What candidates cost on this machine: seconds per epoch of training, and per image that is measured."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.data import Source, stratified_subset
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import ComputeConfig
from holdfast.evaluation.evaluate import evaluate
from holdfast.improvement.candidates import Candidate
from holdfast.runtime.dry_run import NOTHING, Seconds, time_work
from holdfast.training.accelerator import engine
from holdfast.training.build import build_training
from holdfast.training.dry_run import forecast_run
from holdfast.training.loop import train
from holdfast.training.phases import parts_of
from holdfast.training.recipe import Recipe
from holdfast.training.seeding import Stream, seeded

FEW, MORE = 4, 16  # images of the two measurements that an evaluation is extrapolated from
TRIAL_STEPS = 3  # of the training that shows what a run costs besides its steps


@dataclass(frozen=True)
class TrainingCost:
    """Cost of a candidate's training.

    Attributes:
        start: seconds before the first step.
        epoch: seconds of an epoch with its validation.
        steps: steps of an epoch.
        processor: processor seconds of an epoch, which other work on the machine does not change.
    """

    start: float
    epoch: float
    steps: int
    processor: float = 0.0


@dataclass(frozen=True)
class MeasuringCost:
    """Seconds of an evaluation: before the first image, and per image in all cells."""

    start: float
    image: float

    def of(self, images: int) -> float:
        """Seconds of so many images."""
        return self.start + self.image * images


def first_that_trains(candidates: Sequence[Candidate], base: Recipe) -> tuple[Candidate, TrainingCost]:
    """The first of a candidate's forms that the model and the task allow, with its cost; else the first one's error."""
    refused: HoldfastError | None = None
    for candidate in candidates:
        try:
            return candidate, training_cost(candidate.recipe(base, length={"epochs": 1}))
        except HoldfastError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def training_cost(recipe: Recipe) -> TrainingCost:
    """Time some of a recipe's steps and images, without writing anything."""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        parts = parts_of(recipe, Path(name))
        begin = time.perf_counter()
        first = parts[0].recipe if parts else recipe
        with seeded(Stream.WEIGHTS, recipe.seed), engine(recipe.train, folder=Path(name)) as accelerator:
            state = build_training(first, accelerator)
            start = time.perf_counter() - begin
            epochs, steps = state.epochs, state.steps_per_epoch
            spent = forecast_run(state, Path(name)).spent.times(1 / max(epochs, 1))
    runs = max(len(parts), 1)
    return TrainingCost(start * runs, runs * spent.wall, steps, runs * spent.processor)


def wall_of_processor(costs: Mapping[str, TrainingCost]) -> float:
    """Wall seconds that pass in a second of processor time, over all that was timed."""
    processor = sum(cost.processor for cost in costs.values())
    return sum(cost.epoch for cost in costs.values()) / processor if processor else 1.0


def levelled(costs: Mapping[str, TrainingCost]) -> dict[str, TrainingCost]:
    """Costs whose ratios are those of the processor time, where it is the processor that works.

    Wall times of a few steps differ by what else the machine happened to do, also between equal candidates.
    """
    if torch.cuda.is_available() or not all(cost.processor for cost in costs.values()):
        return dict(costs)
    wall = wall_of_processor(costs)
    return {
        name: replace(cost, start=min(each.start for each in costs.values()), epoch=round(wall * cost.processor, 3))
        for name, cost in costs.items()
    }


def trial(recipe: Recipe, out: Path, forecast: TrainingCost) -> float:
    """Train a few steps into ``out``; returns the seconds that a run takes besides its steps and validation."""
    few = replace(recipe, train=replace(recipe.train, epochs=1, steps=TRIAL_STEPS))
    few = replace(few, schedule=replace(few.schedule, warmup_epochs=0, warmup_steps=1))
    begin = time.perf_counter()
    train(few, out=out, show=False)
    validation = 0.3 * forecast.epoch / max(forecast.steps, 1)  # hardly anything beside an epoch
    took = time.perf_counter() - begin - forecast.start - validation
    return max(0.3, took - forecast.epoch * min(1.0, TRIAL_STEPS / forecast.steps))


def measuring_cost(
    model: nn.Module | str, data: Source, suites: Any, *, amp: bool, out: Path
) -> tuple[MeasuringCost, Seconds]:
    """Time an evaluation of a few images, and of some more.

    Returns:
        the cost, in processor time where it is the processor that works, and the time that both took
    """
    both, took = NOTHING, list[float]()
    counts = [min(FEW, len(data) // 2), min(MORE, len(data))]
    for count in counts:
        few = stratified_subset(data, count, seed=0)
        spent, _ = time_work(partial(measure, model, few, suites, amp=amp, out=out / str(count)))
        both += spent
        took.append(spent.wall if torch.cuda.is_available() else spent.processor)
    each = max(took[1] - took[0], 0.2 * took[1]) / max(counts[1] - counts[0], 1)
    return MeasuringCost(max(took[0] - each * counts[0], 0.05), each), both


def by_the_clock(found: Sequence[tuple[MeasuringCost, Seconds]]) -> list[MeasuringCost]:
    """Costs in wall time: how much of it passes in a second of processor time is known best from all evaluations."""
    if torch.cuda.is_available():
        return [cost for cost, _ in found]
    wall, processor = (sum(getattr(took, name) for _, took in found) for name in ("wall", "processor"))
    factor = wall / processor if processor else 1.0
    return [MeasuringCost(factor * cost.start, factor * cost.image) for cost, _ in found]


def measure(model: Any, data: Any, suites: Any, *, amp: bool, **options: Any) -> Any:
    """``holdfast.evaluate`` as improve calls it: in this process on a CPU, with loader processes for a GPU."""
    workers = None if torch.cuda.is_available() else 0
    return evaluate(model, data, suites, workers=workers, compute=ComputeConfig(amp=amp), **{"show": False} | options)
