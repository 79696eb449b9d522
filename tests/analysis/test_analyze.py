"""``holdfast.analyze`` measures what the pure functions say, whatever the batch size, and keeps it."""

import dataclasses

import numpy as np
import pytest
import timm
import torch
from torch import nn

import holdfast
from holdfast.analysis.analyze import analyze
from holdfast.analysis.registry import ANALYSES
from holdfast.analysis.results import load_results
from holdfast.analysis.settings import Settings
from holdfast.attacks import Occlusion, from_pixels
from holdfast.attention import watch
from holdfast.corruptions import corrupt, keyed
from holdfast.data import ArraySource
from holdfast.errors import HoldfastError
from holdfast.models.corruption_model import Corruptor, save_corruptor
from tests.analysis.conftest import QUICK, sharpened

ATTENTION = ("stability", "overfocus", "diversity", "maps")


@pytest.fixture(scope="module")
def everything(digits, tmp_path_factory):
    """All analyses of one small model with TAP and a corruption model, kept in a folder."""
    torch.manual_seed(1)
    out = tmp_path_factory.mktemp("run")
    save_corruptor(Corruptor((8, 8), patch_size=4), out / "c.safetensors")
    model = sharpened(timm.create_model("fan_nano", num_classes=10, tap="tap"))
    return model, out, analyze(model, digits, settings=QUICK, out=out, corruptor=out / "c.safetensors", batch_size=5)


def pixels_of(digits, cell=None):
    images = []
    for number in range(len(digits)):
        image = digits.images[number]
        if cell:
            kind, severity = cell.split("/")
            draws = keyed(0, digits.id(number), kind, int(severity))
            image = corrupt(image, kind, severity=int(severity), preset="cifar", rng=draws)
        images.append(image)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255


def seen(model, pixels):
    pixel_model = from_pixels(model).eval()
    with torch.no_grad(), watch(model) as inside:
        logits = pixel_model(pixels)
    return logits, [handle.maps() for handle in inside.attention], list(inside.features)


def test_every_analysis_runs_and_is_kept(everything):
    _, out, analysis = everything
    assert set(analysis.results) == set(ANALYSES) - {"gates"}
    assert analysis.skipped == {"gates": "the model has no gated adapters (TORA)"}
    stored = {result.kind: result for result in load_results(out)}
    assert set(stored) == set(analysis.results)
    for name, result in analysis.results.items():
        assert stored[name].header == result.header
        assert all(
            np.array_equal(stored[name].arrays[key], value, equal_nan=value.dtype.kind == "f")
            for key, value in result.arrays.items()
        )
        assert result.header["label"] == "fan_nano"
        assert result.header["cost"]["gmacs"] == pytest.approx(0.06, abs=0.01)


def test_stability_is_the_cosine_of_the_models_own_maps(everything, digits):
    model, _, analysis = everything
    result = analysis.results["stability"]
    assert result.header["cells"] == ["gaussian_noise/5", "fog/3"]
    assert result.arrays["flattened"].shape == result.arrays["row_wise"].shape == (2, 12, 6, 4)
    logits, clean, _ = seen(model, pixels_of(digits))
    targets = torch.as_tensor(digits.targets)
    assert result.arrays["right"][0].tolist() == (logits.argmax(1) == targets).tolist()
    for number, cell in enumerate(result.header["cells"]):
        _, corrupted, _ = seen(model, pixels_of(digits, cell))
        for layer in range(6):
            flat = torch.cosine_similarity(clean[layer].flatten(2), corrupted[layer].flatten(2), dim=-1)
            rows = torch.cosine_similarity(clean[layer], corrupted[layer], dim=-1).mean(-1)
            assert result.arrays["flattened"][number, :, layer] == pytest.approx(flat.numpy(), abs=1e-5)
            assert result.arrays["row_wise"][number, :, layer] == pytest.approx(rows.numpy(), abs=1e-5)


def test_occlusion_uses_the_attacks_masks(everything, digits):
    model, _, analysis = everything
    result = analysis.results["occlusion"]
    assert result.arrays["scores"].shape == result.arrays["right"].shape == (4, 3)
    assert (result.header["masks"], result.header["patch_size"], result.header["ratio"]) == (3, 4, 0.1)
    chosen = [number for number in range(12) if digits.id(number) in chosen_ids(digits, 4)]
    pixels, targets = pixels_of(digits)[chosen], torch.as_tensor(digits.targets)[chosen]
    attack = Occlusion(0.1, 4, 3)(from_pixels(model), pixels, targets, ids=[digits.id(number) for number in chosen])
    assert result.arrays["right"].T.tolist() == (attack.predictions == targets).tolist()
    _, clean, _ = seen(model, pixels)
    _, last, _ = seen(model, attack.images)
    cosines = [torch.cosine_similarity(a.flatten(2), b.flatten(2), dim=-1) for a, b in zip(clean, last, strict=True)]
    assert result.arrays["scores"][:, -1] == pytest.approx(torch.cat(cosines, dim=1).mean(1).numpy(), abs=1e-5)


