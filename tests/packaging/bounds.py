"""Tests with the oldest libraries that pyproject.toml allows: ``python -m tests.packaging.bounds FOLDER [TESTS …]``.

Makes an environment in FOLDER from the lowest direct dependencies (uv's ``lowest-direct``), installs the
wheel of this tree into it, and runs the named tests, by default those of data, records, scores, models and evaluation.
The newest versions are what ``make test`` installs.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def environment(folder: Path) -> Path:
    """An environment with the oldest libraries and the wheel; returns its Python."""
    python, requirements = folder / "env" / "bin" / "python", folder / "lowest.txt"
    run(sys.executable, "-m", "venv", folder / "env")
    run(python, "-m", "pip", "install", "--quiet", "uv", "build")
    uv = folder / "env" / "bin" / "uv"
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    lowest = ["--resolution", "lowest-direct", "pyproject.toml", *extras, "--group", "dev", "--python", python]
    wheels = folder / "wheels"
    for words in (
        (uv, "pip", "compile", "--quiet", *lowest, "--output-file", requirements),
        (uv, "pip", "install", "--quiet", "--python", python, "--requirement", requirements),
        (uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--requirement", "requirements-oracles.txt"),
        (python, "-m", "build", "--wheel", "--outdir", wheels),
    ):
        if code := run(*words):
            sys.exit(code)
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *wheels.glob("*.whl"))
    return python


def main() -> int:
    """Build the environment and run the tests."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="holdfast-lowest-")).resolve()
    python = environment(folder)
    tests = sys.argv[2:] or [f"tests/{name}" for name in TESTS]
    return run(python, "-m", "pytest", "-q", "-m", "not full", *tests, env=os.environ | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    sys.exit(main())
