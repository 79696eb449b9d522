"""Alter baselines, records, configurations, code and data, and ask the gate: never a false pass, never another number.

A case is a folder like the untouched one in which one thing was changed, and a command. What is said must be what
fresh records say, or a refusal with the exit code 2. Inputs that are the same in all that matters (copied, touched,
measured from another folder or with more threads) must give the same numbers and pass.
"""

import base64
import json
import os
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file

from holdfast.cli.main import main
from holdfast.gate.baseline import content_checksum
from tests.chaos.processes import Said, said_by
from tests.training.helpers import run

IMAGES = 66
CLASSES = ("0-red", "1-green", "2-blue")  # in the order of the channels, which is that of the names
MODEL = ["gate", "--model", "python:own:build", "--against", "baseline.json", "--workers=0"]
POOR = ["gate", "poor", "--against", "measured.json"]
GOOD = ["gate", "good", "--against", "measured.json"]
RUN = ["gate", "--model", "run:run", "--against", "run.json", "--out", "of-run", "--workers=0"]
PLUGGED = [*MODEL[:4], "plugged.json", *MODEL[5:], "--plugin=plug.py", "--rules=plug.yaml", "--out=plugged-again"]
# by the NLL, which shows any change of the answers; a baseline file does not hold it
CONFIGURED = [*RUN[:4], "before", *RUN[5:], "--rules=nll.yaml"]

RULES = """
rules: [C no worse, clean no worse, fog no worse, fog/1 no worse]
"""

