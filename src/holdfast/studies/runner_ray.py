"""Ray runner of studies: workers call ``do_run``, as local processes do.

If nodes share no folder, the runs that a run starts from are sent with it, and its files are sent back, without
checkpoints.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.runtime.gather import Files, read_files, task_folder, write_files
from holdfast.runtime.ray import Cluster, tasks_on
from holdfast.studies.config import Study
from holdfast.studies.results import result_path
from holdfast.studies.runner import Run, do_run, ready_runs, run_path
from holdfast.training.run_folder import check_free

PATIENCE = 120  # seconds until a process on a lost node notices that and releases the lock of its run


def run_on_ray(
    study: Study, runs: list[Run], *, out: Path, cluster: Cluster, tell: Callable[[Iterable[Run]], None]
) -> Iterator[tuple[Run, float]]:
    """Submit runs as soon as their starting points are finished; yield each with its CPU seconds."""
    out.mkdir(parents=True, exist_ok=True)
    shared = None if cluster.gather else out  # unresolved: recipes contain the paths of the runs they start from
    waiting = list(runs)
    with tasks_on(cluster) as tasks:

        def hand_over() -> None:
            going = list(tasks.waiting.values())
            for run in ready_runs(study, waiting, {*waiting, *going}):
                waiting.remove(run)
                starts: Files = {}
                for other in study.needs(run[0]) if cluster.gather else ():
                    starts |= _files(out, other, run[1])
                tasks.submit(run, do_run_there, study, run, shared, starts)
            tell(tasks.waiting.values())

        hand_over()
        for run, (seconds, made) in tasks.results():
            write_files(out, made)
            yield run, seconds
            hand_over()


def do_run_there(study: Study, run: Run, out: Path | None, starts: Files) -> tuple[float, Files]:
    """Run one run in a worker, in the shared folder or in a temporary one that is sent back."""
    with task_folder(out, starts) as place:
        if out is not None:
            _wait_until_free(run_path(place, *run))
        return do_run(study, *run, out=place), _files(place, *run) if out is None else {}


def _wait_until_free(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            check_free(folder)
        except HoldfastError:
            time.sleep(1)
        else:
            return


def _files(out: Path, name: str, seed: int) -> Files:
    """Files of a run without its checkpoints, and its result."""
    folder = run_path(out, name, seed)
    paths = (path for path in folder.rglob("*") if "checkpoints" not in path.relative_to(folder).parts)
    return read_files(out, [*paths, result_path(out, name, seed)])
