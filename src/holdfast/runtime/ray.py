"""Ray cluster (extra ``ray``): runs independent functions as Ray tasks.

Ray schedules, retries the tasks of lost nodes, and counts processors and GPUs. This module joins the cluster, sends
plug-ins and the working directory along, and turns failures into one-sentence errors.
"""

import importlib.util
import logging
import os
import platform
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast._version import __version__
from holdfast.errors import HoldfastError, first_line
from holdfast.runtime.cores import core_count
from holdfast.runtime.dry_run import add_elsewhere, time_work
from holdfast.runtime.plugins import PLUGIN_FILES, load_plugin_file

logger = logging.getLogger(__name__)
Job = TypeVar("Job")
PATIENCE = 20  # seconds for cancelled tasks to finish
REACH = 10  # seconds to wait for a connection to the address of a cluster
WAY_ON = "finished work is kept: run the same command again to resume"
RETRIES = 20  # of a task whose node or process was lost; its finished units are not repeated


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and the resources of every task.

    Attributes:
        address: address of a running cluster, ``auto`` for the one of this machine; None starts a local one.
        cpus: processors per task.
        gpus: GPUs per task; fractions share one.
        gather: return results to this machine instead of writing them to a folder that all nodes share.
    """

    address: str | None = None
    cpus: float = 1
    gpus: float = 0
    gather: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if not least <= value < 1e6:
                raise HoldfastError(f"--{name}-per-task must be at least {least}, got {value:g}")
        if importlib.util.find_spec("ray") is None:
            raise HoldfastError("--on ray needs Ray, which is not installed: pip install ray")


@dataclass(frozen=True)
class TaskResult:
    """Result of a task with its processor seconds, or the sentence of its failure."""

    result: Any = None
    processor: float = 0.0
    sentence: str | None = None


@dataclass(frozen=True)
class _WorkerSetup:
    """Working directory, path, plug-ins and version that a worker takes over from the driver."""

    folder: str
    path: tuple[str, ...]
    plugins: Mapping[str, tuple[str, str]]  # by module: its file and its text
    threads: int


@dataclass
class RayTasks(Generic[Job]):
    """Submitted tasks with their jobs."""

    ray: Any
    run: Any
    wanted: Mapping[str, float]
    waiting: dict[Any, Job] = field(default_factory=dict)

    def submit(self, job: Job, function: Callable[..., Any], *arguments: Any) -> None:
        """Submit one task for a job."""
        self.waiting[self.run.remote(function, *arguments)] = job

    @property
    def slots(self) -> int:
        """Number of tasks that the cluster can currently run in parallel."""
        there = self.ray.cluster_resources()
        rooms = [there.get(name, 0) / wanted for name, wanted in self.wanted.items() if wanted]
        return max(1, int(min(rooms)))

    def results(self) -> Iterator[tuple[Job, Any]]:
        """Yield jobs and results in the order of completion; more tasks may be submitted meanwhile."""
        while self.waiting:
            with _ray_errors(self.ray):
                ready, _ = self.ray.wait(list(self.waiting), num_returns=1, timeout=1.0)
            check_alive(self.ray)
            for reference in ready:
                job = self.waiting.pop(reference)
                done: TaskResult | str = _fetch_result(self.ray, reference)
                if isinstance(done, str):  # a worker that cannot do our tasks
                    raise HoldfastError(done)
                if done.sentence is not None:
                    raise HoldfastError(done.sentence)
                add_elsewhere(done.processor)
                yield job, done.result


def parse_on(text: str) -> str | None:
    """Parse ``ray=ADDRESS``; returns None for ``ray`` alone, which starts Ray on this machine."""
    name, sign, address = text.partition("=")
    if name != "ray" or (sign and not address):
        raise HoldfastError(f"--on must be ray, or ray=ADDRESS such as ray=auto or ray=10.0.0.1:6379, got {text!r}")
    return address or None


def check_reachable(cluster: Cluster) -> None:
    """Raise an error if the cluster does not respond, before anything is written; Ray would try for 15 minutes."""
    address = cluster.address or ""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address and not (host and port.isdecimal()):  # auto: only Ray can resolve it
        _connect(cluster).shutdown()
    elif address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
        except (OSError, OverflowError, UnicodeError) as error:
            reason = f"no response: {error}"
            raise HoldfastError(f"the Ray cluster {address!r} cannot be joined ({reason})") from error


@contextmanager
def tasks_on(cluster: Cluster) -> Iterator[RayTasks[Any]]:
    """Join the cluster inside the block; unfinished tasks are cancelled at its end."""
    ray = _connect(cluster)
    with _ray_errors(ray), _shut_down(ray):
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": RETRIES}
        _check_resources(ray, cluster)
        here = ray.put(ray.cloudpickle.dumps(worker_setup(cluster)))
        run = ray.remote(**options, scheduling_strategy="SPREAD")(worker_function())
        tasks: RayTasks[Any] = RayTasks(
            ray, _Bound(run, here, ray.cloudpickle.dumps), {"CPU": cluster.cpus, "GPU": cluster.gpus}
        )
        try:
            yield tasks
        finally:
            _cancel(ray, list(tasks.waiting))


@contextmanager
def _shut_down(ray: Any) -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _ray_errors(ray: Any) -> Iterator[None]:
    """Turn Ray's own errors into one sentence."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise HoldfastError(f"Ray failed ({first_line(error)}); {WAY_ON}") from error


