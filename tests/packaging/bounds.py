"""Tests the wheel with the oldest or the newest libraries that pyproject.toml allows.

``python -m tests.packaging.bounds lowest|newest FOLDER [TESTS …]`` makes an environment in FOLDER (uv's
``lowest-direct`` or ``highest``), installs the wheel of this tree into it, and runs the tests. Without TESTS it runs
those of data, records, scores, models and evaluation, and stores versions and counts in docs/measured/versions.csv.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "measured" / "versions.csv"
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
LIBRARIES = ("torch", "torchvision", "timm", "numpy", "pillow", "transformers", "onnxruntime")
EXTRAS = ("onnx", "hf", "lab", "pandas", "tensorboard", "autoattack", "ray")
TESTS = (
    "data",
    "records",
    "metrics",
    "models",
    "attacks",
    "corruptions",
    "evaluation",
    "gate",
    "deploy",
    "training/test_loop.py",
)


def run(*words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> int:
    """Run a command, print it first, and return its exit code."""
    print("$", *words, flush=True)
    return subprocess.run([str(word) for word in words], cwd=cwd, env=env, check=False).returncode


def environment(folder: Path, resolution: str) -> Path:
    """An environment with the libraries and the wheel; returns its Python."""
    python, requirements = folder / "env" / "bin" / "python", folder / "requirements.txt"
    run(sys.executable, "-m", "venv", folder / "env")
    run(python, "-m", "pip", "install", "--quiet", "uv", "build")
    uv = folder / "env" / "bin" / "uv"
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    resolved = ["--resolution", resolution, "pyproject.toml", *extras, "--group", "dev", "--python", python]
    wheels = folder / "wheels"
    for words in (
        (uv, "pip", "compile", "--quiet", *resolved, "--output-file", requirements),
        (uv, "pip", "install", "--quiet", "--python", python, "--requirement", requirements),
        (uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--requirement", "requirements-oracles.txt"),
        (python, "-m", "build", "--wheel", "--outdir", wheels),
    ):
        if code := run(*words):
            sys.exit(code)
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *wheels.glob("*.whl"))
    return python


def tested(python: Path, tests: list[str], folder: Path) -> dict[str, int]:
    """The counts of passed, failed and skipped tests."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for number, name in enumerate(tests):  # one process each, so that memory is returned
        results = folder / f"tests-{number}.xml"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
            "OMP_NUM_THREADS": "1"
        }
        run(python, "-m", "pytest", "-q", "-m", "not full", name, "--junit-xml", results, env=environment)
        suite = next(ElementTree.parse(results).iter("testsuite"))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        counts["failed"] += failed
        counts["skipped"] += skipped
        counts["passed"] += int(suite.get("tests", 0)) - failed - skipped
    return counts


def installed(python: Path) -> dict[str, str]:
    """The versions in an environment, also Python's."""
    code = f"import importlib.metadata as m, platform; print(platform.python_version(), *map(m.version, {LIBRARIES}))"
    answer = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(("python", *LIBRARIES), answer, strict=True))


def store(row: dict[str, object]) -> None:
    """Write one row, replacing that of the same resolution."""
    rows = list(csv.DictReader(STORED.open(newline=""))) if STORED.exists() else []
    rows = sorted(
        [*(old for old in rows if old["libraries"] != row["libraries"]), row], key=lambda one: one["libraries"]
    )
    with STORED.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """Build the environment, run the tests, store the result."""
    if len(sys.argv) < 3 or sys.argv[1] not in RESOLUTIONS:
        print(__doc__)
        return 2
    name, folder, tests = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:]
    python = folder / "env" / "bin" / "python"
    if not list(folder.glob("wheels/*.whl")):
        python = environment(folder, RESOLUTIONS[name])
    counts = tested(python, tests or [f"tests/{one}" for one in TESTS], folder)
    print(counts)
    if not tests:
        store({"libraries": name, **installed(python), **counts})
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
