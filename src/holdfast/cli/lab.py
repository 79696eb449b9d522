"""``holdfast lab``: watch one image break through one model or two, on a local page."""

import importlib.util
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.cli.preprocessing_options import add_preprocessing, protocol_of
from holdfast.cli.shared_options import own_data, run_folder, with_checkpoint
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.lab.opened_model import OpenedModel

DEMO = {"fan": "digits/fan_nano", "fan_afat": "digits/fan_nano_afat"}
MOST_SEED = 2**31 - 1
DEMO_DATA, DEMO_IMAGES = "digits:test", 20


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast lab``."""
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="one, or two side by side: a run's folder, timm:NAME[@FILE], local-dir:DIR, python:module:function, "
        "onnx:FILE, hf:DIR, torchvision:NAME[@FILE]",
    )
    parser.add_argument(
        "--data", help="images, such as folder:DIR; `holdfast list data` lists all forms (default: the run's own)"
    )
    parser.add_argument("--checkpoint", help="of runs: best, last or a file of weights (default: what they exported)")
    parser.add_argument("--limit", type=int, help="so many images only, every class in its share; 0 for all")
    parser.add_argument("--seed", type=int, help="of the draws (default: that of the run's records, else 0)")
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
    add_preprocessing(parser)


def run(arguments: Namespace) -> None:
    """Open models and data, then serve until interrupted."""
    check_installed()
    models, data = _requested_models(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that spin would slow the page
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    from holdfast.lab.filmstrip import as_recorded
    from holdfast.lab.server import bound_socket, serve
    from holdfast.lab.session import Session

    bound_socket(arguments.host, arguments.port).close()  # told before models are trained or loaded
    if arguments.demo:
        _train(dict(zip(models, DEMO.values(), strict=True)), console)
    console.print(f"opening {' and '.join(models)} on {data}", markup=False)
    chooser = arguments.corruptor or next(filter(Path.is_file, map(_own_corruptor, models)), None)
    protocol = protocol_of(arguments)
    options = {"limit": arguments.limit or None, "device": arguments.device, "corruptor": chooser, "protocol": protocol}
    lenses = _open_models(models, data, seed=arguments.seed or 0, **options)
    serve(
        Session(lenses if arguments.seed is not None else as_recorded(lenses)),
        host=arguments.host,
        port=arguments.port,
        browser=not arguments.no_browser,
        say=lambda sentence: console.print(sentence, markup=False),
    )


def _open_models(models: list[str], data: str, **options: Any) -> "list[OpenedModel]":
    """All models on the same data; of two, a sentence says which does not fit."""
    from holdfast.lab.opened_model import open_model

    lenses: list[OpenedModel] = []
    for model in models:
        try:
            lenses.append(open_model(model, lenses[0].data if lenses else data, **options))
        except HoldfastError as error:
            if len(models) == 1:
                raise
            raise HoldfastError(f"{model}: {error}") from error
    return lenses


def _own_corruptor(model: str) -> Path:
    return (run_folder(model) or Path(model)) / "corruptor.safetensors"


def check_installed() -> None:
    """One sentence if the extra is not there."""
    if missing := [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]:
        raise HoldfastError(
            f"holdfast lab needs {' and '.join(missing)}, not installed here; run: pip install 'holdfast-vision[lab]'"
        )


def _requested_models(arguments: Namespace) -> tuple[list[str], str]:
    """Models and data by name; those of the demo may not be there yet."""
    if arguments.seed is not None and not 0 <= arguments.seed <= MOST_SEED:
        raise HoldfastError(f"--seed must lie in 0…{MOST_SEED}, got {arguments.seed}")
    if arguments.demo:
        if arguments.models or arguments.data:
            raise HoldfastError("--demo brings its own models and data; leave MODEL and --data away")
        return [str((arguments.out or Path("demo-lab")) / name) for name in DEMO], DEMO_DATA
    if not 1 <= len(arguments.models) <= 2:
        raise HoldfastError(f"holdfast lab needs one model or two, or --demo, got {len(arguments.models)} models")
    models = [with_checkpoint(model, arguments.checkpoint) for model in arguments.models]
    return models, arguments.data or own_data(models[0], command="lab")


def _train(recipes: dict[str, str], console: Console) -> None:
    """The demo's small models, as far as they are not trained yet."""
    from holdfast.cli.demo import train_one
    from holdfast.cli.demo_settings import Effort
    from holdfast.evaluation.evaluate import evaluate

    effort = Effort("digits:train[0:512]", "digits:val[0:60]", epochs=3)
    for number, (folder, recipe) in enumerate(recipes.items(), start=1):
        console.print(f"{number}/{len(recipes)} {folder}", markup=False)
        if stopped := train_one(recipe, Path(folder), effort, console):
            raise HoldfastError(f"the demo was stopped by signal {stopped}; the same command goes on")
        console.print(f"  measuring it on {DEMO_IMAGES} images under all corruptions, to know which answers flip")
        evaluate(folder, DEMO_DATA, "clean,corruptions", limit=DEMO_IMAGES)
