"""Runner of studies: trains, evaluates and analyses the missing runs, optionally in several processes.

Everything is resumable: an interrupted run resumes from its checkpoint, an evaluation from its records, and a finished
run is one small result file that is never computed twice.
"""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast._version import __version__
from holdfast.errors import HoldfastError
from holdfast.io import atomic
from holdfast.runtime.ray import Cluster
from holdfast.runtime.signals import Terminated, exit_with_parent
from holdfast.studies.checks import check_study
from holdfast.studies.config import Study, row_file_name
from holdfast.studies.measure_run import measure, traces
from holdfast.studies.results import (
    RunResult,
    adopt,
    all_results,
    fingerprint,
    result_of,
    result_path,
    write_result,
)
from holdfast.training.recipe import Recipe
from holdfast.training.recipe_files import differences, load_recipe
from holdfast.training.run_folder import RunFolder

NOT_TAKEN = ("checkpoints", "records", "analysis")  # parts of another study's run that are not copied
Run = tuple[str, int]  # a row or step, and its seed
Tell = Callable[[Iterable[Run]], None]  # called with the runs in progress


def run_study(
    study: Study,
    *,
    out: Path,
    processes: int = 1,
    console: Console | None = None,
    cluster: Cluster | None = None,
) -> dict[str, list[RunResult]]:
    """Run the missing parts of a study and return the results by row.

    Args:
        study: the study.
        out: the study's folder; ``results/`` holds the data of the table, ``runs/`` everything else.
        processes: number of runs in parallel; results do not depend on it.
        console: console for progress.
        cluster: Ray cluster; None for processes of this machine.
    """
    console = console or Console(emoji=False, stderr=True)
    if processes < 1:
        raise HoldfastError(f"processes must be at least 1, got {processes}")
    missing = missing_runs(study, out)
    if missing:
        check_study(study)
    if adopted := adopt(out, study, missing):
        console.print(f"{len(adopted)} runs were copied from neighbouring studies", highlight=False)
        missing = [run for run in missing if run not in adopted]
    total = len(study.rows) * len(study.seeds)
    if len(missing) < total:
        console.print(f"{total - len(missing)} of {total} runs are finished", highlight=False)
    done, todo = total - len(missing), with_starts(study, missing, out)
    alone = cluster is None and (processes == 1 or len(todo) < 2)  # then each run shows its own progress
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=alone or not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("", total=len(todo))

        def tell(going: Iterable[Run]) -> None:
            names = ", ".join(f"{name} seed {seed}" for name, seed in going)
            progress.update(bar, description=names)
            if alone and console.is_terminal:
                console.print(names, highlight=False)

        from holdfast.studies.runner_ray import run_on_ray  # imported late: it imports this module

        runs = (
            _one_by_one(study, todo, out=out, tell=tell, show=console.is_terminal)
            if alone
            else run_on_ray(study, todo, out=out, cluster=cluster, tell=tell)
            if cluster is not None
            else _side_by_side(study, todo, out=out, processes=processes, tell=tell)
        )
        for (name, seed), seconds in runs:
            done += (name, seed) in missing  # do not count runs that were trained only as starting points
            progress.advance(bar)
            console.print(f"{done}/{total} {name}, seed {seed}: {seconds / 60:.1f} CPU minutes", highlight=False)
    return all_results(out, study)


def missing_runs(study: Study, out: Path) -> list[Run]:
    """The runs without a result, ordered by seed, so that an interrupted study has compared all rows."""
    return [(row, seed) for seed in study.seeds for row in study.rows if result_of(out, study, row, seed) is None]


def with_starts(study: Study, runs: Sequence[Run], out: Path) -> list[Run]:
    """Insert before each run the untrained runs that it starts from."""
    ordered: dict[Run, None] = {}
    for name, seed in runs:
        starts = [(other, seed) for other in study.needs(name)]
        untrained = [start for start in starts if not RunFolder(run_path(out, *start)).finished]
        ordered |= dict.fromkeys([*with_starts(study, untrained, out), (name, seed)])
    return list(ordered)


def _one_by_one(study: Study, runs: list[Run], *, out: Path, tell: Tell, show: bool) -> Iterator[tuple[Run, float]]:
    for run in runs:
        tell([run])
        yield run, do_run(study, *run, out=out, show=show)