OWN = """
import argparse
import functools

import torch
from torch import nn

import helper
import parts.below

FACTOR = 20.0
TURN = {"by": 0}


def pick(values):
    return values


@functools.lru_cache
def cached(by):
    return by


def twice(function):
    def called(self, values):
        return function(self, values) * 2

    return called


class Own(nn.Module):
    shift = 0

    def __init__(self, by=0):
        super().__init__()
        self.by = by
        self.register_buffer("kept", torch.eye(3))
        self.register_buffer("unkept", torch.eye(3), persistent=False)
        self.plain = torch.eye(3)
        self.order = [0, 1, 2]
        self.options = {"order": [0, 1, 2]}
        self.pick = pick
        self.parsed = argparse.Namespace(by=0)

    @twice
    def mixed(self, values):
        return values @ self.kept @ self.unkept @ self.plain

    def forward(self, images):
        values = helper.gain(FACTOR * images.mean(dim=(2, 3)))
        values = self.pick(self.mixed(values)[:, self.order])
        values = parts.below.same(values).roll(cached(self.parsed.by), 1)
        return values[:, self.options["order"]].roll(self.shift + TURN["by"] + self.by, 1)


def build():
    return Own().eval()
"""
HELPER = """
from deeper import level


def gain(values):
    return values * level(values)
"""
DEEPER = """
def level(values):
    return 1.0
"""
BELOW = """
def same(values):
    return values
"""
PLUG = """
import functools

import numpy as np
from plug_helper import mixed

from holdfast.corruptions import register_corruption

TABLE = {"by": [0.5, 1.0]}
WEIGHTS = np.array([1.0])
FIRST = 1.0


def brought(function):
    @functools.wraps(function)
    def called(images, draws, **options):
        return function(images, draws, **options) * 1.0

    return called


class Base:
    def step(self):
        return 1.0


class Chosen(Base):
    pass


CHOSEN = Chosen()


@brought
def strength(images, draws, *, by, first=FIRST):
    return by * TABLE["by"][1] * WEIGHTS[0] * CHOSEN.step() * first


def turned(images, draws, *, by):
    return mixed(images, strength(images, draws, by=by))


register_corruption("turned", turned, "x", severities=[{"by": 0.1 * n} for n in range(1, 6)], random=False)
"""
PLUG_HELPER = """
import numpy as np


def mixed(images, by):
    return (images * (1 - by) + np.roll(images, 1, axis=-1) * by).clip(0, 255).astype(np.uint8)
"""
PLUGS: dict[str, tuple[str, str, str]] = {
    "table": ("plug.py", "[0.5, 1.0]", "[0.5, 0.1]"),
    "array": ("plug.py", "np.array([1.0])", "np.array([0.1])"),
    "default": ("plug.py", "FIRST = 1.0", "FIRST = 0.1"),
    "decorator": ("plug.py", "* 1.0\n", "* 0.1\n"),
    "base class": ("plug.py", "return 1.0\n", "return 0.1\n"),
    "function": ("plug.py", "return mixed(", "return 0 * mixed("),
    "helper": ("plug_helper.py", "np.roll(images, 1,", "np.roll(images, 2,"),
    "severities": ("plug.py", "0.1 * n", "0.01 * n"),
}
FILES = {
    "plug.py": PLUG,
    "plug_helper.py": PLUG_HELPER,
    "own.py": OWN,
    "helper.py": HELPER,
    "deeper.py": DEEPER,
    "parts/below.py": BELOW,
}
CODES: dict[str, tuple[str, str, str]] = {  # file, what stands there, what stands there then
    "forward": ("own.py", "+ self.by, 1)", "+ self.by + 1, 1)"),
    "buffer": ("own.py", '("kept", torch.eye(3))', '("kept", torch.eye(3).roll(1, 0))'),
    "non-persistent buffer": ("own.py", '("unkept", torch.eye(3),', '("unkept", torch.eye(3).roll(1, 0),'),
    "tensor attribute": ("own.py", "self.plain = torch.eye(3)", "self.plain = torch.eye(3).roll(1, 0)"),
    "list": ("own.py", "self.order = [0, 1, 2]", "self.order = [1, 2, 0]"),
    "dict": ("own.py", '{"order": [0, 1, 2]}', '{"order": [1, 2, 0]}'),
    "function": ("own.py", "    return values\n", "    return values.roll(1, 1)\n"),
    "constant": ("own.py", "FACTOR = 20.0", "FACTOR = -20.0"),
    "module dict": ("own.py", 'TURN = {"by": 0}', 'TURN = {"by": 1}'),
    "class attribute": ("own.py", "shift = 0", "shift = 1"),
    "default argument": ("own.py", "by=0", "by=1"),
    "decorator": ("own.py", "* 2", "* -2"),
    "input": ("own.py", "images.mean(dim=(2, 3))", "images.flip(1).mean(dim=(2, 3))"),
    "build": ("own.py", "    return Own().eval()", "    return Own(by=1).eval()"),
    "hook": (
        "own.py",
        "    return Own().eval()",
        "    own = Own().eval()\n    own.register_forward_hook(lambda m, i, o: o.roll(1, 1))\n    return own",
    ),
    "subclass": (
        "own.py",
        "def build():\n    return Own().eval()",
        "class Other(Own):\n    def forward(self, images):\n        return super().forward(images).roll(1, 1)\n\n\n"
        "def build():\n    return Other().eval()",
    ),
    "lambda": ("own.py", "self.pick = pick", "self.pick = lambda values: values.roll(1, 1)"),
    "helper": ("helper.py", "return values * level(values)", "return (values * level(values)).roll(1, 1)"),
    "helper of the helper": ("deeper.py", "return 1.0", "return -1.0"),
    "module of a package": ("parts/below.py", "return values", "return values.roll(1, 1)"),
    "cached function": ("own.py", "return by", "return by + 1"),
    "parsed arguments": ("own.py", "Namespace(by=0)", "Namespace(by=1)"),
    "comment": ("own.py", "FACTOR = 20.0", "FACTOR = 20.0  # as ever"),  # changes nothing, may be measured again
}


@dataclass(frozen=True)
class Case:
    """One alteration.

    Attributes:
        kind: what was altered.
        name: how.
        alter: does it to a copy of the untouched folder.
        argv: what is asked then.
        fresh: the same with nothing recorded before: what it says, this must say, too; None: what the untouched says.
        worse: whether the model that is judged is worse, so that a pass is a false one.
        threads: of torch.
        workdir: from where the command is given, below the folder.
    """

    kind: str
    name: str
    alter: Callable[[Path], None]
    argv: list[str]
    fresh: list[str] | None = None
    worse: bool = False
    threads: int = 1
    workdir: str = "."


