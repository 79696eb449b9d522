"""Make the golden files anew: ``python -m tests.golden_outputs.make``."""

import shutil
import tempfile
from pathlib import Path

from tests.golden_outputs.outputs import EXPECTED, collect


def make() -> None:
    """Replace every golden file by what the commands give now."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = collect(Path(folder))
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for name, text in outputs.items():
        (EXPECTED / name).parent.mkdir(parents=True, exist_ok=True)
        (EXPECTED / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make()
