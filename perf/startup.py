"""How long a newcomer waits: for `holdfast --help`, and for the link of `holdfast lab` without arguments.

    python perf/startup.py [--rounds 15]

Seconds of processor time and of wall time of whole processes, medians; on a busy machine only the processor time tells
what an idle one does. Writes perf/results/startup.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from environment import describe

RESULT = Path(__file__).parent / "results" / "startup.json"
HOLDFAST = [sys.executable, "-m", "holdfast"]


def help_seconds() -> tuple[float, float]:
    """Processor and wall time of `holdfast --help`."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run([*HOLDFAST, "--help"], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    processor = sum(after[2:4]) - sum(before[2:4])
    return processor, time.perf_counter() - begun


def lab_seconds() -> tuple[float, float]:
    """Processor and wall time of `holdfast lab` until it prints its link."""
    begun = time.perf_counter()
    command = [*HOLDFAST, "lab", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("lab: "))
        wall = time.perf_counter() - begun
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        process.terminate()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), wall


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds = {}
    for name, measure, count in (("help", help_seconds, rounds), ("lab", lab_seconds, max(1, rounds // 5))):
        pairs = [measure() for _ in range(count)]
        processor, wall = (statistics.median(each) for each in zip(*pairs, strict=True))
        seconds[name] = {"processor": processor, "wall": wall, "rounds": count}
    load = os.getloadavg()[0]
    RESULT.write_text(json.dumps({"seconds": seconds, "load": load, "environment": describe()}, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
