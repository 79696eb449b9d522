"""``holdfast lab``: watch one image break through one model or two, on a local page."""

import importlib.util
import os
from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.run_folders import own_data, run_folder
from holdfast.errors import HoldfastError

DEMO = {"fan": "digits/fan_nano", "fan_afat": "digits/fan_nano_afat"}
DEMO_DATA = "digits:test"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast lab``."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="one or two: a run's folder, timm:NAME[@FILE], local-dir:DIR, python:module:function",
    )
    parser.add_argument("--data", help="such as folder:DIR (default: what the run was validated on)")
    parser.add_argument("--limit", type=int, help="so many images only, every class in its share")
    parser.add_argument("--seed", type=int, default=0, help="of the draws; 0 draws as records do")
    parser.add_argument(
        "--corruptor", type=Path, help="a corruption model's file (default: that of a run that has one)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--port", type=int, default=8420, help="0 takes any that is free")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; others than this machine may ask then"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument("--demo", action="store_true", help="train two small models on digits first, in about a minute")
    parser.add_argument("--out", type=Path, help="folder of the demo's runs (default: demo-lab)")


def run(arguments: Namespace) -> None:
    """Open models and data, then serve until interrupted."""
    check_installed()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that spin would slow the page
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    models, data = _demo(arguments, console) if arguments.demo else _asked(arguments)
    from holdfast.lab.desk import Desk
    from holdfast.lab.lens import open_lens
    from holdfast.lab.server import bound_socket, serve

    bound_socket(arguments.host, arguments.port).close()  # a port that is taken is told before models are loaded
    console.print(f"opening {' and '.join(models)} on {data}", markup=False)
    chooser = arguments.corruptor or next(filter(Path.is_file, map(_own_corruptor, models)), None)
    options = {"seed": arguments.seed, "device": arguments.device, "corruptor": chooser}
    first = open_lens(models[0], data, limit=arguments.limit, **options)
    lenses = [first, *(open_lens(model, first.data, **options) for model in models[1:])]
    serve(
        Desk(lenses),
        host=arguments.host,
        port=arguments.port,
        browser=not arguments.no_browser,
        say=lambda sentence: console.print(sentence, markup=False),
    )


def _own_corruptor(model: str) -> Path:
    return (run_folder(model) or Path(model)) / "corruptor.safetensors"


def check_installed() -> None:
    """One sentence if the extra is not there."""
    if missing := [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]:
        raise HoldfastError(
            f"holdfast lab needs {' and '.join(missing)}, not installed here; run: pip install 'holdfast-vision[lab]'"
        )


def _asked(arguments: Namespace) -> tuple[list[str], str]:
    if not 1 <= len(arguments.models) <= 2:
        raise HoldfastError(f"holdfast lab needs one model or two, or --demo, got {len(arguments.models)} models")
    return list(arguments.models), arguments.data or own_data(arguments.models[0], command="lab")


def _demo(arguments: Namespace, console: Console) -> tuple[list[str], str]:
    """Two small models, trained as far as they are not yet."""
    if arguments.models or arguments.data:
        raise HoldfastError("--demo brings its own models and data; leave MODEL and --data away")
    from holdfast.cli.demo import train_one
    from holdfast.cli.demos import Effort
    from holdfast.evaluation.evaluate import evaluate

    out, effort = arguments.out or Path("demo-lab"), Effort("digits:train[0:512]", "digits:val[0:60]", epochs=3)
    for name, recipe in DEMO.items():
        console.print(f"{name}: {recipe}")
        if stopped := train_one(recipe, out / name, effort, console):
            raise HoldfastError(f"the demo was stopped by signal {stopped}; the same command goes on")
        evaluate(out / name, DEMO_DATA, "clean,corruptions", limit=20)
    return [str(out / name) for name in DEMO], DEMO_DATA
