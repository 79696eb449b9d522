"""What a benchmark ran on: versions and the processor's model, nothing that names a machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("torch", "timm", "numpy", "torchvision", "pyautoattack", "adv-lib")


def describe(*packages: str) -> dict[str, object]:
    """Python, the packages' versions, the processor and its cores."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages or PACKAGES},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def as_line(environment: dict[str, object]) -> str:
    """The same in one sentence, for a results page."""
    packages = ", ".join(f"{name} {number}" for name, number in environment["packages"].items() if number)
    return f"{environment['processor']}, {environment['cores']} cores; Python {environment['python']}, {packages}."


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
