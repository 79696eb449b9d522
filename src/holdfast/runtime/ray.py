"""Independent pieces of work as tasks of a Ray cluster (extra ``ray``): the functions that a local process calls.

Ray schedules, retries what a lost node had in hands, and counts processors and GPUs. What is done here is little: find
the cluster, bring along plug-ins and the working directory, and turn failures into sentences.
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
from holdfast.errors import HoldfastError
from holdfast.runtime.dry_run import add_elsewhere, time_work
from holdfast.runtime.plugins import PLUGIN_FILES, load_plugin_file

logger = logging.getLogger(__name__)
Job = TypeVar("Job")
PATIENCE = 20  # seconds for tasks to leave in good order
REACH = 10  # seconds for somebody to answer at the address of a cluster
WAY_ON = "what is finished stays, and the same command goes on from it"
RETRIES = 20  # of a task whose node or process was lost; its units that are on disk are not done again


@dataclass(frozen=True)
class Cluster:
    """Where to run, and what every task needs.

    Attributes:
        address: of a cluster that is there, ``auto`` for the one that this machine belongs to; None starts a local one.
        cpus: processors per task.
        gpus: GPUs per task; parts of one share it.
        gather: bring results home instead of writing them into a folder that all nodes see.
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
            raise HoldfastError("--on ray needs Ray, which is not installed: pip install 'holdfast-vision[ray]'")


@dataclass(frozen=True)
class TaskResult:
    """What a task brings back: its result, the processor seconds it took, or the one sentence about its failure."""

    result: Any = None
    processor: float = 0.0
    sentence: str | None = None


@dataclass(frozen=True)
class _Surroundings:
    """What a task must find as it is here."""

    folder: str
    path: tuple[str, ...]
    plugins: Mapping[str, tuple[str, str]]  # by module: its file and its text
    threads: int


@dataclass
class RayTasks(Generic[Job]):
    """Tasks that were handed over, and what each is about."""

    ray: Any
    run: Any
    wanted: Mapping[str, float]
    waiting: dict[Any, Job] = field(default_factory=dict)

    def submit(self, job: Job, function: Callable[..., Any], *arguments: Any) -> None:
        """Hand over one task."""
        self.waiting[self.run.remote(function, *arguments)] = job

    @property
    def slots(self) -> int:
        """How many tasks the cluster can run at a time, as it is now."""
        there = self.ray.cluster_resources()
        rooms = [there.get(name, 0) / wanted for name, wanted in self.wanted.items() if wanted]
        return max(1, int(min(rooms)))

    def finished(self) -> Iterator[tuple[Job, Any]]:
        """What comes back first, until nothing is left: jobs and results. More may be submitted while this goes on."""
        while self.waiting:
            with _in_sentences(self.ray):
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
    """The address of ``ray=ADDRESS``; None for ``ray`` alone, which starts Ray on this machine."""
    name, sign, address = text.partition("=")
    if name != "ray" or (sign and not address):
        raise HoldfastError(f"--on must be ray, or ray=ADDRESS such as ray=auto or ray=10.0.0.1:6379, got {text!r}")
    return address or None


def check_reachable(cluster: Cluster) -> None:
    """Refuse a cluster that nobody answers for, before anything is written; Ray itself would try for a quarter hour."""
    address = cluster.address or ""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address and not (host and port.isdecimal()):  # auto: only Ray knows what is meant
        _connect(cluster).shutdown()
    elif address:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
        except (OSError, OverflowError, UnicodeError) as error:
            reason = f"nobody answers there: {error}"
            raise HoldfastError(f"the Ray cluster {address!r} cannot be joined ({reason})") from error


@contextmanager
def tasks_on(cluster: Cluster) -> Iterator[RayTasks[Any]]:
    """Join the cluster while the block lasts; what was handed over and is not finished then is cancelled."""
    ray = _connect(cluster)
    with _in_sentences(ray), _left(ray):
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": RETRIES}
        _check_resources(ray, cluster)
        here = ray.put(ray.cloudpickle.dumps(_surroundings(cluster)))
        run = ray.remote(**options, scheduling_strategy="SPREAD")(worker_function())
        tasks: RayTasks[Any] = RayTasks(
            ray, _Bound(run, here, ray.cloudpickle.dumps), {"CPU": cluster.cpus, "GPU": cluster.gpus}
        )
        try:
            yield tasks
        finally:
            _cancel(ray, list(tasks.waiting))