def world(folder: Path) -> Path:
    """The untouched folder: images, a model of one's own, a run, records of a good and a poor model, baselines."""
    folder.mkdir(parents=True)
    (folder / "parts").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    _photographs(folder / "images")
    (folder / "gate.yaml").write_text(RULES)
    (folder / "nll.yaml").write_text("rules: [nll no worse, clean no worse]\n")
    (folder / "plug.yaml").write_text("rules: [turned no worse, turned/5 no worse]\n")
    (folder / "turned.py").write_text(OWN.replace("shift = 0", "shift = 1"))
    evaluate = ["evaluate", "--data", "folder:images", "--workers=0", "--shard-size=22"]
    _expect(folder, [*evaluate, "--model=python:own:build", "--suite=clean,corruptions", "--out=good"])
    _expect(folder, [*evaluate, "--model=python:turned:build", "--suite=clean,corruptions", "--out=poor"])
    _expect(folder, ["gate", "good", "--save", "measured.json"])
    _expect(folder, [*evaluate, "--model=python:own:build", "--suite=clean", "--out=quick"])
    _expect(folder, ["gate", "quick", "--save", "baseline.json"])
    plugged = ["--suite=own-corruptions", "--plugin=plug.py", "--out=plugged"]
    _expect(folder, [*evaluate, "--model=python:own:build", *plugged])
    _expect(folder, ["gate", "plugged", "--save", "plugged.json"])
    _expect(folder, [*MODEL, "--out=cand"])
    run(folder / "run", model={"kwargs": {"depth": 2}})
    _expect(folder, ["evaluate", "run", "--suite=clean", "--limit=60", "--workers=0"])
    _expect(folder, ["gate", "run", "--save", "run.json"])
    _expect(folder, RUN)
    shutil.copytree(folder / "run", folder / "before")
    _expect(folder, CONFIGURED)
    return folder


def _photographs(folder: Path) -> None:
    """Uncompressed, so that every file has the same size: only its content tells one from another."""
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        name = CLASSES[number % 3]
        pixels = rng.integers(60, 180, (32, 32, 3))
        pixels[..., number % 3] += rng.choice([0, 3, 30])
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number:02d}.bmp")


def _expect(folder: Path, argv: list[str]) -> None:
    said = said_by(_command(folder, argv), folder=folder)
    assert said.code == 0, f"{argv}: {said.text[-500:]}"


def _command(folder: Path, argv: Sequence[str], *, threads: int = 1) -> Callable[[], int]:
    def work() -> int:
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(folder))
        torch.set_num_threads(threads)
        return main(list(argv))

    return work


def cases(*, seed: int) -> list[Case]:
    """All alterations, and everything that is none."""
    rng = random.Random(seed)
    return [*_baselines(rng), *_records(rng), *_codes(), *_plug_ins(), *_data(), *_configurations(), *unchanged()]


# ------------------------------------------------------------------ baselines


def _baselines(rng: random.Random) -> Iterator[Case]:
    for number in range(60):
        alter = _unsealed(rng.randrange(2**31))
        yield Case("baseline, changed", f"value {number}", alter, [*POOR], worse=True)
    for number in range(20):
        yield Case(
            "baseline, damaged", f"bytes {number}", _cut("measured.json", rng.randrange(2**31)), [*POOR], worse=True
        )
    for name, change in RESEALED.items():
        for argv, worse in ((GOOD, False), (POOR, True)):
            yield Case("baseline, sealed again", name, _resealed(change), [*argv], worse=worse)
            yield Case("baseline, sealed again", f"{name}, by rules", _resealed(change), _ruled(argv), worse=worse)

    for argv, worse in ((GOOD, False), (POOR, True)):  # by default it would be judged as what it is, a partial score
        yield Case(
            "baseline, sealed again", "without a cell", _resealed(_first(_without_cell)), _ruled(argv), worse=worse
        )


def _ruled(argv: list[str]) -> list[str]:
    """By rules that name the full scores."""
    return [*argv, "--rules=gate.yaml"]


