"""The runs of a study as tasks of a Ray cluster: a worker calls ``do_run``, as a local process does.

Where nodes share no folder, the runs that a run starts from travel with it, and what it made comes home, without its
checkpoints.
"""

import io
import platform
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.runtime.ray import Cluster, tasks_on
from holdfast.studies.config import Study
from holdfast.studies.results import result_path
from holdfast.studies.runner import Run, do_run, ready_runs, run_path
from holdfast.training.lock import check_free

PATIENCE = 120  # seconds until a process of a lost node has noticed that it is lost, and lets go of its run


def run_on_ray(
    study: Study, runs: list[Run], *, out: Path, cluster: Cluster, tell: Callable[[Iterable[Run]], None]
) -> Iterator[tuple[Run, float]]:
    """All runs, each when those that it starts from are done; with the processor seconds of each."""
    out.mkdir(parents=True, exist_ok=True)
    shared = None if cluster.gather else out  # as it is: recipes name the runs that they start from
    waiting = list(runs)
    with tasks_on(cluster) as tasks:

        def hand_over() -> None:
            going = list(tasks.waiting.values())
            for run in ready_runs(study, waiting, {*waiting, *going}):
                waiting.remove(run)
                starts = (
                    {other: _pack_run(out, other, run[1]) for other in study.needs(run[0])} if cluster.gather else {}
                )
                tasks.submit(run, do_run_there, study, run, shared, starts)
            tell(tasks.waiting.values())

        hand_over()
        for run, (seconds, made) in tasks.results():
            _unpack(made, out)
            yield run, seconds
            hand_over()


def do_run_there(study: Study, run: Run, out: Path | None, starts: dict[str, bytes]) -> tuple[float, bytes]:
    """In a worker: one run into the shared folder or, without one, packed."""
    if out is not None:
        if not out.is_dir():
            raise HoldfastError(
                f"{str(out)!r} is not there on {platform.node()}: --out must be a folder that all nodes see, "
                "or --gather brings the results home"
            )
        _wait_until_free(run_path(out, *run))
        return do_run(study, *run, out=out), b""
    with tempfile.TemporaryDirectory(prefix="holdfast-") as name:
        for content in starts.values():
            _unpack(content, Path(name))
        return do_run(study, *run, out=Path(name)), _pack_run(Path(name), *run)


def _wait_until_free(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            check_free(folder)
        except HoldfastError:
            time.sleep(1)
        else:
            return


def _pack_run(out: Path, name: str, seed: int) -> bytes:
    """A run's folder without its checkpoints, and its result."""
    buffer, folder = io.BytesIO(), run_path(out, name, seed)
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "checkpoints" not in path.relative_to(folder).parts:
                archive.add(path, path.relative_to(out))
        if (result := result_path(out, name, seed)).is_file():
            archive.add(result, result.relative_to(out))
    return buffer.getvalue()


def _unpack(content: bytes, out: Path) -> None:
    if content:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(out, filter="data")
