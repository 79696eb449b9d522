"""``holdfast card``: write a model card for the Hugging Face Hub from a run's records."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli.console import message_console


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast card``."""
    parser.add_argument("run", help="a run's folder, or a folder with records")
    parser.add_argument("--out", type=Path, help="folder for README.md and two figures (default: the run's)")
    parser.add_argument("--name", help="the model's name in the card (default: the folder's name)")
    parser.add_argument("--license", help="licence identifier of the Hub, such as apache-2.0 (default: none)")


def run(arguments: Namespace) -> None:
    """Write the card and print the command that uploads it."""
    from holdfast.reporting.model_card import write_card

    path, upload = write_card(arguments.run, arguments.out, name=arguments.name, license=arguments.license)
    console = message_console()
    console.print(f"written: {path}", markup=False)
    console.print(f"upload it with: {upload}", markup=False, soft_wrap=True)  # to be copied in one piece
