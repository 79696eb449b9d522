"""Fill a small file system under every command: one sentence, nothing half-written, and with more room it goes on."""

import contextlib
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from holdfast.models import create_model
from holdfast.training.checkpoint import save_weights
from holdfast.training.seeding import Stream, seeded
from tests.chaos.kills import Scenario, _difference, _finish, _fresh, digests, start, undisturbed
from tests.chaos.kills import scenarios as killable

PATIENCE = 300
UNFINISHED = ("*.part", ".*.part", "*.tmp", ".*.tmp")


def why_not(folder: Path) -> str:
    """Why no small file system can be mounted here; empty if one can."""
    if shutil.which("mount") is None:
        return "there is no mount command"
    try:
        with small_disk(folder / "trial", kilobytes=64):
            return ""
    except OSError as error:
        return str(error)


@contextlib.contextmanager
def small_disk(folder: Path, *, kilobytes: int) -> Iterator[None]:
    """A file system of that size in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def scenarios() -> dict[str, Scenario]:
    """What writes much: the commands that can go on, and converting weights."""
    chosen = ("train", "train, AFAT and ADL", "evaluate", "corrupt", "corrupt, 2 workers", "study", "analyze")
    known = killable()
    argv = ("convert", "weights.safetensors", "out", "--model=vit_nano")
    return {name: known[name] for name in chosen} | {"convert": Scenario("convert", _weights, argv)}


def filled(scenario: Scenario, folder: Path, *, rng: random.Random) -> str:
    """Run a scenario on a disk that is full at a random moment, then with room: what is wrong, if anything."""
    whole = undisturbed(scenario, folder / "whole")
    needed = _kilobytes(folder / "whole")
    scenario.prepare(_fresh(folder / "prepared"))
    own = _kilobytes(folder / "prepared")
    place = _fresh(folder / "small")
    with small_disk(place, kilobytes=own + 16 + int((needed - own) * rng.uniform(0, 0.7))):
        shutil.copytree(folder / "prepared", place, dirs_exist_ok=True, symlinks=True)
        with start(scenario.argv, output=folder / "told", folder=place) as command:
            code, told = command.wait(PATIENCE), command.told()
        if code not in (0, 2):
            return f"exit code {code}: {told[-300:]}"
        if code == 2 and ("Traceback" in told or not told.splitlines()[-1].startswith("holdfast: error: ")):
            return f"no sentence: {told[-300:]}"
        if left := [path.name for pattern in UNFINISHED for path in place.rglob(pattern)]:
            return f"unfinished files are left: {left[:3]}"
        _mount("-o", "remount,size=256m", str(place))
        try:
            _finish(scenario, place)
        except AssertionError as error:
            return f"with more room: {error}"
        return _difference(digests(place), whole.digests)


def _weights(folder: Path) -> None:
    with seeded(Stream.WEIGHTS, 0):
        save_weights(create_model("vit_nano", num_classes=10), folder / "weights.safetensors")


def _kilobytes(folder: Path) -> int:
    """As a file system of pages counts."""
    return sum(4 * -(-path.lstat().st_size // 4096) + 1 for path in folder.rglob("*"))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"mount ended with {done.returncode}")