def check_alive(ray: Any) -> None:
    """Raise an error if a process of a local Ray has died: Ray would later end this process without a message."""
    node = getattr(getattr(ray, "_private", None), "worker", None)
    node = getattr(node, "_global_node", None)
    dead = [str(name) for name, _ in node.dead_processes()] if node is not None else []
    if dead:
        raise HoldfastError(
            f"Ray's {' and '.join(dead)} on this machine has died, perhaps because it ran out of memory; {WAY_ON}"
        )


def _cancel(ray: Any, references: Sequence[Any]) -> None:
    """Cancel tasks as Ctrl-C does locally: a training saves its state first."""
    try:
        check_alive(ray)
    except HoldfastError:  # no process is left to cancel
        return
    for reference in references:
        with suppress(Exception):  # Ray may raise for a task that has just ended
            ray.cancel(reference)
    if references:
        with suppress(Exception):
            ray.wait(list(references), num_returns=len(references), timeout=PATIENCE)


@dataclass(frozen=True)
class _Bound:
    run: Any
    here: Any
    packed: Callable[[Any], bytes]

    def remote(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.run.remote(__version__, self.here, self.packed((function, arguments)))


def _connect(cluster: Cluster) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if cluster.address is None:  # Ray lowers its workers' priority by default, but here they do the main work
        os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    if ray.is_initialized():
        raise HoldfastError("this process is already connected to a Ray cluster; call ray.shutdown() first")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": False}
    if cluster.address is None:  # a private local cluster, ignoring RAY_ADDRESS and other clusters on this machine
        options |= {"address": "local", "include_dashboard": False, "num_cpus": core_count()}
    else:
        options["address"] = cluster.address
    try:
        with _own_signals(), _on_loopback() if cluster.address is None else nullcontext():
            ray.init(**options)
    except Exception as error:  # Ray also raises plain exceptions
        name = "on this machine" if cluster.address is None else repr(cluster.address)
        raise HoldfastError(f"the Ray cluster {name} cannot be joined ({first_line(error)})") from error
    if cluster.address is None:
        _warn_of_open_ports(ray)
    return ray


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray use 127.0.0.1 as this machine's address, as on systems without clusters, so that it serves no one else.

    Ray has no option for it on Linux; `_warn_of_open_ports` checks whether this worked.
    """
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _warn_of_open_ports(ray: Any) -> None:
    """Warn of ports at which other machines can reach a local Ray."""
    for node in ray.nodes():
        if node["NodeManagerAddress"] not in ("127.0.0.1", "::1"):
            ports = [str(node[name]) for name in ("NodeManagerPort", "ObjectManagerPort") if node.get(name)]
            logger.warning(
                "Ray listens at %s, reachable from outside while this command runs: ports %s and those of its workers",
                node["NodeManagerAddress"],
                ", ".join(ports),
            )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore our handlers of Ctrl-C and SIGTERM after Ray has installed its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        with suppress(ValueError):  # not in the main thread, where handlers cannot be changed
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_resources(ray: Any, cluster: Cluster) -> None:
    """Raise an error if no node has the resources of a task, which would wait forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, wanted in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        most = max((node.get(name, 0) for node in nodes), default=0)
        if wanted > most:
            option = f"--{name.lower()}s-per-task"
            raise HoldfastError(f"{option} must be at most the {most:g} of the cluster's largest node, got {wanted:g}")


def worker_setup(cluster: Cluster) -> _WorkerSetup:
    """Folder, path, plug-ins and cores that a worker takes over from the driver."""
    plugins = {name: (str(file), file.read_text(encoding="utf-8")) for name, file in PLUGIN_FILES.items()}
    return _WorkerSetup(os.getcwd(), tuple(sys.path), plugins, max(1, int(cluster.cpus)))


def _fetch_result(ray: Any, reference: Any) -> TaskResult | str:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError as error:
        raise HoldfastError(f"Ray gave up on a task ({first_line(error)}); {WAY_ON}") from error


def worker_function() -> Callable[[str, bytes, bytes], Any]:
    """The function that Ray runs in a worker: it compares versions before anything of Holdfast is unpickled."""

    # Nested, so that Ray hands over its code: a function of this module would be looked up in the worker's Holdfast,
    # where it may not exist. For the same reason it takes bytes, and returns text where the versions differ.
    def run(version: str, here: bytes, packed: bytes) -> Any:
        import platform

        from holdfast._version import __version__ as installed

        required = "driver and workers must have the same version of Holdfast"
        if installed != version:
            return f"{required}: {installed} is installed on {platform.node()}, and the driver has {version}"
        try:
            from holdfast.runtime.ray import run_task
        except ImportError as error:
            return f"{required}: another {installed} is installed on {platform.node()} ({error})"
        return run_task(here, packed)

    return run


def run_task(here: bytes, packed: bytes) -> TaskResult:
    """Run a task in a Ray worker, after setting the worker up like the driver."""
    try:
        _set_up_worker(_unpickle(here))
        function, arguments = _unpickle(packed)
        took, result = time_work(function, *arguments)
    except HoldfastError as error:
        return TaskResult(sentence=str(error))
    return TaskResult(result, took.processor)


def _unpickle(content: bytes) -> Any:
    """Unpickle what the driver sent; fails if one of its modules or names does not exist here."""
    from ray import cloudpickle

    try:
        return cloudpickle.loads(content)
    except (ImportError, AttributeError) as error:
        same = "driver and workers must have the same version of Holdfast and of all that a task uses"
        raise HoldfastError(f"{same}: {platform.node()} has another ({error})") from error


def _set_up_worker(here: _WorkerSetup) -> None:
    if Path(here.folder).is_dir():  # relative paths refer to it
        os.chdir(here.folder)
    sys.path += [place for place in here.path if place not in sys.path]
    for name, (file, text) in here.plugins.items():
        if name not in sys.modules:
            _load(name, Path(file), text)
    os.environ["OMP_NUM_THREADS"] = str(here.threads)  # torch reads it when it is first imported
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(here.threads)


def _load(name: str, file: Path, text: str) -> None:
    """Load a plug-in from its file, or from a copy of its text if the file is missing or differs."""
    with suppress(OSError):
        if file.read_text(encoding="utf-8") == text:
            load_plugin_file(name, file)
            return
    copy = Path(tempfile.mkdtemp(prefix="holdfast-plugin-")) / file.name
    copy.write_text(text, encoding="utf-8")
    load_plugin_file(name, copy)
