"""The whole campaign: ``python -m tests.chaos.campaign --minutes 60`` prints the table of docs/reliability.md.

A third of the time goes to kills, the rest to full disks, damaged files, images of odd contents and odd shapes, altered
inputs of the gate, and command lines. Every command is watched: one that hangs is a failure, and so is a refusal that
takes more than ten seconds. Whatever goes wrong is printed as it happens and kept in the folder; the exit
code is then 1.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    tries: int
    wrong: int
    note: str = ""

    def __str__(self) -> str:
        return f"| {self.what} | {self.tries} | {self.tries - self.wrong} | {self.note} |"


def table(lines: list[Line]) -> str:
    """As Markdown."""
    return "\n".join(["| what | tries | survived | |", "|---|---:|---:|---|", *map(str, lines)])


def kill_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Kills of every command."""
    from tests.chaos.kills import campaign, scenarios

    names = [name for name in scenarios() if name != "demo" or seconds > 900]  # one try of it takes minutes
    found = campaign(names, folder, seconds=seconds, seed=seed)
    return [
        Line(f"kill: {name}", tries, len(wrong), f"{kills} signals hit, all files compared")
        for name, (tries, kills, wrong) in found.items()
    ]


def disk_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Full disks."""
    from tests.chaos.disks import filled, scenarios, why_not

    if reason := why_not(folder):
        return [Line("full disk", 0, 0, f"skipped: {reason}")]
    lines, rng, end = [], random.Random(seed), time.monotonic() + seconds
    for name, scenario in scenarios().items():
        if time.monotonic() > end:
            lines.append(Line(f"full disk: {name}", 0, 0, "skipped: no time left"))
            continue
        wrong = filled(scenario, folder / name.replace(" ", "-").replace(",", ""), rng=rng)
        if wrong:
            print(f"full disk, {name}: {wrong}", flush=True)
        lines.append(Line(f"full disk: {name}", 1, bool(wrong), "one sentence, then on with more room"))
    return lines


def file_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Damaged files, as many as fit into the time."""
    from tests.chaos.fuzzing import fuzz_files

    return _fuzz_lines("file", fuzz_files, folder, seconds=seconds, seed=seed, stretch=240)


def image_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Damaged images, as many as fit into the time."""
    from tests.chaos.fuzzing import fuzz_images

    return _fuzz_lines("image", fuzz_images, folder, seconds=seconds, seed=seed, stretch=1000)


def _fuzz_lines(
    word: str, fuzz: Callable[..., dict], folder: Path, *, seconds: float, seed: int, stretch: int
) -> list[Line]:
    found: dict[str, tuple[int, int]] = {}
    end = time.monotonic() + seconds
    while not found or time.monotonic() < end:
        for name, (tries, wrong) in fuzz(folder, tries=stretch, seed=seed).items():
            before = found.get(name, (0, 0))
            found[name] = (before[0] + tries, before[1] + len(wrong))
        seed += 1
    return [Line(f"{word}: {name}", tries, wrong) for name, (tries, wrong) in found.items()]


def command_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Bad command lines: all of them, whatever time it takes."""
    from tests.chaos.command_lines import all_lines, finished_run, refused

    (folder / "empty").mkdir()
    found: dict[str, tuple[int, int]] = {}
    for argv in all_lines(folder / "files", run=finished_run(folder / "run")):
        wrong = refused(argv, folder=folder / "empty")
        if wrong:
            print(f"{argv}: {wrong}", flush=True)
            shutil.rmtree(folder / "empty")
            (folder / "empty").mkdir()
        tries, before = found.get(argv[0] if argv[0].isalpha() else "", (0, 0))
        found[argv[0] if argv[0].isalpha() else ""] = (tries + 1, before + bool(wrong))
    return [
        Line(f"command line: {name or 'none'}", tries, wrong, "exit code 2, one sentence, nothing left")
        for name, (tries, wrong) in found.items()
    ]


def verdict_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Altered baselines, records, configurations, code and data, and unaltered ones: all of them, whatever it takes."""
    from tests.chaos.verdicts import all_verdicts

    notes = {"unchanged": "passes with the same numbers"}
    return [
        Line(f"verdict: {kind}", tries, len(wrong), notes.get(kind, "no false pass, no other number"))
        for kind, (tries, wrong) in all_verdicts(folder, seed=seed).items()
    ]


def shape_lines(folder: Path, *, seconds: float, seed: int) -> list[Line]:
    """Images of extreme shapes: at least 500."""
    from tests.chaos.shapes import all_shapes

    found = all_shapes(folder, count=500, seed=seed)
    return [Line(f"shapes: {name}", tries, len(wrong), note) for name, (tries, wrong, note) in found.items()]


PARTS: dict[str, tuple[Callable[..., list[Line]], float]] = {
    "command lines": (command_lines, 0.1),
    "images": (image_lines, 0.05),
    "shapes": (shape_lines, 0.1),
    "verdicts": (verdict_lines, 0.15),
    "files": (file_lines, 0.15),
    "disks": (disk_lines, 0.1),
    "kills": (kill_lines, 0.35),
}


def main() -> int:
    """Run the parts, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas between")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    print(f"seed {arguments.seed}, in {folder}", flush=True)
    lines: list[Line] = []
    for name in arguments.parts.split(","):
        part, share = PARTS[name]
        print(f"{name} …", flush=True)
        (folder / name.replace(" ", "-")).mkdir()
        lines += part(folder / name.replace(" ", "-"), seconds=60 * arguments.minutes * share, seed=arguments.seed)
    print(table(lines))
    wrong = sum(line.wrong for line in lines)
    print(f"\n{sum(line.tries for line in lines)} tries, {wrong} failures")
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