def chosen_ids(digits, count):
    from holdfast.evaluation.plan import limit_rows

    ids = [digits.id(number) for number in range(len(digits))]
    return [ids[number] for number in limit_rows(ids, digits.targets, count)]


def test_overfocus_and_diversity_are_those_of_the_maps(everything, digits):
    model, _, analysis = everything
    _, maps, _ = seen(model, pixels_of(digits))
    for layer, attention in enumerate(maps):
        effective = torch.special.entr(attention.double()).sum(-1).exp().mean(-1)
        found = analysis.results["overfocus"].arrays["effective_tokens"][:, layer]
        assert found == pytest.approx(effective.numpy(), rel=1e-4)
        flat = nn.functional.normalize(attention.flatten(2), dim=-1)
        pairs = (flat @ flat.mT)[:, *torch.triu_indices(4, 4, 1)].mean(-1)
        assert analysis.results["diversity"].arrays["similarity"][:, layer] == pytest.approx(pairs.numpy(), abs=1e-5)
        matrix = (flat @ flat.mT).mean(0)
        assert analysis.results["diversity"].arrays[f"matrix/{layer}"] == pytest.approx(matrix.numpy(), abs=1e-5)


def test_noise_decay_is_measured_at_the_blocks(everything, digits):
    model, _, analysis = everything
    result = analysis.results["noise-decay"]
    assert result.header["modules"] == [f"blocks.{number}" for number in range(6)]
    assert result.header["epsilon"] == 0.01
    assert result.arrays["tokens"].tolist() == [64] * 6
    _, _, features = seen(model, pixels_of(digits))
    values = np.linalg.eigvalsh((features[2][0].double() @ features[2][0].double().T).numpy())
    assert result.arrays["eigenvalues"][0, 2] == int((values > 0.01 * values.max()).sum())
    assert (result.arrays["change"] > 0).all()


def test_pictures_hold_images_maps_groups_patches_and_dilations(everything, digits):
    model, _, analysis = everything
    results = analysis.results
    numbers = [number for number in range(12) if digits.id(number) in chosen_ids(digits, 2)]
    _, maps, _ = seen(model, pixels_of(digits)[numbers])
    assert results["maps"].arrays["images/clean"].tolist() == digits.images[numbers].tolist()
    assert results["maps"].arrays["mean/clean/3"] == pytest.approx(maps[3].mean(1).numpy(), abs=1e-3)
    assert results["maps"].arrays["heads/clean"] == pytest.approx(maps[-1].numpy(), abs=1e-3)
    centre = maps[3].mean(1)[:, 4 * 8 + 4].unflatten(1, (8, 8))
    assert results["maps"].arrays["query/clean/3"] == pytest.approx(centre.numpy(), abs=1e-3)
    assert results["maps"].header["layers"][3]["query"] == [4, 4]
    assert results["grouping"].arrays["groups/corrupted/5"].shape == (2, 8, 8)
    assert set(np.unique(results["grouping"].arrays["groups/clean/0"])) <= {0, 1, 2}
    kept = results["patches"].arrays["kept"]
    assert (~kept).sum(axis=(1, 2)).tolist() == [7] * 6  # ten percent of 64, as AFAT counts
    assert results["patches"].arrays["confidence"].shape == (6, 2)
    assert results["dilation"].arrays["dilation/0"].shape == (2, 8, 8)
    assert results["dilation"].arrays["weights"].sum(axis=1) == pytest.approx(np.ones(6), abs=1e-5)


def test_results_do_not_depend_on_the_batch_size(everything, digits):
    model, out, analysis = everything
    other = analyze(
        model,
        digits,
        settings=QUICK,
        corruptor=out / "c.safetensors",
        batch_size=12,
        analyses="stability,occlusion,noise-decay",
    )
    for name, result in other.results.items():
        for key, array in result.arrays.items():
            assert array == pytest.approx(analysis.results[name].arrays[key], abs=1e-4), (name, key)


