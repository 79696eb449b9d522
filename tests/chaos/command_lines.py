"""Command lines that nobody should get away with: each must be one sentence, exit code 2, and nothing left behind."""

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save

from holdfast.cli.main import COMMANDS, main
from holdfast.training.recipe_files import RULES
from tests.chaos.processes import SLOWEST_REFUSAL
from tests.training.helpers import run

# values that break most rules; what a rule allows is left out below
BAD_NUMBERS = ("-1", "-0.5", ".nan", ".inf", "-.inf", "many", "[1, 2, 3, 4]", "{a: 1}")
TINY = ["--data.train_subset=64", "--data.val_subset=20", "--data.workers=0", "--train.epochs=1"]
SECONDS = 120  # a line that is taken after all may serve or train for ever
TINY += ["--train.batch_size=16", "--model.kwargs.depth=1", "--train.device=cpu"]


def all_lines(folder: Path, *, run: str) -> list[list[str]]:
    """Every bad command line; the files that they name are made in the folder, and ``run`` is a finished run."""
    files = bad_files(folder) | {"run": run}
    (folder / "photos").mkdir(exist_ok=True)
    Image.new("RGB", (40, 40)).save(folder / "photos" / "x.png")
    (folder / "good.yaml").write_text("recipe: digits/vit_nano\ntest: digits:test\nrows: {a: {}}\n")
    files |= {"photos": str(folder / "photos"), "good": str(folder / "good.yaml")}
    lines = [*_general(), *_recipe_values(), *_train(files), *_evaluate(files), *_corrupt(files), *_study(files)]
    lines += [*_analyze(files), *_report(files), *_convert(files), *_lists(), *_gate(files), *_export(files)]
    return [*lines, *_card(files), *_predict(files), *_lab(files), *_own_code(files), *_cluster(files)]


def finished_run(folder: Path) -> str:
    """A run with records, for the lines that need one."""
    run(folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["evaluate", str(folder), "--suite=clean", "--limit=20", "--workers=0"]) == 0
    return str(folder)


def refused(argv: list[str], *, folder: Path) -> str:
    """What went wrong with a refusal; empty if nothing did. Runs in this process, in the folder."""
    before, told, said = _listed(folder), io.StringIO(), io.StringIO()
    begin = time.process_time()
    with contextlib.chdir(folder), contextlib.redirect_stderr(told), contextlib.redirect_stdout(said):
        try:
            code = _within(SECONDS, argv)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
    if code != 2:
        return f"exit code {code}; it said {told.getvalue()[-300:]!r}"
    sentence = told.getvalue().strip()
    if (
        "Traceback" in sentence
        or not sentence.splitlines()[-1:]
        or "holdfast: error: " not in sentence.splitlines()[-1]
    ):
        return f"no sentence: {sentence[-300:]!r}"
    left = _listed(folder) - before
    took = time.process_time() - begin
    if took > SLOWEST_REFUSAL:
        return f"a refusal of {took:.1f} s"
    return f"left behind: {sorted(left)[:3]}" if left else ""


def _within(seconds: int, argv: list[str]) -> int:
    """The exit code of a line; Ctrl-C ends one that goes on and on."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        return main(argv)
    finally:
        timer.cancel()


def bad_files(folder: Path) -> dict[str, str]:
    """Files that are none of what they are taken for."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "empty": b"",
        "zeros": bytes(4096),
        "noise": np.random.default_rng(0).bytes(4096),
        "text.yaml": b"no: [recipe",
        "list.yaml": b"- 1\n- 2\n",
        "self.yaml": b"model: &m {name: fan_nano, kwargs: *m}\n",
        "bomb.yaml": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + _laughs(),
        "object.yaml": b"seed: !!python/object/apply:os.getcwd []\n",
        "deep.yaml": b"seed: " + b"[" * 20_000,
        "latin.yaml": b"seed: \xff\n",
        "date.yaml": b"seed: 2020-99-99\n",
        "pickle.pth": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "header.safetensors": (10**15).to_bytes(8, "little") + b"{}",
        "cut.safetensors": (40).to_bytes(8, "little") + b'{"x":{"dtype":"F32","shape":[1000000],"da',
        "list.json": b"[]",
        "scalar.safetensors": save({"head.weight": np.zeros((), np.float32)}),
        "hollow.safetensors": save({"head.weight": np.zeros((10**9, 0), np.float32)}),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "hollow").mkdir(exist_ok=True)
    (folder / "nothing").mkdir(exist_ok=True)
    for name, content in (("config.json", b"[]"), ("model.safetensors", b"")):
        (folder / "hollow" / name).write_bytes(content)
    return {name: str(folder / name) for name in (*contents, "hollow", "nothing")}