@contextmanager
def _left(ray: Any) -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _in_sentences(ray: Any) -> Iterator[None]:
    """Whatever Ray itself raises, as one sentence."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise HoldfastError(f"Ray has failed ({_first_line(error)}); {WAY_ON}") from error


def check_alive(ray: Any) -> None:
    """Refuse to wait for a local Ray of which a process is gone: Ray would end this one without a word later."""
    node = getattr(getattr(ray, "_private", None), "worker", None)
    node = getattr(node, "_global_node", None)
    dead = [str(name) for name, _ in node.dead_processes()] if node is not None else []
    if dead:
        raise HoldfastError(
            f"Ray's {' and '.join(dead)} on this machine has died, perhaps for want of memory; {WAY_ON}"
        )


def _cancel(ray: Any, references: Sequence[Any]) -> None:
    """As Ctrl-C on one machine: a training saves itself first."""
    try:
        check_alive(ray)
    except HoldfastError:  # nobody is left who could be told
        return
    for reference in references:
        with suppress(Exception):  # whatever Ray raises about a task that has just ended
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
    if cluster.address is None:  # the tasks are what was asked for, not something beside it
        os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    if ray.is_initialized():
        raise HoldfastError("this process is in a Ray cluster already; leave it with ray.shutdown() first")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": False}
    if cluster.address is None:  # local: a cluster of one's own, whatever RAY_ADDRESS says and whoever runs one here
        options |= {"address": "local", "include_dashboard": False, "num_cpus": _cores()}
    else:
        options["address"] = cluster.address
    try:
        with _own_signals(), _on_loopback() if cluster.address is None else nullcontext():
            ray.init(**options)
    except Exception as error:  # Ray raises plain ones, too
        name = "on this machine" if cluster.address is None else repr(cluster.address)
        raise HoldfastError(f"the Ray cluster {name} cannot be joined ({_first_line(error)})") from error
    if cluster.address is None:
        _say_open_ports(ray)
    return ray


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let Ray take 127.0.0.1 for this machine's address, as it does on systems without clusters: nobody else is served.

    Ray has no option for it on Linux; :func:`_say_open_ports` looks whether this worked.
    """
    from ray._private import ray_constants

    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _say_open_ports(ray: Any) -> None:
    """Name the ports at which others can reach a Ray that was started for one command."""
    for node in ray.nodes():
        if node["NodeManagerAddress"] not in ("127.0.0.1", "::1"):
            ports = [str(node[name]) for name in ("NodeManagerPort", "ObjectManagerPort") if node.get(name)]
            logger.warning(
                "Ray listens at %s, reachable from outside while this command runs: ports %s and those of its workers",
                node["NodeManagerAddress"],
                ", ".join(ports),
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray listens to SIGTERM itself; Ctrl-C and SIGTERM stay ours."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        with suppress(ValueError):  # not in the main thread: then nobody took them
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_resources(ray: Any, cluster: Cluster) -> None:
    """A task that no node can ever hold would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, wanted in (("CPU", cluster.cpus), ("GPU", cluster.gpus)):
        most = max((node.get(name, 0) for node in nodes), default=0)
        if wanted > most:
            option = f"--{name.lower()}s-per-task"
            raise HoldfastError(f"{option} must be at most what a node of the cluster has, {most:g}, got {wanted:g}")


def _surroundings(cluster: Cluster) -> _Surroundings:
    plugins = {name: (str(file), file.read_text(encoding="utf-8")) for name, file in PLUGIN_FILES.items()}
    return _Surroundings(os.getcwd(), tuple(sys.path), plugins, max(1, int(cluster.cpus)))


def _fetch_result(ray: Any, reference: Any) -> TaskResult | str:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.as_instanceof_cause() from None
    except ray.exceptions.RayError as error:
        raise HoldfastError(f"Ray has given up on a task ({_first_line(error)}); {WAY_ON}") from error


def worker_function() -> Callable[[str, bytes, bytes], Any]:
    """What Ray runs in a worker: it compares versions before anything of Holdfast is unpickled."""

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
    """In a worker of Ray: make it a place like the one that the task comes from, then do what it is about."""
    try:
        _settle(_unpickle(here))
        function, arguments = _unpickle(packed)
        took, result = time_work(function, *arguments)
    except HoldfastError as error:
        return TaskResult(sentence=str(error))
    return TaskResult(result, took.processor)


def _unpickle(content: bytes) -> Any:
    """What the driver handed over; it fails where a module or name of the driver's is not there."""
    from ray import cloudpickle

    try:
        return cloudpickle.loads(content)
    except (ImportError, AttributeError) as error:
        same = "driver and workers must have the same version of Holdfast and of all that a task uses"
        raise HoldfastError(f"{same}: {platform.node()} has another ({error})") from error


def _settle(here: _Surroundings) -> None:
    if Path(here.folder).is_dir():  # relative paths are meant from there
        os.chdir(here.folder)
    sys.path += [place for place in here.path if place not in sys.path]
    for name, (file, text) in here.plugins.items():
        if name not in sys.modules:
            _load(name, Path(file), text)
    os.environ["OMP_NUM_THREADS"] = str(here.threads)  # what torch reads when it is first imported
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(here.threads)


def _load(name: str, file: Path, text: str) -> None:
    """A plug-in from where it is at home, or from a copy of its text where there is no such file."""
    with suppress(OSError):
        if file.read_text(encoding="utf-8") == text:
            load_plugin_file(name, file)
            return
    copy = Path(tempfile.mkdtemp(prefix="holdfast-plugin-")) / file.name
    copy.write_text(text, encoding="utf-8")
    load_plugin_file(name, copy)
