"""Kill every command at random moments, let it go on, and compare what it leaves byte by byte with an undisturbed run.

Every try works in a folder of its own and names its files relatively, so that equal work makes equal files.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from holdfast.cli.main import main
from holdfast.training.recipe_files import load_recipe, to_yaml
from tests.chaos.processes import Command, fork, start
from tests.training.helpers import RANDOM, tiny

PATIENCE = 900  # seconds that any command may take, on a machine that others use too
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
# what is measured in seconds differs between any two runs
TIMED = ("images_per_s", "processor_seconds")

STUDY = """# Two tiny rows
recipe: digits/fan_nano
common:
  data: {train_subset: 40, val_subset: 10, workers: 0}
  model: {kwargs: {embed_dim: 16, depth: 1, num_heads: 2}}
  train: {epochs: 1, batch_size: 20, checkpoint_steps: 1}
rows: {baseline: {}, heads: {model: {kwargs: {num_heads: 4}}}}
seeds: [0]
test: digits:test
limit: 20
suites: [clean, pgd5]
"""

UNTIL = ("evaluate", "run", "--suite=clean,corruptions", "--limit=80", "--workers=1")


@dataclass(frozen=True)
class Scenario:
    """One command and what it leaves.

    Attributes:
        name: in the table.
        prepare: makes what the command needs in an empty folder.
        argv: the command; run again, it goes on.
        processes: how many of them share the work.
    """

    name: str
    prepare: Callable[[Path], None]
    argv: tuple[str, ...]
    processes: int = 1


def scenarios() -> dict[str, Scenario]:
    """Every command that can go on."""
    train = ("train", "recipe.yaml", "--out", "run", "--resume")
    afat = {
        "name": "robust",
        "options": {"afat": {"weight": 0.01, "lr": 0.01}, "adl": {"variant": "paper", "tau": 1.0}},
    }
    every = [
        Scenario("train", _recipe(**RANDOM, data={"workers": 1}), train),
        Scenario("train, AFAT and ADL", _recipe(objective=afat, model={"name": "fan_nano"}), train),
        Scenario("train, TORA", _tora, train),
        Scenario("train, 2 processes", _recipe(data={"workers": 0}), train, processes=2),
        Scenario("evaluate", _trained, ("evaluate", "run", "--suite=clean,pgd5,occlusion-random", "--limit=60")),
        Scenario("evaluate --until", _trained, (*UNTIL, "--until=10,fog=14")),
        Scenario("evaluate --until, all passes", _trained, (*UNTIL, "--until=1")),
        Scenario("evaluate --until, 2 processes", _trained, (*UNTIL, "--until=10,fog=14"), processes=2),
        Scenario("corrupt", _photographs, ("corrupt", "photographs", "out", "--severity=3", "--workers=1")),
        Scenario("corrupt, 2 workers", _photographs, ("corrupt", "photographs", "out", "--severity=3", "--workers=2")),
        Scenario("study", _study, ("study", "study.yaml", "--out", "out")),
        Scenario("analyze", _trained, ("analyze", "run", "--only=overfocus,diversity", "--limit=16")),
        Scenario("demo", lambda folder: None, ("demo", "--quick", "--out", "out")),
    ]
    return {scenario.name: scenario for scenario in every}


@dataclass
class Undisturbed:
    """What a scenario leaves when nobody disturbs it, and how long it takes."""

    digests: dict[str, str]
    seconds: float


def undisturbed(scenario: Scenario, folder: Path) -> Undisturbed:
    """Run a scenario once."""
    scenario.prepare(_fresh(folder))
    begin = time.monotonic()
    _finish(scenario, folder)
    return Undisturbed(digests(folder), time.monotonic() - begin)


def disturbed(scenario: Scenario, folder: Path, whole: Undisturbed, *, rng: random.Random) -> tuple[int, str]:
    """Kill it once to three times at random moments and let it end: the number of kills, and what is wrong, if any."""
    scenario.prepare(_fresh(folder))
    kills = 0
    for _ in range(rng.choice((1, 1, 2, 3))):
        commands = _begin(scenario, folder)
        time.sleep(rng.uniform(0, whole.seconds))
        number = rng.choice(SIGNALS)
        kills += any(command.running() for command in commands)
        for command in commands:
            if command.running():
                os.kill(command.pid, number)
        if wrong := "".join(_left(command, number) for command in commands):
            return kills, wrong
    try:
        _finish(scenario, folder)
    except AssertionError as error:
        return kills, str(error)
    return kills, _difference(digests(folder), whole.digests)


def _left(command: Command, number: int) -> str:
    """What is wrong with how a command has left."""
    with command:
        code = command.wait(PATIENCE)
        if code not in (0, -number, 128 + number):
            return f"exit code {code} after {signal.Signals(number).name}: {command.told()[-300:]}"
        if "Traceback" in command.told():
            return f"a traceback after {signal.Signals(number).name}: {command.told()[-300:]}"
        time.sleep(0.2)
        end = time.monotonic() + 20
        while command.family() and time.monotonic() < end:
            time.sleep(0.1)
        return f"{len(command.family())} processes live on" if command.family() else ""


def _begin(scenario: Scenario, folder: Path) -> list[Command]:
    if scenario.processes == 1:
        return [start(scenario.argv, output=folder / "told", folder=folder)]
    port = str(random.SystemRandom().randint(20_000, 60_000))
    common = {"WORLD_SIZE": str(scenario.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        start(
            scenario.argv, output=folder / f"told{rank}", folder=folder, RANK=str(rank), LOCAL_RANK=str(rank), **common
        )
        for rank in range(scenario.processes)
    ]


def _finish(scenario: Scenario, folder: Path) -> None:
    commands = _begin(scenario, folder)
    try:
        codes = [command.wait(PATIENCE) for command in commands]
        told = "".join(command.told() for command in commands)
        assert not any(codes), f"exit codes {codes}: {told[-300:]}"
    finally:
        for command in commands:
            command.end()


def digests(folder: Path) -> dict[str, str]:
    """Every file that is left, but what tells of time; a log without its speeds, a result without its cost."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and not _of_no_interest(path):
            found[name] = hashlib.blake2b(_content(path), digest_size=8).hexdigest()
        elif path.is_symlink():
            found[name] = os.readlink(path)
    return found


