"""Foreign models are read right or refused, and unlike results are never in one figure."""

import numpy as np
import pytest
import timm
import torch

from holdfast.analysis import attention_stability, overfocus
from holdfast.analysis.analyze import analyze
from holdfast.analysis.figure_groups import figure_pages, group_alike
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import AnalysisResult, save_result
from holdfast.analysis.settings import Settings
from holdfast.analysis.token_features import default_modules, find_grid, known_layouts, layouts, outputs_of
from holdfast.attention import watch
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from tests.analysis.test_analyze import photographs
from tests.analysis.test_figure_groups import texts

# ---------------------------------------------------------------------------------- 1: which axis are channels

CHANNELS_LAST = {
    "swinv2_tiny_window8_256": {"img_size": 64, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)},
    "swinv2_cr_tiny_ns_224": {"img_size": 64, "embed_dim": 32, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4},
    "gcvit_xxtiny": {"img_size": 64},
    "test_mambaout": {},
    "volo_d1_224": {"img_size": 64},
    "sequencer2d_s": {"layers": (1, 1, 1, 1)},
    "samvit_base_patch16": {"img_size": 64, "embed_dim": 32, "depth": 2, "num_heads": 2, "global_attn_indexes": (1,)},
}


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_are_never_taken_for_height(name):
    model = timm.create_model(name, pretrained=False, num_classes=2, **CHANNELS_LAST[name]).eval()
    names = default_modules(model)
    with torch.no_grad(), outputs_of(model, names) as seen:
        model(torch.randn(1, 3, 64, 64))
    four = {key: output for key, output in seen.items() if output.ndim == 4}
    found = layouts(model, four, [], (64, 64))
    assert four
    for key, output in four.items():
        assert found[key].channels_last
        assert found[key].grid == tuple(output.shape[1:3])
        assert found[key].tokens(output).shape[2] == output.shape[3]


def test_maps_of_convolutions_have_channels_first():
    model = timm.create_model("test_resnet", num_classes=2).eval()
    with torch.no_grad(), outputs_of(model, ["layer1", "layer4"]) as seen:
        model(torch.randn(1, 3, 64, 96))
    found = layouts(model, seen, [], (64, 96))
    assert not found["layer1"].channels_last
    assert found["layer4"].grid == (2, 3)


def test_one_model_may_have_both():
    """TinyViT begins with convolutions and goes on with tokens."""
    model = timm.create_model("tiny_vit_5m_224", num_classes=2).eval()
    names = default_modules(model)
    with torch.no_grad(), outputs_of(model, names) as seen:
        model(torch.randn(1, 3, 64, 64))
    found = layouts(model, seen, [], (64, 64))
    assert [found[name].channels_last for name in names[:3]] == [False, False, True]
    assert [found[name].grid for name in names[:3]] == [(16, 16), (16, 16), (8, 8)]


def test_a_cube_is_read_as_its_neighbours_are_or_refused():
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity(), torch.nn.ReLU())
    outputs = {"0": torch.zeros(1, 8, 8, 8), "1": torch.zeros(1, 4, 4, 16)}
    assert layouts(model, outputs, [], (32, 32))["0"].channels_last
    with pytest.raises(HoldfastError, match="the channel axis of 2's output in Sequential is ambiguous"):
        layouts(model, {"2": torch.zeros(1, 8, 8, 8)}, [], (32, 32))
    with pytest.raises(HoldfastError, match="must have 3 or 4 axes"):
        layouts(model, {"2": torch.zeros(1, 8)}, [], (32, 32))
    assert list(known_layouts(model, {**outputs, "2": torch.zeros(1, 8, 8, 8)}, [], (32, 32))) == ["0", "1"]


def test_hieras_tokens_are_put_back_where_they_belong():
    """Its blocks keep tokens unrolled; grouped, they must lie where timm's own rolling puts them."""
    model = timm.create_model("hiera_tiny_224", img_size=64, embed_dim=16, stages=(1, 1, 1, 1), num_classes=2).eval()
    found = analyze(model, photographs((64, 64)), "grouping", size=64, settings=Settings(pictures=1, clusters=2))
    assert [found.results["grouping"].arrays[f"groups/clean/{n}"].shape[1:] for n in range(3)] == [
        (16, 16),
        (8, 8),
        (4, 4),
    ]
    names = [f"blocks.{number}" for number in range(4)]
    with torch.no_grad(), watch(model) as inside, outputs_of(model, names) as seen:
        model(torch.randn(1, 3, 64, 64))
    read = layouts(model, seen, inside.attention, (64, 64))
    for number, name in enumerate(names):
        rolled = model.reroll(seen[name], number)  # B H W C
        assert torch.equal(read[name].tokens(seen[name]), rolled.flatten(1, 2))


# ---------------------------------------------------------------------------------- 4: what stands in front


def test_class_tokens_are_what_the_model_says_and_never_guessed():
    assert find_grid(9, (32, 32)) == (3, 3)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, reg_tokens=4, num_classes=2).eval()
    with torch.no_grad(), outputs_of(model, ["blocks.0"]) as seen:
        model(torch.randn(1, 3, 32, 32))
    (layout,) = layouts(model, seen, [], (32, 32)).values()
    assert (layout.prefix, layout.grid) == (5, (2, 2))  # 9 tokens are not 3 × 3


