"""Figures come from stored results alone, show their numbers, and leave pyplot's state untouched."""

import sys

import numpy as np
import pytest
import timm
import torch
from matplotlib.figure import Figure

import holdfast
from holdfast.analysis import attention_maps, attention_stability, corruption_model, overfocus, token_grouping
from holdfast.analysis.analyze import analyze
from holdfast.analysis.figure_groups import figure_pages
from holdfast.analysis.results import AnalysisResult, load_results, save_result
from holdfast.errors import HoldfastError
from holdfast.models.corruption_model import Corruptor, save_corruptor
from holdfast.plotting.style import save_png
from tests.analysis.conftest import QUICK, sharpened


@pytest.fixture(scope="module")
def runs(digits, tmp_path_factory):
    """Three models' stored results: FAN with TAP, ViT, TORA."""
    out = tmp_path_factory.mktemp("runs")
    torch.manual_seed(2)
    save_corruptor(Corruptor((8, 8), patch_size=4), out / "c.safetensors")
    models = {
        "fan": sharpened(timm.create_model("fan_nano", num_classes=10, tap="tap")),
        "vit": sharpened(timm.create_model("vit_nano", num_classes=10)),
        "tora": holdfast.tora(timm.create_model("vit_nano", num_classes=10)).eval(),
    }
    for name, model in models.items():
        analyze(
            model, digits, settings=QUICK, out=out / name, label=name, corruptor=out / "c.safetensors", batch_size=12
        )
    return {name: load_results(out / name) for name in models}


def of(results, kind):
    return next(result for result in results if result.kind == kind)


def texts(figure: Figure) -> str:
    found = [
        text.get_text()
        for axis in figure.axes
        for text in (axis.title, axis.xaxis.label, axis.yaxis.label, *axis.texts)
    ]
    return "\n".join([*found, *(text.get_text() for text in figure.texts)])


def test_an_album_of_one_model_has_every_picture(runs, tmp_path):
    pages = {name: draw() for name, draw in figure_pages(runs["fan"])}
    assert set(pages) == {
        *(
            "stability-histogram",
            "stability-pooled",
            "stability-layers",
            "stability-boxes",
            "stability-heads",
            "occlusion-spread",
            "occlusion-images",
        ),
        *("overfocus-layers", "diversity-layers", "noise-decay", "noise-decay-eigenvalues"),
        *("groups-1", "groups-2", "maps-1", "maps-2", "query-1", "query-2", "maps-heads", "maps-layers"),
        *("patches", "dilation-1", "dilation-2"),
    }
    assert all(isinstance(figure, Figure) for figure in pages.values())
    path = save_png(pages["dilation-1"], tmp_path / "new" / "dilation.png", dpi=50)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [file.name for file in path.parent.iterdir()] == ["dilation.png"]


def test_an_album_of_several_models_compares_them(runs):
    everything = [result for results in runs.values() for result in results]
    names = {name for name, _ in figure_pages(everything)}
    assert {"stability-boxes", "occlusion-spread", "maps-1", "query-1", "patches", "noise-decay"} <= names
    assert not any(name.startswith(("groups", "dilation", "gates")) for name in names)
    figure = dict(figure_pages(everything))["query-1"]()
    assert len(figure.axes) == 6 * 6 + 1  # three models, clean and corrupted; the image and five layers; a colour bar
    assert "vit\ngaussian noise 5" in texts(figure)
    assert "gates-1" in {name for name, _ in figure_pages(runs["tora"])}


def test_figures_do_not_touch_pyplot(runs):
    modules = set(sys.modules)
    attention_stability.histogram([of(runs["fan"], "stability")], "fog/3")
    assert "matplotlib.pyplot" not in set(sys.modules) - modules


def test_the_histogram_shows_the_images_scores(runs):
    result = of(runs["fan"], "stability")
    figure = attention_stability.histogram([result], "gaussian_noise/5")
    heights = [patch.get_height() for patch in figure.axes[0].containers[0]]
    assert sum(heights) == pytest.approx(100)
    scores = attention_stability.scores(result, "gaussian_noise/5")
    assert scores == pytest.approx(result.arrays["flattened"][0].mean(axis=(1, 2)))
    assert attention_stability.scores(result, "fog/3", rows=True) == pytest.approx(
        result.arrays["row_wise"][1].mean((1, 2))
    )
    with pytest.raises(HoldfastError, match="cell must be one of gaussian_noise/5, fog/3, got 'fogg/3'"):
        attention_stability.histogram([result], "fogg/3")


