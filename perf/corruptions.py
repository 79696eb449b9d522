"""Speed of the corruptions on one core, interleaved with imagecorruptions-imaug; writes results/corruptions.{json,md}.

    python perf/corruptions.py [--sizes 32,224,1024x2048] [--rounds 15]

Both run the same photograph at severity 3 in turns and count the processor time of this process, so a busy machine
slows both; the ratio of medians is what counts.
Ours goes through the keyed batch API (preset any), 64 images a call at 32 px and 4 at 224 px; the fork has no batches.
"""

# ruff: noqa: E402 - threads are pinned before NumPy loads
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import cv2
import numpy as np
from sklearn.datasets import load_sample_image

from holdfast.corruptions import ALL, STANDARD, corrupt_batch

RESULTS = Path(__file__).parent / "results"
SEVERITY = 3
BATCH = {32: 64, 224: 4}


def photograph(height: int, width: int) -> np.ndarray:
    return cv2.resize(load_sample_image("china.jpg"), (width, height), interpolation=cv2.INTER_AREA)


def seconds(function) -> float:  # noqa: ANN001
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(kind: str, image: np.ndarray, rounds: int) -> dict[str, float]:
    """Median seconds per image of both, measured in turns, after one call each that fills caches and compiles."""
    import imagecorruptions

    count = BATCH.get(image.shape[0], 1)
    images = [image] * count

    def ours(turn: int) -> float:
        ids = [f"{turn}/{number}" for number in range(count)]
        return seconds(lambda: corrupt_batch(images, kind, ids=ids, severity=SEVERITY)) / count

    def theirs() -> float:
        repeats = 8 if image.shape[0] <= 32 else 1
        calls = lambda: [imagecorruptions.corrupt(image, SEVERITY, kind) for _ in range(repeats)]  # noqa: E731
        return seconds(calls) / repeats

    ours(-1), theirs()
    pairs = [(ours(turn), theirs()) for turn in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"ours": mine, "fork": other, "ratio": other / mine}


def summary(rows: dict[str, dict[str, float]]) -> dict[str, float]:
    standard = [rows[kind] for kind in STANDARD]
    return {
        "ours": sum(row["ours"] for row in standard),
        "fork": sum(row["fork"] for row in standard),
        "sum_ratio": sum(row["fork"] for row in standard) / sum(row["ours"] for row in standard),
        "geometric_mean": math.exp(statistics.fmean(math.log(row["ratio"]) for row in standard)),
        "lowest": min(row["ratio"] for row in standard),
    }


def peak_memory(kind: str) -> float:
    """Largest growth of a fresh process while one 1024×2048 image is corrupted, in units of its float32 size (25 MB).

    Linux only. Reads the process's own high-water mark, reset before the call: `ru_maxrss` survives exec, so a child
    would start at the peak of this process and seem never to grow.
    """
    code = f"""
import numpy as np, cv2
cv2.setNumThreads(1)
from holdfast.corruptions import corrupt_batch

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

small = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
corrupt_batch([small], {kind!r}, ids=[0], severity={SEVERITY})
image = cv2.resize(small, (2048, 1024))
open("/proc/self/clear_refs", "w").write("5")
before = kilobytes("VmRSS")
result = corrupt_batch([image], {kind!r}, ids=[1], severity={SEVERITY})
print((kilobytes("VmHWM") - before) * 1024 / (image.size * 4))
"""
    grown = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    if grown < 0.2:  # the result alone is a quarter
        raise RuntimeError(f"{kind}: a growth of {grown:.2f} is less than the result needs, the measurement is broken")
    return grown


def environment() -> dict[str, str]:
    cpu = platform.processor() or "unknown"
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    packages = ("numpy", "scipy", "opencv-python-headless", "pillow", "scikit-image", "numba", "imagecorruptions-imaug")
    return {"cpu": cpu, "python": platform.python_version(), **{name: version(name) for name in packages}}


def plain(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(results: dict) -> str:
    sizes = list(results["sizes"])
    lines = ["Milliseconds per image at severity 3 on one core, ours / fork, and how many times quicker we are.", ""]
    lines += ["| kind | " + " | ".join(f"{size} ours | fork | × " for size in sizes) + "| peak memory |"]
    lines += ["|---|" + "--:|--:|--:|" * len(sizes) + "--:|"]
    for kind in ALL:
        cells = [results["sizes"][size]["kinds"][kind] for size in sizes]
        text = " | ".join(f"{plain(1e3 * c['ours'])} | {plain(1e3 * c['fork'])} | {c['ratio']:.1f}" for c in cells)
        lines.append(f"| {kind} | {text} | {results['memory'].get(kind, math.nan):.1f} |")
    rows = {"sum of 15": "sum_ratio", "geometric mean of 15": "geometric_mean", "lowest of 15": "lowest"}
    for name, key in rows.items():
        cells = [results["sizes"][size]["summary"][key] for size in sizes]
        lines.append(f"| **{name}** | " + " | ".join(f"| | **{cell:.1f}**" for cell in cells) + " | |")
    about = ", ".join(f"{name} {value}" for name, value in results["environment"].items() if name != "cpu")
    notes = (
        "The last four kinds are the extras. Peak memory: growth of the process for one 1024×2048 image, in units of"
    )
    lines += ["", f"{notes} its float32 size.", "", f"{results['environment']['cpu']}, one core; {about}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="32,224,1024x2048")
    parser.add_argument("--rounds", type=int, default=15, help="turns at 224 and below; a quarter of it above")
    parser.add_argument("--kinds", default=",".join(ALL))
    parser.add_argument("--memory", action="store_true", help="measure memory only, keep the times that are on file")
    parser.add_argument("--dry", action="store_true", help="print, write nothing, and skip memory")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    cv2.setNumThreads(1)
    if arguments.memory:
        return write(json.loads((RESULTS / "corruptions.json").read_text()), arguments.kinds.split(","))
    results: dict = {"environment": environment(), "severity": SEVERITY, "sizes": {}, "memory": {}}
    kinds = arguments.kinds.split(",")
    for size in arguments.sizes.split(","):
        height, _, width = size.partition("x")
        image = photograph(int(height), int(width or height))
        rounds = arguments.rounds if image.size < 500_000 else max(3, arguments.rounds // 4)
        rows = {}
        for kind in kinds:
            rows[kind] = compare(kind, image, rounds)
            mine, other, ratio = rows[kind].values()
            print(f"{size:>10} {kind:<20}{1e3 * mine:10.3f} ms {1e3 * other:10.3f} ms {ratio:7.1f} ×", flush=True)
        results["sizes"][size] = {"kinds": rows}
        if set(STANDARD) <= set(kinds):
            results["sizes"][size]["summary"] = summary(rows)
            print(size, {name: round(value, 4) for name, value in summary(rows).items()}, flush=True)
    if not arguments.dry:
        write(results, kinds)


def write(results: dict, kinds: list[str]) -> None:
    results["memory"] = {kind: peak_memory(kind) for kind in kinds}
    print({kind: round(value, 2) for kind, value in results["memory"].items()})
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "corruptions.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "corruptions.md").write_text(table(results))


if __name__ == "__main__":
    main()
