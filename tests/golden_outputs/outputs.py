"""What the commands print and write for the three tasks and for one study, by file name."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.main import main

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"

DATA = {
    "classification": ("classifier", "digits:test", "clean,corruptions,pgd5", "60"),
    "segmentation": ("segmenter", "scenes:test,64x80,4", "clean,corruptions", "4"),
    "detection": ("detector", "scene-objects:test,64x80,4", "clean,corruptions-135", "4"),
}

STUDY = """# Two tiny rows
recipe: digits/fan_nano
common:
  data: {train_subset: 40, val_subset: 10, workers: 0}
  model: {kwargs: {embed_dim: 16, depth: 1, num_heads: 2}}
  train: {epochs: 1, batch_size: 20, device: cpu}
rows:
  baseline: {}
  ADL: {objective: {name: robust, options: {adl: {weight: 1.0, variant: paper}}}}
seeds: [0]
test: digits:test
limit: 20
suites: [clean, pgd5]
analyses: [overfocus]
claims:
  - {says: ADL spreads attention, row: ADL, against: baseline, column: top_share, expects: lower}
"""


def collect(folder: Path) -> dict[str, str]:
    """Run everything in ``folder`` and return the text of every golden file; paths in it are relative."""
    shutil.copy(HERE / "golden_models.py", folder)
    with contextlib.chdir(folder):
        outputs = {name: text for task in DATA for name, text in _task_outputs(task)}
        return outputs | dict(_study_outputs())


def _task_outputs(task: str) -> Iterator[tuple[str, str]]:
    model, data, suites, limit = DATA[task]
    first, second = f"{task}/first", f"{task}/second"
    for run, function in ((first, model), (second, f"worse_{model}")):
        arguments = ["evaluate", "--model", f"python:golden_models:{function}", "--data", data, "--suite", suites]
        text = run_command([*arguments, "--limit", limit, "--workers", "0", "--device", "cpu", "--out", run])
        if run == first:
            yield f"{task}/evaluate.txt", text
    for form in ("csv", "md"):
        run_command(["report", first, second, "--format", form, "--out", f"{task}/table.{form}"])
        yield f"{task}/table.{form}", Path(f"{task}/table.{form}").read_text(encoding="utf-8")
    yield f"{task}/gate.txt", run_command(["gate", second, "--against", first], code=1)
    yield f"{task}/header.json", _header(Path(first))
    yield f"{task}/files.txt", _file_names(Path(first))


def _study_outputs() -> Iterator[tuple[str, str]]:
    Path("tiny.yaml").write_text(STUDY, encoding="utf-8")
    run_command(["study", "tiny.yaml", "--out", "study"])
    yield "study/table.csv", _without_times(Path("study/table.csv").read_text(encoding="utf-8"))
    yield "study/summary.md", _without_times(Path("study/summary.md").read_text(encoding="utf-8"))
    yield "study/files.txt", _file_names(Path("study"))


def run_command(arguments: list[str], *, code: int = 0) -> str:
    """What a command prints to standard output; its exit code must be ``code``."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(arguments) == code, arguments
    return printed.getvalue()


def _header(run: Path) -> str:
    (path,) = run.glob("records/*/evaluation.json")
    header = json.loads(path.read_text(encoding="utf-8"))
    header["versions"] = dict.fromkeys(header["versions"], "VERSION")
    return json.dumps(header, indent=2, ensure_ascii=False) + "\n"


def _file_names(folder: Path) -> str:
    return "".join(f"{path.relative_to(folder).as_posix()}\n" for path in sorted(folder.rglob("*")) if path.is_file())


def _without_times(text: str) -> str:
    return re.sub(r"\b\d+(\.\d+)?(?= (processor|core|CPU)?[ -]?(seconds|minutes|hours|s|min|h)\b)", "TIME", text)
