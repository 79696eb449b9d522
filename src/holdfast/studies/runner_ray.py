"""Ray runner of studies: workers call ``do_run``, as local processes do.

If nodes share no folder, the runs that a run starts from are sent with it, and its files are sent back, without
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
    """Run one run in a worker, in the shared folder or in a temporary one that is sent back."""
    if out is not None:
        if not out.is_dir():
            raise HoldfastError(
                f"{str(out)!r} does not exist on {platform.node()}: --out must be a folder that all nodes share, "
                "or use --gather to copy results back"
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
    """Pack a run's folder without checkpoints, and its result, into a tar archive."""
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
            archive.extractall(out, filter="data")  # refuses absolute paths, links outside and devices
