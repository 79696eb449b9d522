"""Makes docs/images/analysis/*.png from stored results.

Run ``python docs/tools/make_analysis_gallery.py RUN RUN … [--out DIR]``.

The runs are those that docs/gallery.md names, analysed with the commands it gives. No model is needed.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from holdfast.analysis import (
    attention_maps,
    attention_stability,
    corruption_model,
    head_diversity,
    noise_decay,
    occlusion_sensitivity,
    overfocus,
    tap_dilation,
    token_grouping,
    tora_gates,
)
from holdfast.analysis.results import AnalysisResult, load_results
from holdfast.plotting.style import save_png

TARGET = Path(__file__).parents[1] / "images" / "analysis"
CELL = "gaussian_noise/5"
BASE, TAP, AFAT = "fan_nano", "fan_nano_tap_adl", "fan_nano_afat"


def main() -> None:
    """Draw the gallery's figures and say how large they are; nothing is written unless all can be drawn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    results = [result for run in arguments.runs for result in load_results(run)]

    def of(kind: str, *labels: str) -> list[AnalysisResult]:
        found = [result for result in results if result.kind == kind]
        chosen = [result for label in labels for result in found if result.label == label] if labels else found
        if len(chosen) < max(1, len(labels)):
            parser.error(f"{kind} of {', '.join(labels) or 'any run'} is missing; docs/gallery.md has the commands")
        return chosen

    three = (BASE, TAP, AFAT)
    four = (*three, "rvt_nano")
    figures: dict[str, Callable[[], Figure]] = {
        "stability-histogram": lambda: attention_stability.histogram(of("stability", *three), CELL),
        "stability-pooled": lambda: attention_stability.pooled_histogram(of("stability", *three), CELL),
        "stability-boxes": lambda: attention_stability.boxes(of("stability", *four)),
        "stability-layers": lambda: attention_stability.layers_figure(of("stability", *four), CELL),
        "stability-heads": lambda: attention_stability.heads_figure(of("stability", BASE)[0], CELL),
        "retention-cost": lambda: attention_stability.retention_cost(of("stability", *four)),
        "occlusion-spread": lambda: occlusion_sensitivity.spread_figure(of("occlusion", *three)),
        "overfocus-layers": lambda: overfocus.layers_figure(of("overfocus", *four)),
        "diversity-layers": lambda: head_diversity.layers_figure(of("diversity", *four)),
        "noise-decay": lambda: noise_decay.depth_figure(of("noise-decay", BASE, "vit_nano_p8")),
        "noise-decay-eigenvalues": lambda: noise_decay.decay_and_eigenvalues(of("noise-decay", BASE)[0]),
        "groups": lambda: token_grouping.groups_figure(of("grouping", BASE)[0], image=1),
        "maps": lambda: attention_maps.mean_maps(of("maps", *three)),
        "maps-heads": lambda: attention_maps.head_grid(of("maps", BASE)[0]),
        "maps-layers": lambda: attention_maps.layer_grid(of("maps", BASE)[0]),
        "query": lambda: attention_maps.query_overlays(of("maps", *three), image=1),
        "patches": lambda: corruption_model.patches_figure(of("patches", *three)),
        "dilation": lambda: tap_dilation.dilation_figure(of("dilation", TAP)[0]),
        "gates": lambda: tora_gates.gates_figure(of("gates")[0]),
    }
    drawn = {name: draw() for name, draw in figures.items()}
    for name, figure in drawn.items():
        path = save_png(figure, arguments.out / f"{name}.png", dpi=100)
        Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    sizes = {path.name: path.stat().st_size for path in sorted(arguments.out.glob("*.png"))}
    print(
        f"{len(sizes)} figures, largest {max(sizes.values()) / 1e3:.0f} kB, {sum(sizes.values()) / 1e6:.2f} MB in all"
    )


if __name__ == "__main__":
    main()
