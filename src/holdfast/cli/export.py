"""``holdfast export``: write a model as ONNX or .pt2, checked against PyTorch on real images."""

from argparse import Namespace
from pathlib import Path

from jsonargparse import ArgumentParser

from holdfast.cli.console import message_console
from holdfast.cli.shared_options import add_preprocessing, own_data, protocol_of, run_folder
from holdfast.errors import HoldfastError


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast export``."""
    parser.add_argument("model", help="a run's folder, or any model as in `holdfast evaluate --model`")
    parser.add_argument("--to", default="onnx", help="onnx, which `holdfast evaluate` reads, or pt2")
    parser.add_argument("--out", type=Path, help="the file to write (default: model.onnx in the run's folder)")
    parser.add_argument("--data", help="images on which the file is checked (default: the run's own)")
    add_preprocessing(parser)


def run(arguments: Namespace) -> None:
    """Export the model and print the file and its largest difference from PyTorch."""
    from holdfast.inference.export import FORMATS, export

    folder = run_folder(arguments.model)
    suffix = FORMATS.get(arguments.to, "")
    if arguments.out is None and folder is None:
        raise HoldfastError(f"holdfast export needs --out FILE for {arguments.model!r}, which is not a run")
    out = arguments.out if arguments.out is not None else folder / f"model{suffix}"
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise HoldfastError(f"--out must be a file in an existing folder, got {str(out)!r}")
    data = arguments.data or own_data(arguments.model, command="export")
    difference = export(arguments.model, out, data, to=arguments.to, protocol=protocol_of(arguments))
    console = message_console()
    size = out.stat().st_size / 1e6
    console.print(f"written: {out}, {size:.1f} MB; logits differ by at most {difference:.1g}", markup=False)
    if arguments.to == "onnx":
        command = f"holdfast evaluate --model onnx:{out} --data {data}"
        console.print(f"evaluate it with:\n  {command}", markup=False, soft_wrap=True)  # to be copied in one piece