def test_what_is_there_is_read_and_other_settings_are_computed(everything, digits, monkeypatch):
    model, out, _ = everything
    ran = []
    for name, kind in ANALYSES.items():
        counted = dataclasses.replace(kind, run=lambda *a, run=kind.run, name=name: ran.append(name) or run(*a))
        monkeypatch.setitem(ANALYSES, name, counted)
    names = ("overfocus", "diversity")
    analyze(model, digits, names, settings=QUICK, out=out, label="another name")
    assert ran == []
    changed = QUICK.changed(top=2)
    assert analyze(model, digits, names, settings=changed, out=out).results["overfocus"].header["top"] == 2
    assert ran == ["overfocus"]
    analyze(model, digits, ["diversity"], settings=QUICK, out=out, fresh=True)
    assert ran == ["overfocus", "diversity"]
    with torch.no_grad():
        model.head.bias[0] += 1  # another model
    analyze(model, digits, ["diversity"], settings=QUICK, out=out)
    assert ran == ["overfocus", "diversity", "diversity"]
    with torch.no_grad():
        model.head.bias[0] -= 1


def test_the_summary_tells_the_headline_numbers(everything):
    _, _, analysis = everything
    summary, arrays = analysis.summary(), analysis.results["stability"].arrays
    assert summary["stability, fog/3"] == pytest.approx(arrays["flattened"][1].mean(), rel=1e-5)
    of_masks = analysis.results["occlusion"].arrays["right"].mean(axis=0)
    assert summary["occluded accuracy, %"] == pytest.approx(100 * of_masks.mean())
    assert summary["… lowest mask, %"] == pytest.approx(100 * of_masks.min())
    assert summary["effective tokens, last layer"] == pytest.approx(
        analysis.results["overfocus"].arrays["effective_tokens"][:, 5].mean(), rel=1e-5
    )
    assert {"cosine between heads", "noise left, last block", "confidence lost to chosen patches"} <= set(summary)


def test_a_damaged_result_is_computed_again(fan, digits, tmp_path):
    folder = analyze(fan, digits, "diversity", settings=QUICK, out=tmp_path).folder
    (folder / "diversity.safetensors").write_bytes(b"not a result")
    with pytest.raises(HoldfastError, match="cannot be read as a result of holdfast analyze"):
        load_results(folder)
    assert (
        analyze(fan, digits, "diversity", settings=QUICK, out=tmp_path).results["diversity"].arrays["similarity"].any()
    )
    assert [result.kind for result in load_results(tmp_path)] == ["diversity"]


def test_the_model_is_left_as_it_was(fan, digits):
    fan.train()
    fan.head.bias.requires_grad_(False)
    before = {name: value.clone() for name, value in fan.state_dict().items()}
    analyze(fan, digits, "stability,noise-decay,dilation", settings=QUICK)
    assert fan.training
    assert [name for name, weight in fan.named_parameters() if not weight.requires_grad] == ["head.bias"]
    assert all(torch.equal(value, before[name]) for name, value in fan.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in fan.modules())


# ---------------------------------------------------------------------------------------------- other families


def photographs(size, count=3):
    pixels = np.random.default_rng(0).integers(0, 256, (count, *size, 3), dtype=np.uint8)
    return ArraySource("photographs", pixels, np.zeros(count, np.int64), ("a", "b"), np.arange(count))


@pytest.mark.parametrize(
    ("name", "kwargs", "size", "kind", "layers"),
    [
        ("vit_tiny_patch16_224", {"img_size": 64, "depth": 3}, 64, "token", 3),
        ("deit_tiny_distilled_patch16_224", {"img_size": 64, "depth": 3}, 64, "token", 3),
        ("swin_tiny_patch4_window7_224", {"img_size": 56, "depths": (2, 2), "num_heads": (3, 6)}, 56, "window", 4),
        ("xcit_nano_12_p16_224", {"depth": 2, "img_size": 64}, 64, "channel", 2),
        ("rvt_nano", {}, 32, "token", 7),
    ],
)
def test_our_models_and_timms_are_analysed(name, kwargs, size, kind, layers):
    model = timm.create_model(name, num_classes=2, **kwargs).eval()
    names = [*ATTENTION, "occlusion", "noise-decay", "grouping"]
    settings = Settings(masks=2, pictures=2, clusters=2, patch_size=8)
    results = analyze(model, photographs((size, size)), names, settings=settings, size=size).results
    assert set(results) == set(names)
    assert [layer["kind"] for layer in results["stability"].header["layers"]] == [kind] * layers
    assert (results["stability"].arrays["flattened"] > 0)[~np.isnan(results["stability"].arrays["flattened"])].all()
    assert ("query/clean/0" in results["maps"].arrays) == (kind != "channel")
    heads = [layer["heads"] for layer in results["stability"].header["layers"]]
    assert np.isfinite(results["stability"].arrays["flattened"][0, 0]).sum(axis=-1).tolist() == heads


