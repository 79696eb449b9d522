"""Occlusion sensitivity: predictions and attention under many random occlusions of patches.

AFAT, Fig. 1 (100 masks), 3 and 8 (1000 masks): a random tenth of the patches, covered with noise.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.analysis.attention_stability import image_scores, layer_cosines
from holdfast.analysis.base import Analysis, FigureSpec, Found, Numbers, Page, Results, StudyColumn, Tick
from holdfast.analysis.layer_info import aside, describe_layers, label_of
from holdfast.analysis.results import AnalysisResult
from holdfast.analysis.settings import RATIO, Setting, Settings, at_least
from holdfast.plotting.curves import BOXES, grouped_boxes, histograms
from holdfast.plotting.style import check_some, colour, grid_of, legend, new_figure, note, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from holdfast.analysis.probe import Probe
    from holdfast.attention import AttentionHandle

SHOWN = 4  # images with a histogram of their own
MASKS = Setting("masks", 100, "random occlusion masks per image", int, at_least(1))
IMAGES = Setting(
    "occlusion_images", 64, "number of images to occlude with these masks", int, at_least(1), option="--mask-images"
)
PATCH_SIZE = Setting(
    "patch_size", None, "side of an occluded patch (default: the model's token, else what fits the image)", int
)


def run(subject: "Probe", settings: Settings, tick: Tick) -> Found:
    """Each image under many random masks: one stability score and one prediction per mask.

    Arrays: ``scores`` and ``right`` (images, masks), ``right_clean`` (images,). Without readable attention scores are
    NaN, and only the accuracies are measured.
    """
    from holdfast.attacks.occlusion import Occlusion, occlude_images

    side = default_patch(subject) if settings.patch_size is None else settings.patch_size
    attack = Occlusion(settings.ratio, side, settings.masks)
    parts: dict[str, list[np.ndarray]] = {"scores": [], "right": [], "right_clean": []}
    layers: list[dict[str, Any]] = []
    for batch in subject.batches(subject.some(settings.occlusion_images)):
        pixels = subject.clean(batch)
        logits, clean = _maybe_look(subject, pixels)
        layers = describe_layers(clean)
        parts["right_clean"].append(batch.right(logits))
        scores, right = [], []
        for covered in occlude_images(attack, subject.model, pixels, seed=subject.seed, names=list(batch.ids)):
            logits, corrupted = _maybe_look(subject, covered)
            scores.append(_scores(clean, corrupted, images=len(pixels)))
            right.append(batch.right(logits))
            tick(len(batch.ids))
        parts["scores"].append(np.stack(scores, axis=1))
        parts["right"].append(np.stack(right, axis=1))
    facts = {"ratio": settings.ratio, "patch_size": attack.patch_size, "fill": attack.fill, "masks": settings.masks}
    return {**facts, "layers": layers}, {name: np.concatenate(rows) for name, rows in parts.items()}


def default_patch(subject: "Probe") -> int:
    """The model's token size if it has one, else a size that fits the image."""
    from holdfast.attacks.patch_selection import fitting_patch

    return subject.token_size or fitting_patch(subject.steps.fixed_size)


def headline(result: AnalysisResult) -> Numbers:
    """Attention and accuracy under occlusion, and the accuracy of the worst mask."""
    of_masks = 100 * result.arrays["right"].mean(axis=0, dtype=np.float64)
    known = {f"stability{aside(result)}, occluded": float(result.arrays["scores"].mean())}
    if result.header.get("answers", True):
        known |= {"occluded accuracy, %": float(of_masks.mean()), "… lowest mask, %": float(of_masks.min())}
    return known


def per_image(result: AnalysisResult) -> np.ndarray:
    """The mean over the masks."""
    return np.nanmean(result.arrays["scores"], axis=1)


