"""``--on ray`` without an address: a cluster of its own, reachable by nobody else, whose death is one sentence."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="the extra ray is not installed: pip install ray")
pytest.importorskip("psutil", reason="psutil, which lists the ports, is not installed")

SCRIPT = """
import json, time
import psutil
from holdfast.runtime.ray import Cluster, tasks_on
from holdfast.errors import HoldfastError

def children():
    return psutil.Process().children(recursive=True)

told = {}
try:
    with tasks_on(Cluster()) as tasks:
        ports = [port for each in [psutil.Process(), *children()] for port in each.net_connections(kind="inet")]
        told["listening"] = sorted({port.laddr.ip for port in ports if port.status == "LISTEN"})
        tasks.submit("three", len, "abc")
        told["results"] = list(tasks.results())
        tasks.submit("long", time.sleep, 600)
        next(each for each in children() if "raylet" in each.name()).kill()
        begun = time.monotonic()
        list(tasks.results())
except HoldfastError as error:
    told["sentence"] = str(error)
told["seconds"] = time.monotonic() - begun
print("told", json.dumps(told), flush=True)
"""


def test_a_ray_of_ones_own_serves_nobody_else_and_its_death_is_a_sentence(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")  # of somebody else, who does not even answer
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=False, capture_output=True, text=True, timeout=180)
    lines = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    assert lines, done.stderr[-2000:]
    told = json.loads(lines[0].removeprefix("told "))
    assert {address.rpartition(":")[2] for address in told["listening"]} == {"127.0.0.1"}
    assert told["results"] == [["three", 3]]
    assert told["sentence"].startswith("Ray's raylet on this machine has died")
    assert "run the same command again to resume" in told["sentence"]
    assert told["seconds"] < 10
