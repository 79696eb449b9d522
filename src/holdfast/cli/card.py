"""``holdfast card``: what a run's records say, as a model card for the Hub."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast card``."""
    parser.add_argument("run", help="a run's folder, or a folder with records")
    parser.add_argument("--out", type=Path, help="the folder that gets README.md and two figures (default: the run's)")
    parser.add_argument("--name", help="what the card calls the model (default: the folder's name)")
    parser.add_argument("--license", help="as the Hub spells it, such as apache-2.0 (default: none)")


def run(arguments: Namespace) -> None:
    """Write the card and say how to upload it."""
    from holdfast.reporting.model_card import write_card

    path, upload = write_card(arguments.run, arguments.out, name=arguments.name, license=arguments.license)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"written: {path}", markup=False)
    console.print(f"upload it with: {upload}", markup=False)
