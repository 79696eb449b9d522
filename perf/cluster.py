"""What several processes and Ray are worth, and what opening 1.28 M files takes; writes results/cluster.{json,md}.

    python perf/cluster.py [--only scaling|folders] [--images 40] [--quick]

About ten minutes on two idle cores; `--only folders` half a minute more, mostly to make the files. DeiT-T (random
weights) on the 75 corruptions of some photographs, one thread per process, no workers: one process, two processes
(torchrun), two tasks at a time on Ray (`--on ray`). Units carry the time at which they were written: throughput is that
of the units between the first and the last one, so that starting Python, Ray and the model is left out; it stands
beside. The three are run in turn, twice, and the quicker run of each counts; with other work on the machine the figures
mean nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from operator import itemgetter
from pathlib import Path

from environment import as_line, describe
from evaluation import photographs

RESULTS = Path(__file__).parent / "results"
TABLE = RESULTS / "cluster.json"
SCALING, OVERHEAD = 1.8, 0.10
ROUNDS = 2
MODEL = """import timm, torch

def deit():
    torch.manual_seed(0)
    return timm.create_model("deit_tiny_patch16_224", num_classes=10)
"""
OPENING = """import json, re, sys, time
from pathlib import Path
from holdfast.data import open_data

def peak():  # ru_maxrss would also hold what the process that started this one had
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
start, processor = time.perf_counter(), time.process_time()
images = len(open_data("folder:" + sys.argv[1]))
took = [time.perf_counter() - start, time.process_time() - processor]
memory = {"MiB": peak() / 1024, "before": before / 1024}
print(json.dumps({"images": images, "wall": took[0], "processor": took[1], **memory}))
"""


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "HOLDFAST_CACHE": str(folder / "cache")}
    return {**os.environ, **settings, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def measured(launcher: list[str], extra: list[str], folder: Path, out: str) -> dict[str, float]:
    """Wall time of an evaluation, and of its units between the first and the last one, per unit."""
    words = ["evaluate", "--model", "python:models_here:deit", "--data", f"folder:{folder / 'images'}"]
    words += ["--suite", "corruptions", "--out", str(folder / out), *extra]
    start = time.perf_counter()
    subprocess.run([*launcher, "-m", "holdfast", *words], cwd=folder, env=environment(folder), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    wall = time.perf_counter() - start
    units = sorted(path.stat().st_mtime for path in (folder / out).rglob("*.[0-9]*.safetensors"))
    return {"wall": wall, "units": len(units), "seconds_per_unit": (units[-1] - units[0]) / (len(units) - 1)}


def scaling(count: int) -> dict[str, object]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "images", count)
        (folder / "models_here.py").write_text(MODEL)
        load = os.getloadavg()[0]
        rounds = [
            {
                "one": measured([sys.executable], ["--workers", "0"], folder, f"one{number}"),
                "two": measured(torchrun, ["--workers", "0"], folder, f"two{number}"),
                "ray": measured([sys.executable], ["--on", "ray"], folder, f"ray{number}"),
            }
            for number in range(ROUNDS)
        ]
        found = {name: min((each[name] for each in rounds), key=itemgetter("seconds_per_unit")) for name in rounds[0]}
    one, two, ray = (found[name]["seconds_per_unit"] for name in ("one", "two", "ray"))
    return {
        **found,
        "images": count,
        "speed_up": one / two,
        "ray_overhead": ray / two - 1,
        "task_seconds": one * 75 / 8,  # four tasks per slot of two
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }


def folders(classes: int = 1000, per_class: int = 1281) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        start = time.perf_counter()
        for number in range(classes):
            (root / "files" / f"n{number:08d}").mkdir(parents=True)
            for image in range(per_class):
                os.close(os.open(root / "files" / f"n{number:08d}" / f"n{number:08d}_{image}.JPEG", os.O_CREAT))
        made = time.perf_counter() - start
        time.sleep(3)  # a directory that changed just now is not trusted
        opening = [sys.executable, "-c", OPENING, str(root / "files")]
        runs = [
            json.loads(subprocess.run(opening, env=environment(root), check=True, capture_output=True).stdout)
            for _ in range(2)
        ]
    return {"making": made, "first": runs[0], "second": runs[1]}


def page(result: dict) -> str:
    lines = ["# Several processes, Ray, and large folders", "", as_line(result["environment"]), ""]
    if "scaling" in result:
        found = result["scaling"]
        lines += [
            f"DeiT-T on {found['images']} photographs × 75 cells, one thread each;",
            f"tasks of {found['task_seconds']:.0f} s.",
            f"Load before and after: {found['load_before']:.1f}, {found['load_after']:.1f}.",
            "",
            "| how | whole command, s | seconds per unit |",
            "|---|---|---|",
            *(
                f"| {name} | {found[key]['wall']:.0f} | {found[key]['seconds_per_unit']:.2f} |"
                for key, name in (("one", "one process"), ("two", "two processes"), ("ray", "Ray, two at a time"))
            ),
            "",
            f"Two processes: **{found['speed_up']:.2f} ×** one (bar {SCALING}). Ray over two processes: "
            f"**{100 * found['ray_overhead']:+.1f} %** (bar {100 * OVERHEAD:.0f} %).",
            "",
        ]
    if "folders" in result:
        found = result["folders"]
        lines += [
            "| a folder of files | wall, s | processor, s | memory, MiB | of which before opening |",
            "|---|---|---|---|---|",
            *(
                f"| {found[key]['images']:,}, {name} | {found[key]['wall']:.1f} | {found[key]['processor']:.1f} "
                f"| {found[key]['MiB']:.0f} | {found[key]['before']:.0f} |"
                for key, name in (("first", "listed"), ("second", "from the cache"))
            ),
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("scaling", "folders"), help="measure this and keep the rest")
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="a short run that writes nothing")
    arguments = parser.parse_args()
    result = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    result["environment"] = describe("torch", "timm", "numpy", "ray")
    if arguments.only in (None, "scaling"):
        result["scaling"] = scaling(2 if arguments.quick else arguments.images)
    if arguments.only in (None, "folders"):
        result["folders"] = folders(*((10, 3000) if arguments.quick else ()))
    print(page(result))
    if not arguments.quick:
        TABLE.write_text(json.dumps(result, indent=2) + "\n")
        (RESULTS / "cluster.md").write_text(page(result))


if __name__ == "__main__":
    main()
