"""Images of extreme shapes: each is measured or named as unreadable, in bounded memory, and the command ends."""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from holdfast.cli.main import main
from tests.chaos.processes import fork, until

MOST_MEMORY = 1.5e9  # bytes above an evaluation of ordinary images
LONGEST = 900  # seconds of one evaluation, on a machine that others use too
# width and height that people, scanners and mistakes make
SIDES = (1, 2, 3, 7, 16, 31, 32, 33, 100, 224, 256, 1_000, 4_095, 4_096, 8_192, 20_000, 32_767, 32_768, 65_535)
LONG = (100_000, 300_000, 1_000_000, 3_000_000)
LARGEST = 10_000_000  # pixels of one of them, so that the folder is soon written
GREY, COLOUR = "L", "RGB"


def shapes(count: int, *, seed: int) -> list[tuple[int, int]]:
    """Every pair of sides that is not too large, very long ones, and others between them."""
    known = [(a, b) for a in SIDES for b in SIDES if a * b <= LARGEST and max(a, b) / min(a, b) >= 3]
    known += [size for side in LONG for short in (1, 2, 5, 13) for size in ((short, side), (side, short))]
    rng = random.Random(seed)
    while len(known) < count:
        short, ratio = rng.randint(1, 600), 10 ** rng.uniform(0.5, 5)
        size = (short, int(short * ratio))
        if size[0] * size[1] <= LARGEST:
            known.append(size if rng.random() < 0.5 else size[::-1])
    return known


def write_shapes(folder: Path, sizes: list[tuple[int, int]]) -> None:
    """A folder of classes with these images, and some ordinary ones."""
    for number, size in enumerate([(40, 40)] * 6 + sizes):
        path = folder / ("one", "two", "three")[number % 3] / f"{number:04d}-{size[0]}x{size[1]}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = (number % 256, 7, 9)
        picture = Image.new(COLOUR if number % 4 else GREY, size, colour if number % 4 else colour[0])
        picture.save(path, compress_level=1)


@dataclass(frozen=True)
class Watched:
    """What became of a command: its exit code (None: it was killed), the most memory it had, what it printed."""

    code: int | None
    memory: int
    seconds: float
    text: str


def watched(work: Callable[[], int], *, folder: Path, seconds: float = LONGEST) -> Watched:
    """Run a function in a child process and look at the memory of the whole family ten times a second."""
    begin, most, output = time.monotonic(), 0, folder / ".told"
    with fork(work, output=output, folder=folder) as command:
        stop = threading.Event()

        def look() -> None:
            nonlocal most
            while not stop.wait(0.1):
                most = max(most, sum(map(_memory, [command.pid, *command.family()])))

        watcher = threading.Thread(target=look)
        watcher.start()
        ended = until(lambda: not command.running(), seconds)
        stop.set()
        watcher.join()
        text = command.told()
    return Watched(command.code if ended else None, most, time.monotonic() - begin, text)


def _memory(pid: int) -> int:
    """Bytes of a process, pages that it shares counted in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


EVALUATE = ["evaluate", "--model", "python:tests.evaluation.toys:brightest", "--data", "folder:images"]
COMMANDS: dict[str, tuple[list[str], int]] = {  # with how many of the shapes it is tried
    "evaluate, clean": ([*EVALUATE, "--suite=clean", "--preset=imagenet", "--out=clean"], 100_000),
    "evaluate, no workers": ([*EVALUATE, "--suite=clean", "--preset=cifar", "--workers=0", "--out=none"], 150),
    "evaluate, sequences": ([*EVALUATE, "--suite=perturbations", "--preset=imagenet", "--out=films"], 25),
    "corrupt": (["corrupt", "images", "corrupted", "--severity=3", "--kinds=fog,frost,elastic_transform"], 40),
}


def all_shapes(folder: Path, *, count: int, seed: int) -> dict[str, tuple[int, list[str], str]]:
    """Every command on images of extreme shapes: images, what went wrong, and what to say of it."""
    sizes = shapes(count, seed=seed)
    write_shapes(folder / "all" / "images", sizes)
    found: dict[str, tuple[int, list[str], str]] = {}
    idle = 0
    for name, (argv, most) in COMMANDS.items():
        chosen = random.Random(seed).sample(sizes, min(most, len(sizes)))
        if not idle:
            ordinary = folder / "ordinary"
            write_shapes(ordinary / "images", [(300, 200)] * 60)
            idle = watched(_holdfast(argv), folder=ordinary).memory
        place = folder / name.replace(" ", "-").replace(",", "")
        _linked(folder / "all" / "images", place / "images", chosen)
        said = watched(_holdfast(argv), folder=place)
        wrong = _wrong(said, idle)
        if wrong:
            print(f"shapes, {name}: {wrong}", flush=True)
        note = f"{(said.memory - idle) / 1e9:.2f} GB above an ordinary evaluation, {said.seconds:.0f} s"
        found[name] = (len(chosen), [wrong] if wrong else [], note)
    return found


def _linked(source: Path, target: Path, sizes: list[tuple[int, int]]) -> None:
    """The images of some sizes in a folder of their own, with the ordinary ones."""
    wanted = {f"{width}x{height}" for width, height in [(40, 40), *sizes]}
    for path in sorted(source.rglob("*.png")):
        if path.stem.partition("-")[2] in wanted:
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)


def _holdfast(argv: list[str]) -> Callable[[], int]:
    return lambda: main(list(argv))


def _wrong(said: Watched, idle: int) -> str:
    if said.code is None:
        return f"hangs: {said.text[-300:]}"
    if said.code not in (0, 1) or "Traceback" in said.text:  # corrupt leaves with 1 if it could not do some images
        return f"exit code {said.code}: {said.text[-300:]}"
    above = said.memory - idle
    return f"{above / 1e9:.2f} GB above an ordinary evaluation" if above > MOST_MEMORY else ""
