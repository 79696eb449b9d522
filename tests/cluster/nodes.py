"""Two Ray nodes on one machine, on its loopback alone, and commands that run on them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.2"  # 127.0.0.1 Ray takes for a name of the machine's address outside
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A head and a second node, one processor each; always stopped."""
    os.environ.update(SETTINGS)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    from ray.cluster_utils import Cluster

    here = {"num_cpus": 1, "node_ip_address": LOOPBACK}
    cluster = Cluster(initialize_head=True, head_node_args={**here, "include_dashboard": False})
    try:
        cluster.add_node(**here)
        yield cluster
    finally:
        cluster.shutdown()


def second_of(cluster: Any) -> Any:
    """The node that is not the head."""
    return next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)


def command(*words: str, folder: Path) -> "subprocess.Popen[str]":
    """``holdfast …`` as somebody types it."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=folder,
        env={**os.environ, **SETTINGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def done(process: "subprocess.Popen[str]") -> str:
    """What it said, if it ended well."""
    try:
        told = process.communicate(timeout=1500)[0]
    finally:
        process.kill()
    assert process.returncode == 0, told
    return told


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