def test_layers_are_drawn_as_means_over_images(runs):
    result = of(runs["vit"], "overfocus")
    figure = overfocus.layers_figure([result])
    line = figure.axes[0].lines[0]
    assert line.get_ydata() == pytest.approx(result.arrays["effective_tokens"].mean(axis=(0, 2)), rel=1e-5)
    assert line.get_xdata().tolist() == list(range(1, 9))


def test_layers_with_fewer_heads_do_not_count_as_zero():
    arrays = {"flattened": np.full((1, 2, 2, 4), 0.5, np.float32), "row_wise": np.ones((1, 2, 2, 4), np.float32)}
    arrays["flattened"][:, :, 0, 2:] = np.nan
    arrays["flattened"][:, :, 1] = 1
    result = AnalysisResult("stability", {"cells": ["fog/3"], "label": "x"}, arrays)
    assert attention_stability.scores(result, "fog/3") == pytest.approx([5 / 6, 5 / 6])  # two heads of 0.5, four of 1
    assert isinstance(attention_stability.heads_figure(result, "fog/3"), Figure)


def test_retention_is_corrupted_by_clean_accuracy_and_only_where_answers_count():
    right = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=bool)
    result = AnalysisResult("stability", {"answers": True, "cost": {"gmacs": 2.0}, "label": "a"}, {"right": right})
    assert attention_stability.retention(result).value == pytest.approx(100 * (3 / 8) / (3 / 4))
    stranger = AnalysisResult("stability", {**result.header, "answers": False}, result.arrays)
    assert [attention_stability.has_counts(each) for each in (result, stranger)] == [True, False]


def test_patches_of_different_images_are_not_shown_together(runs):
    first, second = of(runs["fan"], "patches"), of(runs["vit"], "patches")
    assert isinstance(corruption_model.patches_figure([first, second]), Figure)
    other = AnalysisResult("patches", second.header, {**second.arrays, "occluded": second.arrays["occluded"][::-1]})
    with pytest.raises(HoldfastError, match="same occluded images"):
        corruption_model.patches_figure([first, other])


def test_window_and_channel_maps_are_labelled(digits):
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(1,), num_heads=(3,), num_classes=10)
    (window,) = analyze(swin, digits, "maps", settings=QUICK, size=56).results.values()
    assert "(one window)" in texts(attention_maps.mean_maps([window]))
    assert "(one window)" in texts(attention_maps.query_overlays([window]))
    xcit = timm.create_model("xcit_nano_12_p16_224", img_size=32, depth=1, num_classes=10)
    (channel,) = analyze(xcit, digits, "maps", settings=QUICK, size=32).results.values()
    assert "(channels)" in texts(attention_maps.mean_maps([channel]))
    assert not any(name.startswith("query") for name, _ in figure_pages([channel]))


def test_models_of_different_token_grids_stand_side_by_side(runs, digits):
    coarse = timm.create_model("vit_nano", img_size=32, patch_size=8, num_classes=10)
    result = analyze(coarse, digits, "maps", settings=QUICK, label="coarse").results["maps"]
    assert result.arrays["query/clean/0"].shape[1:] == (4, 4)
    both = [of(runs["fan"], "maps"), result]
    assert isinstance(attention_maps.query_overlays(both), Figure)
    assert isinstance(attention_maps.mean_maps(both), Figure)


def test_bad_requests_get_one_sentence(runs, tmp_path):
    with pytest.raises(HoldfastError, match="image must lie in 0…1 for this result of 2 images, got 7"):
        token_grouping.groups_figure(of(runs["fan"], "grouping"), image=7)
    with pytest.raises(HoldfastError, match="a figure needs at least one stability result, got none"):
        attention_stability.boxes([])
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="figures must go to a writable folder"):
        save_png(Figure(), tmp_path / "file" / "x.png")
    with pytest.raises(HoldfastError, match="out must be a folder we can write to"):
        save_result(tmp_path / "file" / "x", of(runs["fan"], "diversity"))
