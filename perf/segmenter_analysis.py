"""What looking inside a segmenter's encoder costs at the size of a street scene, 1024 × 2048 pixels.

    python perf/segmenter_analysis.py

FAN-T-Hybrid with SegFormer's head, one embedded scene, every analysis in a process of its own: the highest memory of
the whole process, PyTorch included. Writes perf/results/segmenter_analysis.json and segmenter_analysis.md.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import holdfast
from environment import as_line, describe
from holdfast.analysis.settings import Settings
from memory import CLEAR, _megabytes

RESULTS = Path(__file__).parent / "results"
ENCODER, DATA, BAR = "fan_tiny_8_p4_hybrid", "scenes:test,1024x2048,1", 4096  # MiB
ANALYSES = ("stability", "overfocus", "noise-decay", "grouping")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", choices=ANALYSES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one)))
        return
    rows = []
    for name in ANALYSES:
        done = subprocess.run([sys.executable, __file__, "--one", name], check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    environment = describe("torch", "timm", "scikit-learn")
    RESULTS.mkdir(exist_ok=True)
    stored = {"environment": environment, "model": ENCODER, "data": DATA, "bar": BAR, "analyses": rows}
    (RESULTS / "segmenter_analysis.json").write_text(json.dumps(stored, indent=1) + "\n")
    (RESULTS / "segmenter_analysis.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "segmenter_analysis.md").read_text())


def measured(name: str) -> dict[str, object]:
    """Peak memory of the process (MiB) and processor seconds of one analysis of one image."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = holdfast.segmenter(ENCODER, num_classes=11).eval()
    CLEAR.write_text("5")
    start = time.process_time()
    result = holdfast.analyze(model, DATA, name, settings=Settings(pictures=1), show=False).results[name]
    steps = result.header.get("every")
    return {
        "analysis": name,
        "megabytes": _megabytes("VmHWM"),
        "cpu_seconds": time.process_time() - start,
        "size": result.header["size"],
        "remark": f"every {steps[0]}nd row and column of 64 × 128 tokens" if steps else "all 64 × 128 tokens",
    }


def as_markdown(rows: list[dict[str, object]], environment: str) -> str:
    lines = [
        "# Looking inside a segmenter at 1024 × 2048\n",
        f"{ENCODER} with SegFormer's head, one embedded scene; the highest memory of the whole process, PyTorch "
        f"included, and processor seconds on one thread. {environment}\n",
        "| analysis | tokens | peak MiB | at most | CPU s |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['analysis']} | {row['remark']} | {row['megabytes']:.0f} | {BAR} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
