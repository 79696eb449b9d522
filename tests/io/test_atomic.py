"""Files are complete or not there, and what a killed process has begun does not stay."""

import os
import platform
import re
import subprocess

from holdfast.io import atomic


def test_what_a_dead_process_has_begun_goes_and_what_a_living_one_writes_stays(tmp_path):
    machine = re.sub(r"\W", "_", platform.node())
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead, alive, elsewhere = (
        tmp_path / f".x.txt.{host}-{process}.tmp"
        for host, process in ((machine, ended.pid), (machine, os.getppid()), ("elsewhere", ended.pid))
    )
    for path in (dead, alive, elsewhere):
        path.write_text("half")
    atomic.write_text(tmp_path / "x.txt", "whole")
    assert (tmp_path / "x.txt").read_text() == "whole"
    assert [path.exists() for path in (dead, alive, elsewhere)] == [False, True, True]


def test_a_process_that_ended_and_was_not_buried_is_dead():
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # until it has ended; it stays a zombie
    try:
        assert atomic.is_dead(str(ended.pid))
    finally:
        ended.wait()
    assert atomic.is_dead(str(ended.pid))
    assert not atomic.is_dead(str(os.getpid()))
