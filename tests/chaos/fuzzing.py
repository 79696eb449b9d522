"""Damage every kind of file that we read, and read it: the answer is a value or a sentence, never another error.

What carries a checksum (units, checkpoints) must also never be taken for good when it is not.
"""

import contextlib
import copy
import io
import json
import logging
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

from holdfast.analysis.results import load_results
from holdfast.cli.main import main
from holdfast.corruptions.corrupt_folder import read_manifest
from holdfast.data import open_data
from holdfast.deploy.onnx_model import load_onnx
from holdfast.errors import HoldfastError
from holdfast.evaluation.evaluate import evaluate
from holdfast.gate import read_baseline, read_rules
from holdfast.io.images import decode
from holdfast.models.checkpoints import read_weights
from holdfast.models.corruption_model import Corruptor, load_corruptor, save_corruptor
from holdfast.models.factory import load_model
from holdfast.records.records import load_records
from holdfast.reporting.page import report
from holdfast.studies.config import load_study
from holdfast.studies.results import RunResult, read_result, write_result
from holdfast.training.checkpoint import last_intact
from holdfast.training.logger import read_log
from holdfast.training.recipe_files import load_recipe
from tests.models.onnx_graphs import brightest
from tests.training.helpers import run, tiny

DENSE = ("segmentation", "detection")
LONGEST = 60  # seconds that reading any file may take, on a machine that others use too
ODD = (None, True, -1, 0, 1e308, float("nan"), 2**63, "", "x", "\ud800", "../..", [], {}, [[]], {"a": {}}, "a" * 10_000)
FOREIGN = ("GIF", "ICO", "TGA", "DDS", "PCX", "SGI", "AVIF", "BLP", "EPS")


@dataclass(frozen=True)
class Target:
    """A file in a folder that is as we write it, and how it is read.

    Attributes:
        name: in the table.
        file: which file of the folder is damaged.
        read: reads the folder.
        sealed: whether damage must be found, as a difference to what was read before.
    """

    name: str
    file: str
    read: Callable[[Path], Any]
    sealed: Callable[[Any], Any] | None = None


def targets(folder: Path) -> list[Target]:
    """Every file that we read, in a folder that this fills."""
    place = folder / "good"
    _fill(place)
    records = next((place / "run" / "records").iterdir()).relative_to(place)
    unit = next((place / records).glob("clean*.safetensors")).relative_to(place)
    analysis = next((place / "run" / "analysis").rglob("overfocus.safetensors")).relative_to(place)
    dense = {task: next((place / task / "records").iterdir()).relative_to(place) for task in DENSE}
    return [
        Target("recipe", "recipe.yaml", lambda at: load_recipe(at / "recipe.yaml")),
        Target("study", "study.yaml", lambda at: load_study(at / "study.yaml")),
        Target("records, header", f"{records}/evaluation.json", lambda at: load_records(at / "run")),
        Target("records, images", f"{records}/images.safetensors", lambda at: load_records(at / "run")),
        Target("records, unit", str(unit), lambda at: load_records(at / "run"), _predictions),
        Target("report of a header", f"{records}/evaluation.json", lambda at: report(at / "run")),
        Target("report of a unit", str(unit), lambda at: report(at / "run")),
        Target("report of a recipe", "run/recipe.yaml", lambda at: report(at / "run")),
        Target("report of a log", "run/log.jsonl", lambda at: report(at / "run")),
        Target("report of an analysis", str(analysis), lambda at: report(at / "run")),
        Target("table of a header", f"{records}/evaluation.json", lambda at: report(at / "run", format="robustbench")),
        Target("log", "run/log.jsonl", lambda at: read_log(at / "run/log.jsonl")),
        Target("analysis", str(analysis), lambda at: load_results(at / "run")),
        Target("checkpoint, state", "run/checkpoints/step-00000008/state.json", _last, _state),
        Target("checkpoint, weights", "run/checkpoints/step-00000008/model.safetensors", _last, _state),
        Target("model, weights", "run/model.safetensors", lambda at: load_model(f"run:{at / 'run'}")),
        Target("model, config", "run/config.json", lambda at: load_model(f"run:{at / 'run'}")),
        Target("TORA, description", "tora/tora.json", lambda at: load_model(f"run:{at / 'tora'}")),
        Target("TORA, weights", "tora/tora.safetensors", lambda at: load_model(f"run:{at / 'tora'}")),
        Target("corruptor", "corruptor.safetensors", lambda at: load_corruptor(at / "corruptor.safetensors")),
        Target("published weights", "weights.pth", lambda at: read_weights(at / "weights.pth")),
        Target("arrays", "set.npz", lambda at: _opened(f"npz:{at / 'set.npz'}")),
        Target("manifest", "corrupted/manifest.json", lambda at: read_manifest(at / "corrupted")),
        Target("study result", "result.safetensors", lambda at: read_result(at / "result.safetensors")),
        Target("report of examples", f"{records}/examples.safetensors", lambda at: report(at / "run")),
        Target("gate, baseline", "baseline.json", lambda at: read_baseline(at / "baseline.json"), _levels),
        Target("gate, rules", "gate.yaml", lambda at: read_rules(at / "gate.yaml")),
        Target("ONNX", "model.onnx", lambda at: load_onnx(at / "model.onnx")),
        *(
            Target(f"{task}, {what}", f"{dense[task]}/{file}", partial(_reported, task))
            for task in DENSE
            for what, file in (("header", "evaluation.json"), ("unit", "clean.00000.safetensors"))
        ),
    ]


