"""``holdfast lab``: corrupt, occlude or attack one image in the browser and watch one or two models react."""

import importlib.util
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.console import message_console
from holdfast.cli.demo import train_one
from holdfast.cli.demo_settings import Effort
from holdfast.cli.shared_options import (
    add_classes,
    add_preprocessing,
    own_data,
    protocol_of,
    run_folder,
    with_checkpoint,
)
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.lab.opened_model import OpenedModel

DEMO = {"fan": "digits/fan_nano", "fan_afat": "digits/fan_nano_afat"}
MAX_SEED = 2**31 - 1
DEMO_DATA, DEMO_IMAGES = "digits:test", 20


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast lab``."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="one model, or two side by side (default: a small one that ships with Holdfast): "
        "a run's folder, timm:NAME[@FILE], local-dir:DIR, python:module:function, "
        "onnx:FILE, hf:DIR, torchvision:NAME[@FILE]",
    )
    parser.add_argument(
        "--data", help="images, such as folder:DIR; `holdfast list data` lists all forms (default: the run's own)"
    )
    parser.add_argument("--checkpoint", help="of runs: best, last or a weight file (default: the exported weights)")
    parser.add_argument("--limit", type=int, help="number of images, stratified by class; 0 for all")
    parser.add_argument("--seed", type=int, help="random seed (default: that of the run's records, else 0)")
    parser.add_argument("--corruptor", type=Path, help="a corruption model's file (default: the run's own, if any)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 …")
    parser.add_argument("--port", type=int, default=8420, help="port to listen on; 0 picks a free one")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; with any other than the default, other machines can connect",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument("--demo", action="store_true", help="train two small models on digits first, in about a minute")
    parser.add_argument("--out", type=Path, help="folder for the demo's runs (default: demo-lab)")
    add_classes(parser)
    add_preprocessing(parser)


def run(arguments: Namespace) -> None:
    """Open models and data, then serve until interrupted."""
    check_installed()
    models, data = _requested_models(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that spin would slow the page
    console = message_console(stderr=True)
    from holdfast.lab.filmstrip import as_recorded
    from holdfast.lab.server import bound_socket, serve
    from holdfast.lab.session import Session

    bound_socket(
        arguments.host, arguments.port
    ).close()  # fail early: a port in use is reported before models are trained or loaded
    if arguments.demo:
        _train(dict(zip(models, DEMO.values(), strict=True)), console)
    shown = ["a FAN-nano that ships with Holdfast"] if not arguments.models and not arguments.demo else models
    console.print(f"opening {' and '.join(shown)} on {data}", markup=False)
    chooser = arguments.corruptor or next(filter(Path.is_file, map(_own_corruptor, models)), None)
    protocol = protocol_of(arguments)
    options = {"limit": arguments.limit or None, "device": arguments.device, "corruptor": chooser, "protocol": protocol}
    opened = _open_models(models, data, seed=arguments.seed or 0, **options)
    serve(
        Session(opened if arguments.seed is not None else as_recorded(opened)),
        host=arguments.host,
        port=arguments.port,
        browser=not arguments.no_browser,
        say=lambda sentence: console.print(sentence, markup=False),
    )


def _open_models(models: list[str], data: str, **options: Any) -> "list[OpenedModel]":
    """Open all models on the same data; with two models, an error names the one that failed."""
    from holdfast.lab.opened_model import open_model

    opened: list[OpenedModel] = []
    for model in models:
        try:
            opened.append(open_model(model, opened[0].data if opened else data, **options))
        except HoldfastError as error:
            if len(models) == 1:
                raise
            raise HoldfastError(f"{model}: {error}") from error
    return opened


def _own_corruptor(model: str) -> Path:
    return (run_folder(model) or Path(model)) / "corruptor.safetensors"


def check_installed() -> None:
    """Raise an error if the extra ``lab`` is not installed."""
    if missing := [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]:
        raise HoldfastError(f"holdfast lab needs {' and '.join(missing)}; run: pip install starlette uvicorn")


def _requested_models(arguments: Namespace) -> tuple[list[str], str]:
    """Names of models and data; the demo's models may not exist yet."""
    if arguments.seed is not None and not 0 <= arguments.seed <= MAX_SEED:
        raise HoldfastError(f"--seed must lie in 0…{MAX_SEED}, got {arguments.seed}")
    if arguments.demo:
        if arguments.models or arguments.data:
            raise HoldfastError("--demo brings its own models and data; omit MODEL and --data")
        return [str((arguments.out or Path("demo-lab")) / name) for name in DEMO], DEMO_DATA
    if not arguments.models:
        from holdfast.lab.shipped import SHIPPED, SHIPPED_DATA

        return [f"run:{SHIPPED}"], arguments.data or SHIPPED_DATA
    if len(arguments.models) > 2:
        raise HoldfastError(f"holdfast lab needs one model or two, got {len(arguments.models)} models")
    models = [with_checkpoint(model, arguments.checkpoint) for model in arguments.models]
    return models, arguments.data or own_data(models[0], command="lab")


def _train(recipes: dict[str, str], console: Console) -> None:
    """Train and evaluate the demo's small models, unless they are finished."""
    from holdfast.evaluation.evaluate import evaluate

    effort = Effort("digits:train[0:512]", "digits:val[0:60]", epochs=3)
    for number, (folder, recipe) in enumerate(recipes.items(), start=1):
        console.print(f"{number}/{len(recipes)} {folder}", markup=False)
        if stopped := train_one(recipe, Path(folder), effort, console):
            raise HoldfastError(f"the demo was stopped by signal {stopped}; run the same command again to resume")
        console.print(f"  evaluating it on {DEMO_IMAGES} images under all corruptions, to find predictions that flip")
        evaluate(folder, DEMO_DATA, "clean,corruptions", limit=DEMO_IMAGES)