def spread_figure(results: Results) -> "Figure":
    """Accuracy over masks (AFAT, Fig. 1, right), and the attention's cosines over masks and images (Fig. 3, right)."""
    header = check_some(results, "occlusion result")[0].header
    figure = new_figure(max(6.4, 4 + 0.6 * len(results)), 3.6)
    left, right = grid_of(figure, 1, 2)[0]
    labels = [label_of(result) for result in results]
    accuracy = [percent_right(result, "right") for result in results]
    grouped_boxes(left, {"": accuracy}, labels)
    for number, result in enumerate(results):
        clean = percent_right(result, "right_clean")
        left.plot(number, clean, "*", color=colour(number), markersize=9, markeredgecolor="black", markeredgewidth=0.5)
    title = f"{header['masks']} masks, {100 * header['ratio']:g} % of the patches of {header['patch_size']} px"
    tidy(left, ylabel="accuracy in % (star: not occluded)", title=title)
    left.set_xticks(range(len(labels)), labels, rotation=20, ha="right")
    histograms(right, [result.arrays["scores"].ravel() for result in results], labels)
    tidy(right, xlabel="cosine of attention", ylabel="% of images × masks")
    legend(right, loc="upper left")
    note(figure, f"left, over the masks: {BOXES}; right: one score per image and mask")
    return figure


def images_figure(results: Results) -> "Figure":
    """The attention's cosines over the masks of single images (AFAT, Fig. 3 and 8, last column)."""
    count = min(SHOWN, *(len(result.arrays["scores"]) for result in check_some(results, "occlusion result")))
    figure = new_figure(2.6 * count + 0.6, 2.8)
    axes = grid_of(figure, 1, count, sharey=True)[0]
    labels = [label_of(result) for result in results]
    for number, axis in enumerate(axes):
        histograms(axis, [result.arrays["scores"][number] for result in results], labels)
        tidy(axis, xlabel="cosine of attention", ylabel="% of masks" if not number else "", title=f"image {number + 1}")
    legend(axes[0], loc="upper left")
    note(figure, f"one score per mask; {results[0].header['masks']} masks of each image")
    return figure


def percent_right(result: AnalysisResult, name: str) -> np.ndarray:
    """Accuracy over the images; NaN if the model's classes are not those of the data."""
    share = 100 * result.arrays[name].mean(axis=0, dtype=np.float64)
    return share if result.header.get("answers", True) else share * np.nan


def pages(results: Results) -> Iterator[Page]:
    """A figure of all images together, and of a few images one by one."""
    yield "occlusion-spread", lambda: spread_figure(results)
    if all(np.isfinite(result.arrays["scores"]).any() for result in results):
        yield "occlusion-images", lambda: images_figure(results)


def _maybe_look(subject: "Probe", pixels: "Tensor") -> "tuple[Tensor, list[AttentionHandle]]":
    return subject.look(pixels) if subject.has_attention else (subject.model(pixels), [])


def _scores(clean: "list[AttentionHandle]", corrupted: "list[AttentionHandle]", *, images: int) -> np.ndarray:
    if not clean:
        return np.full(images, np.nan, dtype=np.float32)
    return image_scores([layer.flattened for layer in layer_cosines(clean, corrupted)]).cpu().numpy()


ANALYSIS = Analysis(
    "occlusion",
    "attention and accuracy under many random occlusions of patches",
    run,
    settings=(MASKS, RATIO, PATCH_SIZE, IMAGES),
    ticks=lambda images, settings: settings.masks * min(images, settings.occlusion_images),
    headline=headline,
    pages=pages,
    shown=FigureSpec(
        "Random patches hidden",
        "Accuracy and attention over random masks. Boxes are quartiles, whiskers the 5th and 95th percentile of the "
        "masks.",
        spread_figure,
        panels=True,
    ),
    columns=(
        StudyColumn(
            "stability_occluded",
            "st. occl.",
            per_image,
            "higher",
            "the same with a random tenth of the patches covered (AFAT, Figure 4)",
        ),
    ),
    alike=lambda result: result.header.get("patch_size"),
    definition=2,  # until 2, a patch was 16 pixels or an eighth of the image, whatever the model's token
)