def fuzz_files(folder: Path, *, tries: int, seed: int) -> dict[str, tuple[int, list[str]]]:
    """So many damaged files, of every kind in turn: tries and what went wrong, by name."""
    rng, found = random.Random(seed), dict[str, tuple[int, list[str]]]()
    every = targets(folder)
    wanted = {target.name: _answer(target, folder / "good") for target in every}
    for number in range(tries):
        target = every[number % len(every)]
        count, wrong = found.get(target.name, (0, []))
        sentence = _try(target, folder, wanted[target.name], rng)
        found[target.name] = (count + 1, [*wrong, *([sentence] if sentence else [])])
        if sentence:
            print(f"{target.name}: {sentence}", flush=True)
    return found


def _try(target: Target, folder: Path, wanted: Any, rng: random.Random) -> str:
    good, file = folder / "good", folder / "good" / target.file
    content = file.read_bytes()
    damaged = damage(content, file.suffix, rng)
    try:
        file.write_bytes(damaged)
        try:
            answer = _answer(target, good)
        except _TooLong:
            return f"longer than {LONGEST} s; {_kept(folder, file, damaged)}"
        except BaseException as error:
            return f"{type(error).__name__}: {str(error)[:200]}; {_kept(folder, file, damaged)}"
        if target.sealed and answer and not isinstance(answer, Exception) and answer != wanted:
            return f"taken for good; {_kept(folder, file, damaged)}"
        return ""
    finally:
        file.write_bytes(content)


def _answer(target: Target, at: Path) -> Any:
    """What reading gives: a value (of sealed files, what must not change), or the sentence."""
    with _quiet(), _at_most(LONGEST):
        try:
            value = target.read(at)
        except HoldfastError as error:
            return error
        return target.sealed(value) if target.sealed else None


