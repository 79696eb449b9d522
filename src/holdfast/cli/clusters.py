"""``--on ray`` and what belongs to it."""

from argparse import Namespace
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cluster import Cluster


def add_cluster(parser: ArgumentParser, *, task: str) -> None:
    """The options of commands whose work can be done elsewhere."""
    parser.add_argument(
        "--on",
        metavar="ray[=ADDRESS]",
        help=f"{task} as tasks of a Ray cluster: ray starts one on this machine, ray=auto joins the one it belongs to",
    )
    parser.add_argument("--cpus-per-task", type=float, default=1, help="processors that a task on Ray needs")
    parser.add_argument("--gpus-per-task", type=float, default=0, help="GPUs that it needs; 0.25 puts four on one")
    parser.add_argument(
        "--gather", action="store_true", help="bring results home from Ray's nodes, where they share no folder"
    )


def cluster_of(arguments: Namespace) -> "Cluster | None":
    """Where the command runs, if somebody answers there; None for here."""
    if arguments.on is None:
        for option in ("gather", "gpus_per_task"):
            if getattr(arguments, option):
                raise HoldfastError(f"--{option.replace('_', '-')} says how tasks run on Ray and needs --on ray")
        return None
    from holdfast.cluster import Cluster, check_reachable, parse_on

    cluster = Cluster(parse_on(arguments.on), arguments.cpus_per_task, arguments.gpus_per_task, arguments.gather)
    check_reachable(cluster)
    return cluster