def test_tora_gates_are_shares_of_the_robustness_adapter(digits):
    model = holdfast.tora(timm.create_model("vit_nano", num_classes=10)).eval()
    results = analyze(model, digits, "gates,stability,patches", settings=QUICK)
    assert set(results.skipped) == {"patches"}
    gates = results.results["gates"].arrays["gates/0"]
    assert gates.shape == (2, 8, 8)
    assert ((gates >= 0) & (gates <= 1)).all()
    assert results.results["stability"].arrays["flattened"].shape[2] == 8


# ---------------------------------------------------------------------------------------------- bad input


def test_a_model_without_attention_still_has_the_other_analyses():
    model = timm.create_model("resnet10t", num_classes=2).eval()
    settings = Settings(masks=2, pictures=1, clusters=2)
    found = analyze(model, photographs((32, 32)), settings=settings, size=32)
    assert set(found.results) == {"occlusion", "noise-decay", "grouping"}
    assert {found.skipped[name] for name in ATTENTION} == {"ResNet has no attention that Holdfast can read"}
    assert np.isnan(found.results["occlusion"].arrays["scores"]).all()
    with pytest.raises(HoldfastError, match="stability is not possible: ResNet has no attention"):
        analyze(model, photographs((32, 32)), "stability", size=32)


def test_home_made_networks_are_measured_where_they_have_maps():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 30 * 30, 2))
    found = analyze(model, photographs((32, 32)), "noise-decay", size=32)
    assert found.results["noise-decay"].header["modules"] == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"analyses": "stabillity"}, "unknown analysis 'stabillity'; did you mean 'stability'"),
        ({"analyses": ""}, "analyses must name at least one"),
        ({"settings": Settings(cells=("fgo/3",))}, "fgo"),
        ({"settings": Settings(cells=("fog/9",))}, "severity"),
        ({"settings": Settings(cells=("fog",))}, "cells must be named KIND/SEVERITY, such as fog/3, got 'fog'"),
        ({"settings": Settings(modules=("blokcs.0",))}, "modules must name parts of the model, got 'blokcs.0'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"limit": -1}, "limit must be at least 1"),
        ({"corruptor": "/nowhere.safetensors"}, "corruptor must be a file of an AFAT run"),
    ],
)
def test_bad_input_gets_one_sentence(fan, digits, options, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        analyze(fan, digits, **{"analyses": "noise-decay", **options})


def test_a_misspelt_module_is_refused_before_any_analysis_begins(fan, digits, capsys):
    with pytest.raises(HoldfastError, match=r"modules must name parts of the model, got 'blokcs\.0'"):
        analyze(fan, digits, "stability,noise-decay", settings=Settings(modules=("blokcs.0",)), limit=4, show=True)
    assert "analysing" not in capsys.readouterr().err


def test_an_empty_data_set_is_refused(fan, digits):
    empty = ArraySource("none", digits.images[:0], digits.targets[:0], digits.classes, digits.numbers[:0])
    with pytest.raises(HoldfastError, match="data 'none' must hold at least one image, got none"):
        analyze(fan, empty)


def test_a_size_the_model_cannot_look_at_is_refused(digits):
    model = timm.create_model("vit_nano", num_classes=10)
    with pytest.raises(HoldfastError, match="the model fails on images of 48×48"):
        analyze(model, digits, "diversity", size=48)


def test_images_of_mixed_sizes_get_one_token_grid(fan):
    class Mixed:
        classes, targets = ("a",), np.zeros(3, np.int64)

        def __len__(self):
            return 3

        def id(self, index):
            return str(index)

        def image(self, index):
            from PIL import Image

            return Image.new("RGB", [(40, 60), (64, 32), (100, 100)][index], (120, 30, 200))

    found = analyze(fan, Mixed(), "stability,grouping", settings=QUICK)
    assert found.results["stability"].arrays["flattened"].shape == (2, 3, 6, 4)
    assert not found.results["stability"].header["answers"]  # ten classes, but the data have one