def damage(content: bytes, suffix: str, rng: random.Random) -> bytes:
    """Bits flipped, an end cut off, noise put in, stretches doubled; of JSON and YAML also odd values."""
    if suffix in (".json", ".jsonl", ".yaml") and rng.random() < 0.6:
        with contextlib.suppress(ValueError, TypeError, UnicodeError, yaml.YAMLError):
            return _odd_value(content, suffix, rng)
    if suffix == ".safetensors" and rng.random() < 0.4:
        with contextlib.suppress(ValueError, TypeError, UnicodeError):
            return _odd_header(content, rng)
    broken = bytearray(content)
    place = rng.randrange(len(broken)) if rng.random() < 0.5 else rng.randrange(min(len(broken), 200))
    kind = rng.randrange(5)
    if kind == 0:
        broken[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del broken[place:]
    elif kind == 2:
        broken[place:place] = rng.randbytes(rng.randrange(1, 40))
    elif kind == 3:
        broken[place : place + 8] = rng.randbytes(8)
    else:
        broken[place:place] = broken[: rng.randrange(1, len(broken) + 1)]
    return bytes(broken)


def _odd_value(content: bytes, suffix: str, rng: random.Random) -> bytes:
    text = content.decode()
    if suffix == ".jsonl":
        lines = text.splitlines()
        number = rng.randrange(len(lines))
        lines[number] = json.dumps(_mutated(json.loads(lines[number]), rng))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    values = json.loads(text) if suffix == ".json" else yaml.safe_load(text)
    values = _mutated(values, rng)
    made = json.dumps(values) if suffix == ".json" else yaml.safe_dump(values)
    return made.encode("utf-8", "surrogatepass")


def _odd_header(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file whose head says something odd, also inside the JSON that we keep there."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    told = head.get("__metadata__", {})
    name = next(iter(told), None)
    if name is not None and rng.random() < 0.7:
        inner = json.loads(told[name])
        key = next((key for key in inner if isinstance(inner[key], str) and inner[key].startswith("{")), None)
        if key is not None:
            inner[key] = json.dumps(_mutated(json.loads(inner[key]), rng))
        told[name] = json.dumps(_mutated(inner, rng) if key is None else inner)
    else:
        head = _mutated(head, rng)
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _mutated(values: Any, rng: random.Random) -> Any:
    """The values with one of them odd, gone or renamed; sometimes all of them."""
    if rng.random() < 0.05 or not isinstance(values, dict | list) or not values:
        return rng.choice(ODD)
    values = copy.copy(values)
    key = rng.choice(list(values)) if isinstance(values, dict) else rng.randrange(len(values))
    if isinstance(values[key], dict | list) and values[key] and rng.random() < 0.7:
        values[key] = _mutated(values[key], rng)
    elif rng.random() < 0.2:
        del values[key]
    else:
        values[key] = rng.choice(ODD)
    return values


def fuzz_images(folder: Path, *, tries: int, seed: int) -> dict[str, tuple[int, list[str]]]:
    """So many damaged images of every format, and of formats that we do not read: tries and what went wrong."""
    rng, bases = random.Random(seed), dict(_images())
    found = {name: (0, list[str]()) for name in bases}
    path = folder / "x.png"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(tries):
        name = list(bases)[number % len(bases)]
        path.write_bytes(damage(bases[name], "", rng) if number >= len(bases) else bases[name])
        count, wrong = found[name]
        try:
            with _quiet(), _at_most(LONGEST):
                sentence = "" if decode(path).image.mode == "RGB" and name not in FOREIGN else "read"
        except HoldfastError:
            sentence = ""
        except BaseException as error:
            sentence = f"{type(error).__name__}: {error}; {_kept(folder, path, path.read_bytes())}"
        if sentence == "read":  # damage can turn a foreign format into one of ours only by chance
            sentence = f"a {name} was decoded; {_kept(folder, path, path.read_bytes())}"
        found[name] = (count + 1, [*wrong, *([sentence] if sentence else [])])
        if sentence:
            print(f"image {name}: {sentence}", flush=True)
    return found


def _images() -> Iterator[tuple[str, bytes]]:
    noise = Image.effect_noise((40, 32), 60)
    colour = Image.merge("RGB", [noise, noise.rotate(90, expand=False), noise.rotate(180)])
    wide = Image.fromarray(np.arange(1280, dtype=np.uint16).reshape(32, 40) * 50)
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, image, format, options in (
        ("JPEG", colour, "JPEG", {"exif": exif}),
        ("JPEG, progressive", colour, "JPEG", {"progressive": True}),
        ("JPEG, CMYK", colour.convert("CMYK"), "JPEG", {}),
        ("PNG", colour, "PNG", {"exif": exif}),
        ("PNG, palette", colour.convert("P"), "PNG", {"transparency": 0}),
        ("PNG, 16 bits", wide, "PNG", {}),
        ("PPM", colour, "PPM", {}),
        ("BMP", colour, "BMP", {}),
        ("TIFF", colour, "TIFF", {}),
        ("TIFF, LZW", colour, "TIFF", {"compression": "tiff_lzw"}),
        ("TIFF, floats", Image.fromarray(np.asarray(noise, np.float32)), "TIFF", {}),
        ("WEBP", colour, "WEBP", {"exif": exif}),
        *((format, colour.convert("P") if format == "BLP" else colour, format, {}) for format in FOREIGN),
    ):
        buffer = io.BytesIO()
        with contextlib.suppress(KeyError, OSError, ValueError):  # a Pillow without that format
            image.save(buffer, format, **options)
            yield name, buffer.getvalue()


def _fill(place: Path) -> None:
    """One good file of every kind."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    from tests.evaluation.tasks.test_segmentation import Brightness
    from tests.tasks.detectors import Finder, scenes

    with _quiet():
        run(place / "run")
        evaluate(Brightness(), "scenes:test", ["clean"], limit=2, out=place / "segmentation", show=False)
        evaluate(Finder(scenes()), scenes(), ["clean"], out=place / "detection", show=False)
        for argv in (
            ["evaluate", str(place / "run"), "--suite=clean,pgd5", "--limit=20", "--workers=0", "--keep-examples=4"],
            ["gate", str(place / "run"), f"--save={place / 'baseline.json'}"],
            ["analyze", str(place / "run"), "--only=overfocus", "--limit=8"],
        ):
            assert main(argv) == 0
        values = tiny(
            model={
                "name": "vit_nano",
                "kwargs": {"depth": 1},
                "init": f"run:{place / 'run'}",
                "adapt": {"name": "tora", "options": {"reduction": 4}},
            },
            objective={"name": "tora", "options": {"steps": 1}},
            train={"epochs": 1, "phases": {"run": "robust", "weights": []}},
        )
        from holdfast.training.loop import train

        train(values, out=place / "tora", show=False)
        (place / "photographs").mkdir()
        Image.effect_noise((40, 40), 50).save(place / "photographs" / "x.png")
        assert (
            main(["corrupt", str(place / "photographs"), str(place / "corrupted"), "--kinds=fog", "--workers=1"]) == 0
        )
    shutil.copy(place / "run" / "recipe.yaml", place / "recipe.yaml")
    from tests.studies.test_runner import STUDY

    (place / "study.yaml").write_text(STUDY)
    (place / "gate.yaml").write_text("rules: [clean no worse by more than 1, retention >= 80]\nunresolved: pass\n")
    brightest(place / "model.onnx")
    save_corruptor(Corruptor((4, 4), patch_size=8), place / "corruptor.safetensors")
    torch.save({"state_dict": {"head.weight": torch.zeros(3, 4)}}, place / "weights.pth")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez(place / "set.npz", x=images, y=np.arange(6) % 2, classes=list("ab"))
    result = RunResult("a", 0, {"clean": np.ones(8), "occlusion-random": np.full(8, 0.5)}, {}, {"fingerprint": "x"})
    write_result(place / "result.safetensors", result)


def _reported(task: str, at: Path) -> None:
    report(at / task)


def _levels(sides: Any) -> Any:
    return [{name: column.tolist() for name, column in side.columns.items()} for side in sides]


def _opened(spec: str) -> Any:
    source = open_data(spec)
    return [np.asarray(source.image(index)) for index in range(len(source))]


def _last(at: Path) -> Any:
    found = last_intact(at / "run" / "checkpoints")
    return found and (found[0].name, found[1]["position"])


def _state(found: Any) -> Any:
    """The newest one is either not found or what was written; the one before is as good."""
    return found if found and found[0] == "step-00000008" else None


def _predictions(records: Any) -> Any:
    return {
        (view, name): cell.predictions.tolist()
        for each in records
        for view, cells in each.by_view.items()
        for name, cell in cells.items()
        if name == "clean"
    }


class _TooLong(BaseException):
    pass


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _kept(folder: Path, file: Path, content: bytes) -> str:
    """Where the culprit can be looked at."""
    place = folder / "wrong"
    place.mkdir(exist_ok=True)
    path = place / f"{len(list(place.iterdir()))}-{file.name}"
    path.write_bytes(content)
    return f"kept as {path}"
