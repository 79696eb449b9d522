"""Does what a study still lacks: trains, evaluates and analyses run by run, in several processes if wanted.

Everything is resumable: a run that was cut goes on from its checkpoint, an evaluation from its records, and a finished
run is one small result file that is never computed twice.
"""

import contextlib
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console

from holdfast import atomic
from holdfast._version import __version__
from holdfast.errors import HoldfastError
from holdfast.studies.measures import measure
from holdfast.studies.plan import Study
from holdfast.studies.results import (
    RunResult,
    all_results,
    fingerprint,
    finished,
    result_path,
    row_file_name,
    write_result,
)


def run_study(
    study: Study, *, out: Path, processes: int = 1, console: Console | None = None
) -> dict[str, list[RunResult]]:
    """Do all runs of a study that are not finished, and return the results by row.

    Args:
        study: what to do.
        out: the study's folder; ``results/`` holds what the table needs, ``runs/`` everything else.
        processes: how many runs at a time; the result does not depend on it.
        console: where to say how far it is.
    """
    console = console or Console(stderr=True)
    if processes < 1:
        raise HoldfastError(f"processes must be at least 1, got {processes}")
    missing = missing_runs(study, out)
    total = len(study.rows) * len(study.seeds)
    if len(missing) < total:
        console.print(f"{total - len(missing)} of {total} runs are finished", highlight=False)
    for done, (row, seed, seconds) in enumerate(_each(study, missing, out=out, processes=processes), 1):
        count = f"{total - len(missing) + done}/{total}"
        console.print(f"{count} {row}, seed {seed}: {seconds / 60:.1f} processor minutes", highlight=False)
    return all_results(out, study)


def missing_runs(study: Study, out: Path) -> list[tuple[str, int]]:
    """The runs that have no result yet, seed by seed, so that a study that is cut has compared all rows."""
    return [(row, seed) for seed in study.seeds for row in study.rows if finished(out, study, row, seed) is None]


def _each(study: Study, runs: list[tuple[str, int]], *, out: Path, processes: int) -> Iterator[tuple[str, int, float]]:
    if processes == 1 or len(runs) < 2:
        for row, seed in runs:
            yield row, seed, do_run(study, row, seed, out=out)
        return
    # spawn: a forked process would share torch's thread pools
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_share_cores, initargs=(processes,)) as pool:
        waiting = {pool.submit(do_run, study, row, seed, out=out): (row, seed) for row, seed in runs}
        try:
            for future in as_completed(waiting):
                yield *waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _share_cores(processes: int) -> None:
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


def do_run(study: Study, row: str, seed: int, *, out: Path) -> float:
    """Train, measure and keep one run; returns the processor seconds of it all."""
    from holdfast.training.loop import train
    from holdfast.training.run_folder import RunFolder

    folder = out / "runs" / row_file_name(row) / f"seed{seed}"
    recipe = study.recipe_of(row, seed)
    RunFolder(folder).check(recipe, resume=True)
    if not (folder / "model.safetensors").exists():
        with _cost(folder, "train"):
            result = train(recipe, out=folder, resume=True, show=False)
        if result.stopped_by:
            raise KeyboardInterrupt
    with _cost(folder, "measure"):
        right, measures, facts = measure(study, folder)
    cost = _read_cost(folder)
    header = {
        "fingerprint": fingerprint(study, row, seed),
        "test": study.test,
        "limit": study.limit,
        "processor_seconds": cost,
        "holdfast": __version__,
        **facts,
    }
    try:
        write_result(result_path(out, row, seed), RunResult(row, seed, right, measures, header))
    except OSError as error:
        raise HoldfastError(f"out must be a folder we can write to, got {str(out)!r} ({error.strerror})") from error
    return sum(cost.values())


@contextlib.contextmanager
def _cost(folder: Path, purpose: str) -> Iterator[None]:
    """Adds the processor time of a block to the run's account, so that a run that was cut pays for all its parts."""
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