def _side_by_side(
    study: Study, runs: list[Run], *, out: Path, processes: int, tell: Tell
) -> Iterator[tuple[Run, float]]:
    # spawn: a forked child inherits torch's thread pools without their threads and can deadlock
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_share_cores, initargs=(processes,)) as pool:
        waiting, going = list(runs), dict[Future[float], Run]()
        try:
            while waiting or going:
                ready = ready_runs(study, waiting, {*waiting, *going.values()})
                for run in ready[: processes - len(going)]:
                    waiting.remove(run)
                    with _children_ignore_sigint():
                        going[pool.submit(_do_run_in_child, study, *run, out=out)] = run
                tell(going.values())
                for future in wait(going, return_when=FIRST_COMPLETED).done:
                    yield going.pop(future), future.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()  # training saves a checkpoint first; finished units of an evaluation are on disk
            if isinstance(error, BrokenProcessPool):
                raise HoldfastError(
                    "processes: one of them died, perhaps out of memory; run the same command again to resume, "
                    "with fewer --processes if need be"
                ) from error
            raise


def ready_runs(study: Study, waiting: Sequence[Run], unfinished: Collection[Run]) -> list[Run]:
    """The waiting runs whose starting points are finished."""
    return [run for run in waiting if not any((other, run[1]) in unfinished for other in study.needs(run[0]))]


@contextlib.contextmanager
def _children_ignore_sigint() -> Iterator[None]:
    """Block SIGINT in child processes: the parent handles Ctrl-C, so that a training saves only once."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _do_run_in_child(study: Study, name: str, seed: int, *, out: Path) -> float:
    try:
        return do_run(study, name, seed, out=out)
    except KeyboardInterrupt:  # already saved; the parent no longer reads results, and its queue may be broken
        os._exit(1)


def _share_cores(processes: int) -> None:
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    exit_with_parent()


def run_path(out: Path, name: str, seed: int) -> Path:
    """The run folder of a row or step."""
    return out / "runs" / row_file_name(name) / f"seed{seed}"


def do_run(study: Study, name: str, seed: int, *, out: Path, show: bool = False) -> float:
    """Train one run, and evaluate and store it if it is a row; return its total CPU seconds."""
    from holdfast.training.loop import train

    folder = run_path(out, name, seed)
    recipe = study.recipe_of(name, seed, folders={other: run_path(out, other, seed) for other in study.needs(name)})
    RunFolder(folder).check(recipe, resume=True)
    if not folder.exists():
        take_training(folder, recipe, beside=out.resolve().parent)
    if not RunFolder(folder).finished:
        with _cost(folder, "train"):
            result = train(recipe, out=folder, resume=True, show=show)
        if result.stopped_by:
            raise Terminated if result.stopped_by == signal.SIGTERM else KeyboardInterrupt
    if name not in study.rows or result_of(out, study, name, seed) is not None:
        return sum(_read_cost(folder).values())
    with _cost(folder, "measure"):
        found = measure(study, folder, recipe, show=show)
    cost = _read_cost(folder)
    header = {
        "fingerprint": fingerprint(study, name, seed),
        "test": study.test,
        "limit": study.limit,
        "processor_seconds": cost,
        "holdfast": __version__,
        **found.facts,
    }
    measurements = (found.right, found.measures, header, traces(folder), found.draws, found.figures)
    write_result(result_path(out, name, seed), RunResult(name, seed, *measurements))
    return sum(cost.values())


def take_training(folder: Path, recipe: Recipe, *, beside: Path) -> None:
    """Copy a run that a neighbouring study has trained with the same recipe, if there is one.

    A run that starts from another one has that folder in its recipe, so it is never copied.
    """
    same = (other for other in sorted(beside.glob("*/runs/*/seed*")) if _is_trained(other, recipe))
    if (other := next(same, None)) is not None:
        with atomic.new_folder(folder) as unfinished:
            shutil.copytree(other, unfinished, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*NOT_TAKEN))
            spent = {name: seconds for name, seconds in _read_cost(other).items() if name == "train"}
            atomic.write_text(unfinished / "cost.json", json.dumps(spent) + "\n")


def _is_trained(folder: Path, recipe: Recipe) -> bool:
    try:
        return RunFolder(folder).finished and not differences(load_recipe(RunFolder(folder).recipe), recipe)
    except HoldfastError:  # a damaged file of another study is reported there
        return False


@contextlib.contextmanager
def _cost(folder: Path, purpose: str) -> Iterator[None]:
    """Add the CPU time of a block to ``cost.json``, so that an interrupted run counts all its attempts."""
    start = time.process_time()
    try:
        yield
    finally:
        if folder.is_dir():
            spent = _read_cost(folder)
            spent[purpose] = round(spent.get(purpose, 0.0) + time.process_time() - start, 1)
            atomic.write_text(folder / "cost.json", json.dumps(spent) + "\n")


def _read_cost(folder: Path) -> dict[str, float]:
    try:
        return {name: float(seconds) for name, seconds in json.loads((folder / "cost.json").read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