def _unsealed(seed: int) -> Callable[[Path], None]:
    """Another value somewhere, and the checksum as it was."""

    def alter(folder: Path) -> None:
        rng, path = random.Random(seed), folder / "measured.json"
        content = json.loads(path.read_text())
        at: Any = content["sets"][0]
        while True:
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or not at[key]:
                break
            at = at[key]
        at[key] = _other(at[key], rng)
        path.write_text(json.dumps(content))

    return alter


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int | float):
        return value + rng.choice([-1, 1, 10])
    return value[:-1] + "x" if isinstance(value, str) and value else "x"


def _first(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda content: change(content["sets"][0])


def _without_column(told: dict[str, Any]) -> None:
    for name in [name for name in told["columns"] if name.startswith("fog/")]:
        del told["columns"][name]


def _without_cell(told: dict[str, Any]) -> None:
    told["cells"].pop("fog/1")
    told["order"].remove("fog/1")


def _shorter(told: dict[str, Any]) -> None:
    for column in told["columns"].values():
        for key in ("bits", "places", "values"):
            if key in column:
                content = zlib.decompress(base64.b64decode(column[key]))
                column[key] = base64.b64encode(zlib.compress(content[:-1])).decode()


def _in_header(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return _first(lambda told: told["header"].__setitem__(key, value))


RESEALED: dict[str, Callable[[dict[str, Any]], None]] = {
    "no sets": lambda content: content.__setitem__("sets", []),
    "a set twice": lambda content: content["sets"].append(content["sets"][0]),
    "no columns": _first(lambda told: told.__setitem__("columns", {})),
    "no cells": _first(lambda told: told.update(cells={}, order=[])),
    "no order": _first(lambda told: told.__setitem__("order", [])),
    "without the columns of fog": _first(_without_column),
    "columns cut short": _first(_shorter),
    "one image less": _first(lambda told: told.__setitem__("count", told["count"] - 1)),
    "one image more": _first(lambda told: told.__setitem__("count", told["count"] + 1)),
    "images missing": _first(lambda told: told.__setitem__("missing", ["0-red/00.bmp"])),
    "other images": _first(lambda told: told.__setitem__("digest", "0" * 32)),
    "other data": _in_header("data_fingerprint", "0" * 16),
    "another seed": _in_header("seed", 7),
    "another preset": _in_header("preset", "tiny"),
    "another label": _in_header("label", "official"),
    "another task": _in_header("task", "segmentation"),
    "other versions": _in_header("versions", {"holdfast": "0"}),
    "no versions": _in_header("versions", None),
    "another format": lambda content: content.__setitem__("holdfast_baseline", 2),
}


def _resealed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        content = json.loads((folder / "measured.json").read_text())
        del content["checksum"]
        change(content)
        (folder / "measured.json").write_text(json.dumps({"checksum": content_checksum(content), **content}))

    return alter


def _cut(name: str, seed: int) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        rng, path = random.Random(seed), folder / name
        content = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content[: rng.randint(len(content) // 2, len(content))]))

    return alter


# ------------------------------------------------------------------ records


def _records(rng: random.Random) -> Iterator[Case]:
    for name, change in RECORDS.items():
        for run_name, argv, worse in (("good", GOOD, False), ("poor", POOR, True)):
            for number in range(2):
                alter = _in_records(run_name, change, rng.randrange(2**31))
                asked = _ruled(argv) if number else [*argv]
                yield Case("records", f"{name} {number}", alter, asked, worse=worse)


def _in_records(run_name: str, change: Callable[[Path, random.Random], None], seed: int) -> Callable[[Path], None]:
    return lambda folder: change(next((folder / run_name / "records").iterdir()), random.Random(seed))


def _units(folder: Path, rng: random.Random, count: int = 2) -> list[Path]:
    return rng.sample(sorted(folder.glob("*.0000?.safetensors")), count)


def _copied(folder: Path, rng: random.Random) -> None:
    one, two = _units(folder, rng)
    shutil.copyfile(one, two)


def _copied_shard(folder: Path, rng: random.Random) -> None:
    (one,) = _units(folder, rng, 1)
    content = one.read_bytes()
    for shard in range(3):
        one.with_name(f"{one.name.rsplit('.', 2)[0]}.{shard:05d}.safetensors").write_bytes(content)


def _swapped(folder: Path, rng: random.Random) -> None:
    one, two = _units(folder, rng)
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


def _swapped_cells(folder: Path, rng: random.Random) -> None:
    for shard in range(3):
        one, two = (folder / f"{cell}.{shard:05d}.safetensors" for cell in ("clean", f"fog.{rng.randint(1, 1)}"))
        first = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(first)


def _of_the_other(folder: Path, rng: random.Random) -> None:
    run_name = folder.parent.parent.name
    other = next((folder.parents[2] / ("good" if run_name == "poor" else "poor") / "records").iterdir())
    for path in _units(folder, rng, 30):
        shutil.copyfile(other / path.name, path)


def _header(**values: Any) -> Callable[[Path, random.Random], None]:
    def change(folder: Path, _rng: random.Random) -> None:
        path = folder / "evaluation.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def _targets(folder: Path, _rng: random.Random) -> None:
    """As if the poor model's answers were right."""
    path = folder / "images.safetensors"
    arrays = load_file(path)
    save_file({**arrays, "targets": (arrays["targets"] + 1) % 3}, path)


def _names(folder: Path, _rng: random.Random) -> None:
    path = folder / "images.safetensors"
    arrays = load_file(path)
    ids = arrays["ids"].tobytes().split(b"\0")
    text = np.frombuffer(b"\0".join([*ids[1:], ids[0]]), np.uint8)
    save_file({**arrays, "ids": text.copy()}, path)


def _flipped(folder: Path, rng: random.Random) -> None:
    for path in _units(folder, rng, 3):
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content))


def _gone(folder: Path, rng: random.Random) -> None:
    for path in _units(folder, rng, 2):
        path.unlink()


def _a_cell_gone(folder: Path, rng: random.Random) -> None:
    (one,) = _units(folder, rng, 1)
    for path in folder.glob(f"{one.name.rsplit('.', 2)[0]}.*"):
        path.unlink()


RECORDS: dict[str, Callable[[Path, random.Random], None]] = {
    "a unit over another": _copied,
    "a unit for all shards": _copied_shard,
    "units swapped": _swapped,
    "clean and fog/1 swapped": _swapped_cells,
    "units of the other model": _of_the_other,
    "bits flipped": _flipped,
    "units gone": _gone,
    "a cell gone": _a_cell_gone,
    "targets changed": _targets,
    "names turned": _names,
    "another fingerprint": _header(fingerprint="0" * 16),
    "other data": _header(data_fingerprint="0" * 16),
    "another seed": _header(seed=1),
    "another preset": _header(preset="imagenet"),
    "larger shards": _header(shard_size=66),
    "smaller shards": _header(shard_size=11),
    "other versions": _header(versions={}),
    "another view": _header(views=["x"]),
    "another task": _header(task="detection"),
    "other classes": _header(classes=7),
}


# ------------------------------------------------------------------ code, data, configurations


def _codes() -> Iterator[Case]:
    for name, (file, before, after) in CODES.items():
        yield Case(
            "code", name, _rewritten(file, before, after), [*MODEL, "--out=cand"], [*MODEL, "--out=new"],
            worse=name != "comment",
        )  # fmt: skip


def _plug_ins() -> Iterator[Case]:
    for name, (file, before, after) in PLUGS.items():
        yield Case("plug-in", name, _rewritten(file, before, after), [*PLUGGED])


def _rewritten(file: str, before: str, after: str) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        text = (folder / file).read_text()
        assert before in text, before
        (folder / file).write_text(text.replace(before, after, 1))

    return alter


def _data() -> Iterator[Case]:
    for name, change in DATA.items():
        yield Case("data in place", name, change, [*MODEL, "--out=cand"], [*MODEL, "--out=new"])


def _pictures(folder: Path) -> list[Path]:
    return sorted((folder / "images").rglob("*.bmp"))


def _each_picture(change: Callable[[np.ndarray, int], np.ndarray], *, every: int = 1) -> Callable[[Path], None]:
    """The same names and sizes; even the time of the last change is as it was."""

    def alter(folder: Path) -> None:
        for number, path in enumerate(_pictures(folder)):
            if number % every == 0:
                times = path.stat()
                Image.fromarray(change(np.array(Image.open(path)), number)).save(path)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return alter


def _exchanged(folder: Path) -> None:
    reds, blues = (sorted((folder / "images" / name).iterdir()) for name in (CLASSES[0], CLASSES[2]))
    for one, two in zip(reds, blues, strict=True):
        first = one.read_bytes()
        one.write_bytes(two.read_bytes())
        two.write_bytes(first)


DATA: dict[str, Callable[[Path], None]] = {
    "inverted": _each_picture(lambda pixels, _: 255 - pixels),
    "one inverted": _each_picture(lambda pixels, number: 255 - pixels if number == 5 else pixels),
    "half inverted": _each_picture(lambda pixels, _: 255 - pixels, every=2),
    "channels turned": _each_picture(lambda pixels, _: np.roll(pixels, 1, axis=2)),
    "black": _each_picture(lambda pixels, _: np.zeros_like(pixels)),
    "upside down": _each_picture(lambda pixels, _: pixels[::-1].copy()),
    "one pixel each": _each_picture(lambda pixels, _: np.where(np.arange(32)[:, None, None] == 0, 0, pixels)),
    "classes exchanged": _exchanged,
    "one image less": lambda folder: _pictures(folder)[7].unlink(),
    "one image unreadable": lambda folder: _pictures(folder)[7].write_bytes(b"BM"),
}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    **{f"num_classes {value!r:.12}": {"num_classes": value} for value in (9, 11, 0, -1, 10**9, "10", None, 10.5)},
    **{f"depth {value!r:.12}": {"depth": value} for value in (0, 1, 3, -1, 10**6, "2", None)},
    **{f"embed_dim {value!r:.12}": {"embed_dim": value} for value in (0, 8, 128, 10**7)},
    **{f"num_heads {value!r:.12}": {"num_heads": value} for value in (0, 7, 10**6)},
    **{f"img_size {value}": {"img_size": value} for value in (16, 64)},
    **{f"patch_size {value}": {"patch_size": value} for value in (1, 2, 8)},
    "an unknown argument": {"nonsense": 1},
}


def _configurations() -> Iterator[Case]:
    for name, values in CONFIGURATIONS.items():
        for where in ("", "model_args", "both"):
            for spec in ("run", "local-dir") if "num_classes" in values else ("run",):
                argv = [word.replace("run:run", f"{spec}:run") for word in CONFIGURED]
                yield Case("configuration", f"{name}, {where or 'above'}, {spec}", _configured(values, where), argv)
    for name in ("num_classes", "architecture", "model_args", "label_names"):
        yield Case("configuration", f"without {name}", _configured_without(name), [*CONFIGURED])
    yield Case("configuration", "weights of nothing", lambda folder: _weights(folder, None), [*CONFIGURED])
    yield Case("configuration", "a tensor less", lambda folder: _weights(folder, "less"), [*CONFIGURED])
    yield Case("configuration", "a tensor more", lambda folder: _weights(folder, "more"), [*CONFIGURED])
    for name in ("negated", "noisy"):  # its records are still those of before
        argv = ["gate", "run", "--against", "run.json"]
        yield Case("weights after the records", name, _retrained(name), argv, worse=True)
        anew = ["new" if word == "of-run" else word for word in CONFIGURED]
        yield Case("weights after the records", f"{name}, measured again", _retrained(name), [*CONFIGURED], anew)


def _configured(values: dict[str, Any], where: str) -> Callable[[Path], None]:
    """Other arguments of the model: beside its name, where timm keeps them, or at both places."""

    def alter(folder: Path) -> None:
        path = folder / "run" / "config.json"
        config = json.loads(path.read_text())
        if where != "model_args":
            config |= values
        if where:
            config["model_args"] |= values
        path.write_text(json.dumps(config))

    return alter


def _configured_without(name: str) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path = folder / "run" / "config.json"
        config = json.loads(path.read_text())
        config.pop(name, None)
        path.write_text(json.dumps(config))

    return alter


def _weights(folder: Path, what: str | None) -> None:
    path = folder / "run" / "model.safetensors"
    tensors = load_file(path)
    if what == "less":
        tensors.pop(sorted(tensors)[0])
    elif what == "more":
        tensors["nobody.weight"] = np.zeros(3, np.float32)
    save_file(tensors if what else {}, path)


def _retrained(how: str) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path, rng = folder / "run" / "model.safetensors", np.random.default_rng(0)
        tensors = load_file(path)
        changed = {
            key: -value if how == "negated" else value + rng.normal(0, 1, value.shape).astype(value.dtype)
            for key, value in tensors.items()
        }
        save_file(changed, path)

    return alter


# ------------------------------------------------------------------ what changes nothing


def unchanged() -> Iterator[Case]:
    """Copies, other threads, other working folders, times of files: the same numbers, and a pass."""
    nothing: Callable[[Path], None] = lambda folder: None  # noqa: E731
    again, anew = [*MODEL, "--out=cand"], [*MODEL, "--out=new"]
    for threads in (1, 2, 3, 4):
        for name, argv in (("recorded", again), ("anew", anew), ("records", [*GOOD]), ("run", [*RUN])):
            yield Case("unchanged", f"{threads} threads, {name}", nothing, argv, threads=threads)
    for name, argv in (("recorded", again), ("anew", anew), ("records", [*GOOD]), ("run", [*RUN])):
        yield Case("unchanged", f"touched, {name}", _touched, argv)
        yield Case(
            "unchanged", f"another working folder, {name}", _elsewhere, _from_elsewhere(argv), workdir="elsewhere"
        )
        yield Case("unchanged", f"baseline written otherwise, {name}", _reformatted, argv)
        yield Case("unchanged", f"links instead of images, {name}", _linked, argv)
    for name, argv in (("recorded", again), ("anew", anew)):
        yield Case("unchanged", f"images copied, {name}", _copied_images, [*argv, "--data=folder:copy"])
        yield Case("unchanged", f"images moved, {name}", _moved_images, [*argv, "--data=folder:copy"])
        for workers in (1, 2):
            yield Case("unchanged", f"{workers} workers, {name}", nothing, [*argv, f"--workers={workers}"])
    for name in ("good", "quick"):
        baseline = "measured.json" if name == "good" else "baseline.json"
        yield Case("unchanged", f"records of {name} copied", _copied_run(name), ["gate", "copy", "--against", baseline])
        yield Case("unchanged", f"records of {name} alone", nothing, ["gate", f"{name}/records", "--against", baseline])
        yield Case("unchanged", f"against the run {name}", nothing, ["gate", name, "--against", name])
        yield Case("unchanged", f"against a copy of {name}", _copied_run(name), ["gate", name, "--against", "copy"])
    yield Case("unchanged", "the run copied", _copied_run("run"), [*RUN[:2], "run:copy", *RUN[3:]])
    yield Case("unchanged", "the code copied", _copied_code, [*again])
    yield Case("unchanged", "the plug-in", nothing, [*PLUGGED])
    yield Case("unchanged", "the plug-in copied", _copied_code, [*PLUGGED])
    yield Case("unchanged", "saved again", nothing, [*GOOD, "--save=again.json"])


def _touched(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path)


def _elsewhere(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "images").symlink_to(folder / "images")  # what a baseline calls folder:images


def _from_elsewhere(argv: list[str]) -> list[str]:
    files = ("good", "baseline.json", "measured.json", "run.json", "of-run")
    told = [f"../{word}" if word in files else word for word in argv]
    return [word.replace("--out=", "--out=../").replace("run:run", "run:../run") for word in told]


def _reformatted(folder: Path) -> None:
    for name in ("baseline.json", "measured.json", "run.json"):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(dict(reversed(content.items())), indent=4))