def _bad(files: dict[str, str]) -> list[str]:
    return [path for name, path in files.items() if name not in ("run", "photos", "good")]


def _laughs() -> bytes:
    lines = [f"v{n}: &v{n} [{', '.join([f'*v{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(["v0: &v0 [lol]", *lines, ""]).encode()


def _general() -> Iterator[list[str]]:
    yield from ([word] for word in ("", "trian", "--nonsense", "-x", "help", "evalute", "TRAIN", "train2"))
    for command in COMMANDS:
        yield [command, "--nonsense"]
        yield [command, "--nonsense=3"]
        yield [command, "--=3"]


def _recipe_values() -> Iterator[list[str]]:
    """Every rule with every bad value that breaks it."""
    for path, rule in RULES.items():
        if path.startswith("train.phases."):
            continue
        for value in BAD_NUMBERS:
            if not _allowed(rule.holds, value):
                yield ["train", "digits/vit_nano", *TINY, f"--{path}={value}", "--out=run"]


def _allowed(holds, text: str) -> bool:
    try:
        value = float(text.replace(".nan", "nan").replace(".inf", "inf"))
        return bool(holds(value)) and np.isfinite(value)
    except (ValueError, TypeError, AttributeError):  # a list or a mapping is asked for
        return False


def _train(files: dict[str, str]) -> Iterator[list[str]]:
    base = ["train", "digits/vit_nano", *TINY, "--out=run"]
    for option in (
        "--model.kwargs={num_classes: 3}",
        "--model.kwargs={pretrained: true}",
        "--model.kwargs={drop_path_rate: 5}",
        "--model.kwargs={depth: -1}",
        "--model.kwargs={depth: 0}",
        "--model.kwargs={embed_dim: 7, num_heads: 3}",
        "--model.kwargs={nonsense: 3}",
        "--model.kwargs={depth: x}",
        "--model.kwargs={patch_size: 0}",
        "--model.kwargs=3",
        "--model.name=vit_nanoo",
        "--model.name=nowhere:x",
        "--model.head=maybe",
        "--model.frozen=[nothing]",
        "--data.train=nowhere:x",
        "--data.train=folder:",
        "--data.train=folder:nowhere",
        "--data.train=npz:nowhere.npz",
        "--data.train=digits:tset",
        "--data.train=digits[5:3]",
        "--data.train=digits[0:99999]",
        "--data.train=cifar10:nowhere",
        "--data.train=imagenet-c:nowhere",
        "--data.train_subset=100000",
        "--data.train_subset=0",
        "--data.val_subset=1.5",
        "--data.size=1000000",
        "--data.std=[0, 0, 0]",
        "--data.std=[1, 1]",
        "--data.mean=[x, 0, 0]",
        "--data.exif=rotate",
        "--augment.rand_augment=bogus",
        "--augment.rand_augment=rand-bogus",
        "--augment.crop=square",
        "--augment.corruption={kinds: fogg}",
        "--augment.corruption={nonsense: 1}",
        "--augment.scale=[1, 0.1]",
        "--optimizer.name=adamww",
        "--optimizer.options={betas: x}",
        "--optimizer.options={nonsense: 1}",
        "--objective.name=nothing",
        "--objective.options={nonsense: 1}",
        "--schedule.every=year",
        "--train.device=tpu",
        "--train.device=cuda",
        "--train.precision=fp16",
        "--train.trackers=[nothing]",
        "--train.batch_size=100000",
        "--train.phases.run=all",
        "--init=nowhere.pth",
        "--init=run:nowhere",
        "--out=",
        "--resume=maybe",
        "--seed=x",
    ):
        yield [*base, option]
    yield [*base[:-1], "--out=" + "x" * 300]
    yield [*base[:-1], f"--out={files['empty']}"]
    yield [*base[:-1], f"--out={files['empty']}/x"]
    yield from (["train", name, "--out=run"] for name in ("digits/vit_nan", "nowhere.yaml", "/", "x" * 300, ""))
    yield from (["train", path, "--out=run"] for path in _bad(files))
    yield from ([*base, f"--init={path}"] for path in _bad(files))
    yield from ([*base, f"--data.train={kind}:{path}"] for kind in ("npz", "folder") for path in _bad(files))
    yield from (["train"], ["train", "--resume"], ["train", "--resume", "--out=nowhere"])


def _evaluate(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["evaluate"], ["evaluate", "nowhere"], ["evaluate", "a", "b"], ["evaluate", "a", "--model=timm:b"])
    base = ["evaluate", "--data=digits:test", "--out=out", "--workers=0"]
    for model in (
        "nowhere:x",
        "timm:nothing",
        "run:nowhere",
        "local-dir:nowhere",
        "python:x",
        "python:nowhere:x",
        "timm:",
    ):
        yield [*base, f"--model={model}"]
    yield from ([*base, f"--model=run:{path}"] for path in _bad(files))
    yield from ([*base, f"--model=timm:vit_nano@{path}"] for path in _bad(files))
    yield from (["evaluate", path] for path in _bad(files))
    known = ["evaluate", files["run"], "--out=out", "--workers=0"]
    for option in (
        "--suite=clan",
        "--suite=",
        "--suite=,",
        "--limit=-1",
        "--limit=-3",
        "--limit=x",
        "--seed=x",
        "--device=gpu",
        "--device=meta",
        "--batch-size=0",
        "--batch-size=x",
        "--attack-batch-size=0",
        "--workers=-1",
        "--preset=imagnet",
        "--exif=rotate",
        "--data=nowhere:x",
        "--data=imagenet-c:nowhere",
        "--data=cifar10-c:nowhere",
    ):
        yield [*known, *([] if option.startswith("--data") else ["--data=digits:test"]), option]


def _corrupt(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["corrupt"], ["corrupt", "a"], ["corrupt", "nowhere", "out"], ["corrupt", files["nothing"], "out"])
    yield from (["corrupt", path, "out"] for path in _bad(files))
    for option in (
        "--kinds=fogg",
        "--kinds=",
        "--severity=0",
        "--severity=6",
        "--severity=3-1",
        "--severity=x",
        "--preset=x",
        "--format=gif",
        "--format=jpeg:0",
        "--workers=-1",
        "--workers=x",
        "--seed=x",
        "--frost=nowhere",
        "--exif=rotate",
    ):
        yield ["corrupt", files["photos"], "out", option]


def _study(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["study"], ["study", "nowhere"], ["study", "cifar10/mian"])
    yield from (["study", path, "--out=out"] for path in _bad(files))
    for option in (
        "--rows=",
        "--rows=,",
        "--rows=nothing",
        "--seeds=",
        "--seeds=a",
        "--seeds=0,0",
        "--seeds=-1",
        "--limit=-1",
        "--limit=x",
        "--processes=0",
        "--processes=x",
        "--test=nowhere:x",
        "--test=npz:nowhere.npz",
        "--train.epochs=0",
        "--optimizer.lr=.inf",
        "--table-only",
    ):
        yield ["study", files["good"], "--out=out", option]


def _analyze(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["analyze"], ["analyze", "nowhere"], ["analyze", "nowhere", "--redraw"])
    yield from (["analyze", path, "--data=digits:test", "--out=out"] for path in _bad(files))
    for option in (
        "--only=nothing",
        "--query=x",
        "--query=1",
        "--query=2,2",
        "--limit=x",
        "--limit=-1",
        "--masks=x",
        "--masks=0",
        "--size=x",
        "--size=1000000",
        "--cells=fogg/9",
        "--cells=fog/9",
        "--ratio=2",
        "--ratio=.nan",
        "--patch-size=0",
        "--top=0",
        "--clusters=0",
        "--epsilon=-1",
        "--noise-std=-1",
        "--modules=nothing",
        "--batch-size=0",
        "--device=meta",
        "--pictures=-1",
        "--seed=x",
        f"--corruptor={files['noise']}",
        f"--corruptor={files['empty']}",
        "--corruptor=nowhere",
    ):
        yield ["analyze", files["run"], "--out=out", option]


def _report(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (
        ["report"],
        ["report", "nowhere"],
        ["report", files["nothing"]],
        ["report", files["nothing"], "--names=a,a"],
    )
    yield from (["report", path, "--out=report.html"] for path in _bad(files))
    for option in ("--format=pdf", "--names=", "--names=a,,b", "--names=a,a", "--out=nowhere/x.html", "--out="):
        yield ["report", files["run"], files["run"], option]


def _convert(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["convert"], ["convert", "nowhere.pth", "out", "--model=fan_nano"])
    yield from (["convert", path, "out", "--model=vit_nano"] for path in _bad(files))
    yield from (["convert", path, "out", "--model=nothing"] for path in (files["noise"], files["pickle.pth"]))
    yield ["convert", files["noise"], files["hollow"], "--model=vit_nano"]


def _lists() -> Iterator[list[str]]:
    yield from (["list", word] for word in ("nothing", "modelss", ""))
    bad = ("--out=", "--quick=3", "--nonsense", "--out=" + "x" * 300, "--task=x", "--task=", "--task")
    yield from (["demo", option] for option in bad)
    yield from (["completion", word] for word in ("cmd", ""))
    yield from (["runs", word] for word in ("nowhere", "x" * 300))


def _gate(files: dict[str, str]) -> Iterator[list[str]]:
    run = files["run"]
    yield from (["gate"], ["gate", run], ["gate", "nowhere", "--against", run], ["gate", run, "--against=nowhere"])
    yield from (["gate", run, f"--against={path}"] for path in _bad(files))
    yield from (["gate", path, f"--against={run}"] for path in _bad(files))
    yield from (["gate", run, f"--against={run}", f"--rules={path}"] for path in _bad(files))
    for option in (
        "--rules=nowhere",
        "--unresolved=maybe",
        "--margin=-1",
        "--margin=.nan",
        "--margin=x",
        "--junit=nowhere/x.xml",
        "--markdown=nowhere/x.md",
        "--save=nowhere/x.json",
        "--junit=",
        "--model=timm:vit_nano",
    ):
        yield ["gate", run, f"--against={run}", option]


def _export(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["export"], ["export", "nowhere"], ["export", "timm:vit_nano"], ["export", "timm:vit_nano", "--out=x"])
    yield from (["export", path, "--out=x.onnx", "--data=digits:test"] for path in _bad(files))
    for option in (
        "--to=tflite",
        "--to=",
        "--out=nowhere/x.onnx",
        "--out=",
        "--data=nowhere:x",
        "--size=0",
        "--size=x",
    ):
        yield ["export", files["run"], "--out=x.onnx", option]
    onnx = ["evaluate", "--data=digits:test", "--out=out", "--workers=0"]
    yield from ([*onnx, f"--model={kind}:{path}"] for kind in ("onnx", "hf") for path in _bad(files))
    yield from ([*onnx, f"--model={model}"] for model in ("onnx:", "onnx:nowhere.onnx", "hf:", "hf:./nowhere"))


def _card(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (["card"], ["card", "nowhere"], ["card", "nowhere", "--name=x"])
    yield from (["card", path, "--out=out"] for path in _bad(files))


def _predict(files: dict[str, str]) -> Iterator[list[str]]:
    yield from (
        ["predict"],
        ["predict", "nowhere.png", f"--model={files['run']}"],
        ["predict", "--model=timm:vit_nano"],
    )
    yield from (["predict", path, f"--model={files['run']}"] for path in _bad(files))
    yield from (["predict", files["photos"], f"--model={path}"] for path in _bad(files))
    for option in ("--top=0", "--top=x", "--format=pdf", "--out=nowhere/x.csv", "--exif=rotate", "--device=meta"):
        yield ["predict", files["photos"], f"--model={files['run']}", option]
    for option in ("--overlays=over", "--film=film.webp", "--fps=0", "--fps=x", "--film=film.gif", "--overlays="):
        yield ["predict", files["photos"], f"--model={files['run']}", option]  # a classifier draws none


def _lab(files: dict[str, str]) -> Iterator[list[str]]:
    run = files["run"]
    yield from (["lab", "nowhere"], ["lab", run, run, run], ["lab", "timm:vit_nano", "--no-browser"])
    yield from (["lab", path, "--data=digits:test", "--no-browser"] for path in _bad(files))
    for option in (
        "--data=nowhere:x",
        "--limit=-1",
        "--seed=x",
        "--port=-1",
        "--port=70000",
        "--port=x",
        "--host=not a host",
        "--device=meta",
        "--corruptor=nowhere",
        f"--corruptor={files['noise']}",
    ):
        yield ["lab", run, "--no-browser", "--port=0", option]


def _own_code(files: dict[str, str]) -> Iterator[list[str]]:
    """Attacks with settings, plug-ins, values by their path, kept examples, chosen checkpoints."""
    known = ["evaluate", files["run"], "--data=digits:test", "--out=out", "--workers=0"]
    for attack in (
        "",
        "pdg:eps=1",
        "pgd:eps",
        "pgd:eps=x",
        "pgd:eps=1/0",
        "pgd:steps=0",
        "pgd:steps=1|",
        "pgd:x=1",
        ":",
    ):
        yield [*known, f"--attack={attack}"]
    for option in ("--keep-examples=-1", "--keep-examples=x", "--checkpoint=worst", "--checkpoint=nowhere"):
        yield [*known, option]
    yield from ([*known, f"--plugin={path}"] for path in ("nowhere.py", files["list.json"], files["nothing"]))
    base = ["train", "digits/vit_nano", *TINY, "--out=run"]
    for option in (
        "--method=",
        "--method=afta",
        "--objective.options.afat.wait=1",
    ):
        yield [*base, option]
    yield [*base, "--objective.options.afat.weight=x"]
    yield ["report", files["run"], "--suite=nothing"]
    yield ["report", files["run"], "--data=nothing"]
    yield ["report", files["run"], "--figures=figures", "--figure-format=gif"]


def _cluster(files: dict[str, str]) -> Iterator[list[str]]:
    """Plans and clusters; no cluster is asked for anything."""
    known = {
        "evaluate": ["evaluate", files["run"], "--data=digits:test", "--out=out", "--workers=0"],
        "corrupt": ["corrupt", files["photos"], "out"],
        "study": ["study", files["good"], "--out=out"],
    }
    for line in known.values():
        for option in (
            "--on=",
            "--on=slurm",
            "--on=ray=",
            "--on=rays",
            "--on=ray=127.0.0.2:9",
            "--cpus-per-task=x",
            "--gpus-per-task=x",
        ):
            yield [*line, option]
        yield from ([*line, "--on=ray", option] for option in ("--cpus-per-task=-1", "--gpus-per-task=-1"))
        yield [*line, "--gather"]
        yield from ([*line, "--dry-run", option] for option in ("--on=slurm", "--nonsense", "--seeds=x", "--limit=-1"))
    yield ["train", "digits/vit_nano", *TINY, "--out=run", "--dry-run", "--train.batch_size=0"]
    yield ["train", "digits/vit_nano", *TINY, "--out=run", "--dry-run", "--model.name=nothing"]


def _listed(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