# ---------------------------------------------------------------------------------- 2 and 3: unlike results


def result(kind, label, *, settings=None, data="f", **arrays):
    header = {"label": label, "data": f"data-{data}", "data_fingerprint": data, "settings": settings or {}}
    header |= {key: value for key, value in (settings or {}).items() if key in ("top", "noise_std", "epsilon")}
    return AnalysisResult(kind, header, arrays)


def overfocus_of(label, top, data="f"):
    arrays = {name: np.ones((2, 3, 4)) for name in ("effective_tokens", "top_share", "column_concentration")}
    return result("overfocus", label, settings={"top": top}, data=data, **arrays)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("overfocus", {"top": 5}, {"top": 6}),
        ("noise-decay", {"noise_std": 1.0}, {"noise_std": 0.5}),
        ("noise-decay", {"epsilon": 0.01}, {"epsilon": 0.1}),
        ("noise-decay", {}, {"noise": "alone"}),
        ("occlusion", {"ratio": 0.1}, {"ratio": 0.2}),
        ("stability", {"cells": ["fog/3"]}, {"cells": ["snow/3"]}),
    ],
)
def test_results_of_other_settings_are_not_alike(kind, one, other):
    mixed = [result(kind, "a", settings=one), result(kind, "b", settings=other), result(kind, "c", settings=one)]
    groups = group_alike(ANALYSES[kind], mixed)
    assert [[each.label for each in group] for group in groups] == [["a", "c"], ["b"]]


def maps_of(label, data, shade, query=(0.5, 0.5)):
    layer = {"name": "blocks.0.attn", "kind": "token", "query": [0, 0]}
    arrays = {f"images/{state}": np.full((1, 4, 4, 3), shade, np.uint8) for state in ("clean", "corrupted")}
    for state in ("clean", "corrupted"):
        arrays |= {f"mean/{state}/0": np.ones((1, 4, 4)), f"query/{state}/0": np.ones((1, 2, 2))}
        arrays[f"heads/{state}"] = np.ones((1, 2, 4, 4))
    arrays["cosine"] = np.ones((1, 1))
    found = result("maps", label, settings={"query": list(query)}, data=data, **arrays)
    return AnalysisResult("maps", {**found.header, "layers": [layer], "cell": "fog/3"}, arrays)


