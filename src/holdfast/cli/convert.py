"""``holdfast convert``: turn a published checkpoint into a folder that timm loads."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli.console import message_console


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast convert``."""
    parser.add_argument("file", type=Path, help="checkpoint file: .pth, .pth.tar or .safetensors")
    parser.add_argument("out", type=Path, help="new folder for model.safetensors and config.json")
    parser.add_argument("--model", required=True, help="architecture of the checkpoint, such as fan_base_16_p4_hybrid")
    weights = parser.add_mutually_exclusive_group()
    weights.add_argument("--ema", action="store_true", help="require the averaged (EMA) weights")
    weights.add_argument("--no-ema", action="store_true", help="use the plain weights even if there are averaged ones")


def run(arguments: Namespace) -> None:
    """Convert the checkpoint and print how to load the result."""
    from holdfast.models.checkpoints import convert_checkpoint

    ema = True if arguments.ema else False if arguments.no_ema else None
    model = convert_checkpoint(arguments.file, arguments.out, model=arguments.model, ema=ema)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    console = message_console()
    console.print(f"{arguments.model}: {parameters:,} parameters, {model.num_classes} classes → {arguments.out}")
    console.print(f'load it with: timm.create_model("local-dir:{arguments.out}", pretrained=True)', soft_wrap=True)