def _linked(folder: Path) -> None:
    shutil.move(folder / "images", folder / "there")
    for path in sorted((folder / "there").rglob("*.bmp")):
        link = folder / "images" / path.relative_to(folder / "there")
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, link)


def _copied_images(folder: Path) -> None:
    for path in _pictures(folder):
        copy = folder / "copy" / path.relative_to(folder / "images")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)  # with another time


def _moved_images(folder: Path) -> None:
    shutil.move(folder / "images", folder / "copy")


def _copied_run(name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copytree(folder / name, folder / "copy", copy_function=shutil.copyfile)


def _copied_code(folder: Path) -> None:
    for name in FILES:
        text = (folder / name).read_text()
        (folder / name).unlink()
        (folder / name).write_text(text)


# ------------------------------------------------------------------ judging


def tried(case: Case, folder: Path, *, good: Path) -> str:
    """What went wrong with a case; empty if nothing did."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder, symlinks=True)
    case.alter(folder)
    place = folder / case.workdir
    said = said_by(_command(folder, case.argv, threads=case.threads), folder=place)
    if wrong := _badly_said(said):
        return wrong
    if case.kind == "unchanged":
        return _unlike(said, _untouched(case, good)) or (
            f"exit code {said.code}: {said.text[-300:]}" if said.code else ""
        )
    if case.worse and said.code == 0:
        return f"a false pass: {said.text[-300:]}"
    if said.code == 2:
        return ""
    if case.fresh is None:
        return _unlike(said, _untouched(case, good))
    return _unlike(said, said_by(_command(folder, case.fresh), folder=place))


def _badly_said(said: Said) -> str:
    if said.code is None:
        return f"hangs: {said.text[-300:]}"
    if said.code not in (0, 1, 2) or "Traceback" in said.text:
        return f"exit code {said.code}: {said.text[-300:]}"
    return f"a refusal of {said.seconds:.1f} s: {said.text[-200:]}" if said.code == 2 and said.slow else ""


_known: dict[str, dict[str, tuple[str, str]]] = {}


def _untouched(case: Case, good: Path) -> Said:
    """What the untouched folder says to the same question, asked once."""
    name = "poor" if case.argv[1] == "poor" else "run" if "run.json" in " ".join(case.argv) else ""
    name = name or ("configured" if "before" in case.argv else "plugged" if "plugged.json" in case.argv else "")
    name = name or ("quick" if "baseline.json" in " ".join(case.argv) or "quick" in " ".join(case.argv) else "good")
    ruled = "--rules=gate.yaml" in case.argv
    key = f"{good}:{name}:{ruled}"
    argv = {
        "poor": POOR,
        "run": RUN,
        "configured": CONFIGURED,
        "plugged": PLUGGED,
        "quick": [*MODEL, "--out=cand"],
        "good": GOOD,
    }[name]
    argv = _ruled(argv) if ruled else argv
    if key not in _known:
        _known[key] = numbers(said_by(_command(good, argv), folder=good).text)
    return Said(0, "", 0.0, 0.0, numbers=_known[key])


def _unlike(said: Said, wanted: Said) -> str:
    """The first number that differs; a score that is not judged any more is one, too."""
    ours, theirs = (each.numbers or numbers(each.text) for each in (said, wanted))
    if wanted.code == 2:
        return f"{said.text[-200:]} but with fresh records: {wanted.text[-200:]}"
    for rule in {**theirs, **ours}:
        if ours.get(rule) != theirs.get(rule):
            return f"another number: {rule} is {ours.get(rule)}, not {theirs.get(rule)}"
    return "" if theirs else f"nothing to compare: {wanted.text[-200:]}"


def numbers(text: str) -> dict[str, tuple[str, str]]:
    """Of every rule what stands in the table as the baseline and now."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: (row[1], row[2]) for row in rows if len(row) >= 6 and row[0] != "rule"}


def all_verdicts(folder: Path, *, seed: int, names: Sequence[str] | None = None) -> dict[str, tuple[int, list[str]]]:
    """Try every case: by kind the number of tries and what went wrong."""
    good = world(folder / "good")
    found: dict[str, tuple[int, list[str]]] = {}
    for case in cases(seed=seed):
        if names is not None and case.kind not in names:
            continue
        wrong = tried(case, folder / "try", good=good)
        if wrong:
            print(f"{case.kind}, {case.name}: {wrong}", flush=True)
        tries, before = found.get(case.kind, (0, []))
        found[case.kind] = (tries + 1, [*before, *([f"{case.name}: {wrong}"] if wrong else [])])
    return found