def test_redrawing_runs_on_other_data_puts_no_image_beside_anothers_map(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in (("a", "first"), ("b", "second")):
        save_result(tmp_path / name / "analysis" / data, maps_of(name, data, 100))
    assert main(["analyze", "--redraw", "a", "b"]) == 0
    assert "no figures compare the models" in capsys.readouterr().err
    assert not (tmp_path / "comparison").exists()
    save_result(tmp_path / "c" / "analysis" / "first", maps_of("c", "first", 100))
    assert main(["analyze", "--redraw", "a", "b", "c"]) == 0
    assert {path.name for path in (tmp_path / "comparison").iterdir()} == {"maps-1.png", "query-1.png"}


def test_redrawn_runs_of_one_name_are_told_apart(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("x", "y"):
        save_result(tmp_path / place / "a" / "analysis" / "first", overfocus_of("a", 5))
    assert main(["analyze", "--redraw", "x/a", "y/a"]) == 0
    shown = capsys.readouterr().out
    assert "a (x/a)" in shown
    assert "a (y/a)" in shown
    assert (tmp_path / "comparison" / "overfocus-layers.png").exists()


def test_a_second_group_of_alike_results_gets_figures_of_its_own():
    mixed = [overfocus_of("a", 5), overfocus_of("b", 5), overfocus_of("a", 9), overfocus_of("c", 9)]
    assert [name for name, _ in figure_pages(mixed)] == ["overfocus-layers", "overfocus-layers-b"]


# ---------------------------------------------------------------------------------- 5: channels are channels


def test_channels_are_called_channels_on_every_picture_and_headline():
    model = timm.create_model("xcit_nano_12_p16_224", depth=2, img_size=64, num_classes=2).eval()
    names = "stability,overfocus,diversity,occlusion,maps"
    settings = Settings(masks=1, pictures=1)
    found = analyze(model, photographs((64, 64)), names, settings=settings, size=64, label="xcit")
    numbers = found.summary()
    assert "effective channels, last layer" in numbers
    assert not any("token" in name for name in numbers)
    channels = {"effective channels, last layer", "share of top 5 channels, last layer"}
    assert channels <= set(numbers)
    assert {"stability (channels), gaussian_noise/3", "cosine between heads (channels)"} <= set(numbers)
    for _, draw in figure_pages(list(found.results.values())):
        assert "channels" in texts_and_legends(draw())
    vit = overfocus_of("vit", 5)
    assert len(group_alike(ANALYSES["overfocus"], [found.results["overfocus"], vit])) == 2


def texts_and_legends(figure):
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for axis in figure.axes:
        legends += axis.get_legend_handles_labels()[1]
        legends += [tick.get_text() for tick in axis.get_xticklabels()]
    return "\n".join([texts(figure), *legends, figure.get_suptitle()])


# ---------------------------------------------------------------------------------- definitions


def test_stability_is_told_per_image_and_pooled():
    generator = np.random.default_rng(0)
    cosines = generator.uniform(0, 1, (1, 50, 6, 4)).astype(np.float32)
    cosines[:, :, 0, 2:] = np.nan
    found = AnalysisResult("stability", {"cells": ["fog/3"], "label": "a"}, {"flattened": cosines, "row_wise": cosines})
    assert len(attention_stability.scores(found, "fog/3")) == 50
    assert len(attention_stability.pooled_cosines(found, "fog/3")) == 50 * 22
    assert attention_stability.pooled_cosines(found, "fog/3").mean() == pytest.approx(np.nanmean(cosines))
    assert (
        attention_stability.pooled_cosines(found, "fog/3").std() > 2 * attention_stability.scores(found, "fog/3").std()
    )
    assert "% of images" in texts(attention_stability.histogram([found], "fog/3"))
    assert "% of maps" in texts(attention_stability.pooled_histogram([found], "fog/3"))


def test_noise_is_added_or_alone_and_class_tokens_never_count():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2).eval()
    both = {
        noise: analyze(model, photographs((32, 32)), "noise-decay", size=32, settings=Settings(noise=noise))
        for noise in ("added", "alone")
    }
    with torch.no_grad():
        model.cls_token.add_(100)  # would drown all else if it counted
    drowned = analyze(model, photographs((32, 32)), "noise-decay", size=32, settings=Settings(noise="alone"))
    change = {name: found.results["noise-decay"].arrays["change"] for name, found in both.items()}
    assert not np.allclose(change["added"], change["alone"])
    assert (drowned.results["noise-decay"].arrays["change"] > 0.1).all()
    assert "noise alone left, last block" in both["alone"].summary()


def test_noise_alone_is_the_norm_of_its_features_by_that_of_the_images():
    from holdfast.attacks import rng

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2).eval()
    source, whole = photographs((32, 32), count=1), EvalProtocol(preparation="benchmark")  # nothing is cropped
    found = analyze(model, source, "noise-decay", size=32, settings=Settings(noise="alone"), protocol=whole)
    images = (torch.from_numpy(source.images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
    noise = rng.normal(images, seed=0, ids=[source.id(0)], purpose="noise-decay")
    with torch.no_grad(), outputs_of(model, ["blocks.0"]) as seen:
        model(images)
        clean = seen["blocks.0"][:, 1:]
        model(noise)
        noisy = seen["blocks.0"][:, 1:]
    expected = float(noisy.norm() / clean.norm())
    assert found.results["noise-decay"].arrays["change"][0, 0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("name", "side"), [("vit_tiny_patch16_224", 16), ("swin_tiny_patch4_window7_224", 4)])
def test_the_default_occlusion_patch_is_the_models_token(name, side):
    kwargs = {"depths": (1,), "num_heads": (2,)} if "swin" in name else {"depth": 1}
    model = timm.create_model(name, img_size=64, num_classes=2, **kwargs).eval()
    found = analyze(
        model, photographs((64, 64)), "occlusion", size=64, settings=Settings(masks=1, occlusion_images=2, ratio=0.3)
    )
    assert found.results["occlusion"].header["patch_size"] == side
    assert f"patches of {side} px" in texts(ANALYSES["occlusion"].shown.draw([found.results["occlusion"]]))


def test_bands_and_whiskers_are_explained():
    figure = overfocus.layers_figure([overfocus_of("a", 5)])
    assert "band: quartiles" in figure.get_supxlabel()


# ---------------------------------------------------------------------------------- the families that are new

NEW = {
    "beit_base_patch16_224": {"embed_dim": 32, "num_heads": 2, "depth": 2},
    "eva02_tiny_patch14_224": {"patch_size": 16, "depth": 2},
    "vit_small_patch16_dinov3": {"embed_dim": 64, "num_heads": 2, "depth": 2},
    "cait_xxs24_224": {"depth": 2},
    "swinv2_tiny_window8_256": {"embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2)},
    "hiera_tiny_224": {"embed_dim": 16, "stages": (1, 1, 1, 1)},
}


@pytest.mark.parametrize("name", NEW)
def test_new_families_have_every_analysis_and_every_figure(name):
    model = timm.create_model(name, img_size=64, num_classes=2, **NEW[name]).eval()
    names = ("stability", "occlusion", "overfocus", "diversity", "noise-decay", "grouping", "maps")
    settings = Settings(masks=1, occlusion_images=2, pictures=1, clusters=2, ratio=0.3)
    found = analyze(model, photographs((64, 64), count=2), names, settings=settings, size=64, label="new")
    assert set(found.results) == set(names)
    flattened = found.results["stability"].arrays["flattened"]
    assert ((flattened > 0) & (flattened < 1.00001))[~np.isnan(flattened)].all()
    pages = {page: draw() for page, draw in figure_pages(list(found.results.values()))}
    assert {"query-1", "maps-1", "groups-1", "noise-decay"} <= set(pages)
