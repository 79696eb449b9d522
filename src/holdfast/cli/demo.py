"""``holdfast demo``: what works today, on this machine, without a download."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser
from rich.console import Console

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from holdfast.attention import Seen

MODEL = "fan_tiny_8_p4_hybrid"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``holdfast demo``."""
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures")


def run(arguments: Namespace) -> None:
    """Count the models, run one on a photograph, draw where its blocks look, and corrupt the photograph."""
    import torch
    from sklearn.datasets import load_sample_image
    from timm.data import create_transform, resolve_model_data_config
    from torchvision.transforms.functional import to_pil_image

    from holdfast.attention import watch
    from holdfast.cli.list import models_table
    from holdfast.models import create_model

    console = Console()
    out = _writable_folder(arguments.out)
    console.print("[bold]The models[/bold], counted on this machine, beside the papers' figures")
    console.print(models_table(Namespace(pattern=None, cost=True)))

    torch.manual_seed(0)
    model = create_model(MODEL).eval()
    photograph = load_sample_image("china.jpg")
    transform = create_transform(**resolve_model_data_config(model))
    images = transform(to_pil_image(photograph)).unsqueeze(0)
    with torch.no_grad(), watch(model) as seen:
        logits = model(images)
    attention_figure(photograph, seen).savefig(out / "attention.png", dpi=120)
    corruptions_figure(photograph).savefig(out / "corruptions.png", dpi=120)
    console.print(
        f"\n{MODEL} looked at a photograph: {logits.shape[1]} logits, {len(seen.attention)} attention maps of "
        f"{seen.attention[0].maps().shape[-1]} tokens.\nIts weights are untrained, so the picture shows the machinery, "
        f"not knowledge: [bold]{out / 'attention.png'}[/bold]\n"
        f"The same photograph under the 15 standard corruptions: [bold]{out / 'corruptions.png'}[/bold]"
    )


def attention_figure(photograph: "np.ndarray", seen: "Seen") -> "Figure":
    """The photograph, and where the centre token looks in every block (mean over heads)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.9 * (1 + len(seen.attention)), 2.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(seen.attention))
    axes[0].imshow(photograph)
    axes[0].set_title("photograph", fontsize=9)
    for block, (axis, handle) in enumerate(zip(axes[1:], seen.attention, strict=True)):
        height, width = handle.grid or (1, 1)
        centre = handle.prefix + (height // 2) * width + width // 2
        looked_at = handle.maps()[0, :, centre, handle.prefix :].mean(dim=0).reshape(height, width)
        axis.imshow(looked_at.numpy(), cmap="viridis")
        axis.plot(width // 2, height // 2, "+", color="white")
        axis.set_title(f"block {block}", fontsize=9)
    for axis in axes:
        axis.set_axis_off()
    return figure


def corruptions_figure(photograph: "np.ndarray", severity: int = 3) -> "Figure":
    """The photograph under each of the standard corruptions."""
    from matplotlib.figure import Figure

    from holdfast.corruptions import STANDARD, corrupt, recorded_name

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    for axis, kind in zip(figure.subplots(3, 5).flat, STANDARD, strict=True):
        axis.imshow(corrupt(photograph, kind, severity=severity, preset="any", rng=0))
        axis.set_title(f"{recorded_name(kind).replace('_', ' ')} {severity}", fontsize=9)
        axis.set_axis_off()
    return figure


def _writable_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HoldfastError(f"--out must be a folder we can write to, got {str(path)!r} ({error.strerror})") from error
    return path