def _of_no_interest(path: Path) -> bool:
    # pages and summaries show minutes; pictures are drawn from what is compared
    drawn = path.suffix == ".html" or (path.suffix == ".png" and path.parent.name in ("figures", "out"))
    return drawn or path.name.startswith("told") or path.name in ("cost.json", "summary.md")


def _content(path: Path) -> bytes:
    if path.name == "log.jsonl":
        return json.dumps([_untimed(json.loads(line)) for line in path.read_text().splitlines()]).encode()
    if path.parent.name == "results" and path.suffix == ".safetensors":
        from holdfast.studies.results import read_result

        result = read_result(path)
        arrays = {**result.right, **result.measures}
        return b"".join(name.encode() + array.tobytes() for name, array in sorted(arrays.items()))
    return path.read_bytes()


def _untimed(line: dict) -> dict:
    """A line of a log without what depends on when the run was cut: speeds, and means since the last look."""
    kept = ("event", "step", "epoch", "lr") if line["event"] == "step" else [key for key in line if key not in TIMED]
    return {key: line[key] for key in kept}


def _difference(found: dict[str, str], wanted: dict[str, str]) -> str:
    other = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
    return f"other bytes in {len(other)} files: {', '.join(other[:4])}" if other else ""


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _recipe(**values: object) -> Callable[[Path], None]:
    values = tiny(**values)
    values["train"] = {**values["train"], "checkpoint_steps": 1, "device": "auto"}

    def prepare(folder: Path) -> None:
        (folder / "recipe.yaml").write_text(to_yaml(load_recipe(values)))

    return prepare


_CACHE: dict[str, Path] = {}  # what takes long to prepare, by its name


def _copied(name: str, make: Callable[[Path], None], folder: Path) -> None:
    """What somebody has made once, copied: made in a process of its own, as everything that trains."""
    if name not in _CACHE:
        place = _fresh(folder.parent / f"prepared-{name}")
        with fork(lambda: make(place) or 0, output=place.parent / f"prepared-{name}.told", folder=place) as maker:
            assert maker.wait(PATIENCE) == 0, maker.told()
        _CACHE[name] = place
    shutil.copytree(_CACHE[name], folder, dirs_exist_ok=True, symlinks=True)


def _train_tiny(place: Path, *, model: str = "vit_nano") -> None:
    (place / "r.yaml").write_text(to_yaml(load_recipe(tiny(model={"name": model}, train={"epochs": 1}))))
    assert main(["train", "r.yaml", "--out", "run"]) == 0


def _trained(folder: Path) -> None:
    _copied("trained", _train_tiny, folder)


def _tora(folder: Path) -> None:
    _trained(folder)
    adapters = {"name": "tora", "options": {"reduction": 4}}
    phases = {"run": "all", "weights": [0.5]}
    values = tiny(
        model={"name": None, "kwargs": {"depth": 1}, "init": "run:start", "adapt": adapters},
        objective={"name": "tora", "options": {"steps": 1}},
        train={"epochs": 1, "checkpoint_steps": 1, "device": "auto", "phases": phases},
    )
    (folder / "run").rename(folder / "start")
    (folder / "recipe.yaml").write_text(to_yaml(load_recipe(values)))


def _photographs(folder: Path) -> None:
    (folder / "photographs").mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 64 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photographs" / f"{number}.png")


def _study(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)


def campaign(names: Sequence[str], folder: Path, *, seconds: float, seed: int) -> dict[str, tuple[int, int, list[str]]]:
    """Kill until the time is over, every scenario in turn: tries, kills and what went wrong, by name."""
    rng, chosen = random.Random(seed), {name: scenarios()[name] for name in names}
    whole: dict[str, Undisturbed] = {}
    found: dict[str, tuple[int, int, list[str]]] = {name: (0, 0, []) for name in names}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, scenario in chosen.items():
            place = folder / "".join(letter if letter.isalnum() else "-" for letter in name)
            if name not in whole:
                whole[name] = undisturbed(scenario, place / "whole")
            tries, kills, wrong = found[name]
            number, sentence = disturbed(scenario, place / "killed", whole[name], rng=rng)
            found[name] = (tries + 1, kills + number, [*wrong, *([sentence] if sentence else [])])
            if sentence:
                print(f"{name}: {sentence}", flush=True)
                shutil.copytree(place / "killed", place / f"wrong-{len(wrong)}", symlinks=True, dirs_exist_ok=True)
            if time.monotonic() > end:
                break
    return found
