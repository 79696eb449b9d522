"""What every registered model can do. A new model is tested here without writing a test."""

import copy
import json

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models._hub import save_config_for_hf
from timm.optim import param_groups_layer_decay, param_groups_weight_decay

import holdfast
from holdfast.models import model_names

QUICK_PARAMETERS = 30_000_000  # larger models of the same families are left to `make test-all`


def parameters(name: str) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in timm.create_model(name).parameters())


NAMES = model_names()
MODELS = [pytest.param(n, marks=() if parameters(n) <= QUICK_PARAMETERS else pytest.mark.full) for n in NAMES]


def small_size(name: str) -> tuple[int, int]:
    """A non-square size that every stride divides, small enough for a quick test."""
    return (32, 48) if "nano" in name else (56, 84) if "patch14" in name else (64, 96)


def own_side(name: str) -> int:
    """Side of the images that a model is made for."""
    return 32 if "nano" in name else 518 if "dinov2" in name else 224


def build(name: str, **kwargs) -> torch.nn.Module:
    return timm.create_model(name, **{"img_size": small_size(name), **kwargs})


def batch(name: str, channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, *small_size(name))


@pytest.mark.parametrize("name", MODELS)
def test_trains_every_parameter_and_evaluates_the_same_twice(name):
    model = build(name, num_classes=7)
    images = batch(name)
    model.train()(images).square().sum().backward()
    dead = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert dead == []

    model.eval()
    with torch.no_grad():
        logits = model(images)
        assert logits.shape == (2, 7)
        torch.testing.assert_close(model(images), logits, atol=0, rtol=0)
        torch.testing.assert_close(model(images[:1]), logits[:1], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(model.forward_head(model.forward_features(images)), logits, atol=0, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_features_have_the_channels_and_strides_they_promise(name):
    model = build(name, features_only=True).eval()
    images = batch(name)
    with torch.no_grad():
        features = model(images)
    info = zip(model.feature_info.channels(), model.feature_info.reduction(), strict=True)
    expected = [(2, channels, *(-(-side // stride) for side in images.shape[-2:])) for channels, stride in info]
    assert [tuple(feature.shape) for feature in features] == expected
    with torch.no_grad():
        assert len(build(name, features_only=True, out_indices=(0,)).eval()(images)) == 1


@pytest.mark.parametrize("name", MODELS)
def test_intermediates_agree_with_the_plain_forward_pass(name):
    model = build(name).eval()
    images = batch(name)
    with torch.no_grad():
        final, maps = model.forward_intermediates(images)
        torch.testing.assert_close(final, model.forward_features(images), atol=0, rtol=0)
        last = model.forward_intermediates(images, indices=1, intermediates_only=True, stop_early=True)
        torch.testing.assert_close(last[0], maps[-1], atol=0, rtol=0)
        first = model.forward_intermediates(images, indices=[0], intermediates_only=True, stop_early=True)
        torch.testing.assert_close(first[0], maps[0], atol=0, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_loads_back_from_safetensors_as_a_local_directory(name, tmp_path):
    model = build(name, num_classes=5).eval()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    save_config_for_hf(model, tmp_path / "config.json", model_args={"img_size": small_size(name)})
    assert json.loads((tmp_path / "config.json").read_text())["architecture"] == name
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    images = batch(name)
    with torch.no_grad():
        torch.testing.assert_close(again(images), model(images), atol=0, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_in_one_group_with_the_right_decay_and_depth(name):
    with torch.device("meta"):
        model = build(name, num_classes=10)
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    decayed = {names[id(p)] for group in groups if group["weight_decay"] > 0 for p in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(names)
    assert all(dict(model.named_parameters())[key].ndim > 1 for key in decayed)
    assert not any(key.endswith(".bias") or key == "cls_token" for key in decayed)

    scales = {}
    for group in param_groups_layer_decay(model, layer_decay=0.5, no_weight_decay_list=model.no_weight_decay()):
        scales.update({names[id(p)]: group["lr_scale"] for p in group["params"]})
    assert scales.keys() == set(names.values())
    first_block, last_block = sorted_blocks(model)
    classifier = timm.get_pretrained_cfg(name).classifier
    assert scales[first_block] < scales[last_block] < scales[f"{classifier}.weight"] == 1


def sorted_blocks(model) -> tuple[str, str]:
    keys = [key for key, _ in model.named_parameters() if key.endswith("norm1.weight") and "cls_attn" not in key]
    return keys[0], keys[-1]


@pytest.mark.parametrize("name", MODELS)
def test_head_and_channels_can_be_changed(name):
    model = build(name, in_chans=1, num_classes=0).eval()
    images = batch(name, channels=1)
    with torch.no_grad():
        assert model(images).shape == (2, model.num_features)
        model.reset_classifier(3)
        assert model.get_classifier().out_features == 3
        assert model(images).shape == (2, 3)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_checkpointing_changes_nothing(name):
    plain = build(name, num_classes=3, drop_path_rate=0.0).train()
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing(True)
    images = batch(name)
    losses = [model(images).square().sum() for model in (plain, saving)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[0], losses[1])
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-3)


EXPORTED = ("fan_nano", "fan_tiny_8_p4_hybrid", "rvt_nano", "tap_rvt_tiny_plus")  # exporting takes long


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in EXPORTED else pytest.mark.full) for n in NAMES])
def test_evaluation_forward_exports(name):
    model = build(name, num_classes=3).eval()
    images = batch(name)
    exported = torch.export.export(model, (images,)).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(images), model(images), atol=1e-5, rtol=1e-4)


def with_tap(name: str) -> torch.nn.Module:
    return holdfast.add_tap(timm.create_model(name, depth=2) if "rvt" not in name else timm.create_model(name))


ANY_BATCH = {
    "fan_nano": lambda: timm.create_model("fan_nano"),
    "fan_nano_hybrid": lambda: timm.create_model("fan_nano_hybrid"),
    "rvt_nano": lambda: timm.create_model("rvt_nano"),
    "vit_nano": lambda: timm.create_model("vit_nano"),
    "fan_nano with TAP": lambda: with_tap("fan_nano"),
    "rvt_nano with TAP": lambda: with_tap("rvt_nano"),
    "vit_nano with TAP": lambda: with_tap("vit_nano"),
    "vit_nano with TORA": lambda: holdfast.tora(timm.create_model("vit_nano", depth=2)),
    "vit_nano with AdapterFusion": lambda: holdfast.tora(
        timm.create_model("vit_nano", depth=2), method="adapter-fusion"
    ),
}


@pytest.mark.parametrize("name", ANY_BATCH)
def test_exports_for_any_batch_size(name):
    model, batch_size = ANY_BATCH[name]().eval(), torch.export.Dim("batch_size")
    with torch.no_grad():
        exported = torch.export.export(model, (torch.randn(3, 3, 32, 32),), dynamic_shapes=({0: batch_size},)).module()
        for count in (1, 2, 5):
            images = torch.randn(count, 3, 32, 32)
            torch.testing.assert_close(exported(images), model(images), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_default_cfg_says_how_to_prepare_images(name):
    cfg = timm.get_pretrained_cfg(name).to_dict()
    assert cfg["input_size"] == (3, own_side(name), own_side(name))
    assert len(cfg["mean"]) == len(cfg["std"]) == 3
    assert cfg["interpolation"] == "bicubic"
    with torch.device("meta"):
        model = timm.create_model(name)
    if cfg["num_classes"]:  # DINOv2 comes without a head
        assert model.get_submodule(cfg["classifier"]).out_features == cfg["num_classes"]
    assert model.get_submodule(cfg["first_conv"]).in_channels == 3


@pytest.mark.parametrize("name", MODELS)
def test_images_that_do_not_fit_get_one_sentence(name):
    model = build(name).eval()
    height, width = small_size(name)
    with pytest.raises((holdfast.HoldfastError, AssertionError), match=r"(?i)divisible|doesn't match|height"):
        model(torch.randn(1, 3, height + 1, width))
    if type(model).__module__.startswith("holdfast."):  # timm's own classes speak for themselves
        with pytest.raises(holdfast.HoldfastError, match="3 channels, got 4"):
            model(torch.randn(1, 4, height, width))


def test_the_tail_of_fan_xlarge_halves_the_grid_and_trains():
    model = timm.create_model("fan_Xlarge_16_p4_hybrid", depth=2, tail=(96, 1, 4), trunk_depths=(1, 1), num_classes=2)
    images = torch.randn(2, 3, 64, 96)
    with holdfast.watch(model) as seen:
        model(images).square().sum().backward()
    assert [handle.grid for handle in seen.attention] == [(4, 6), (4, 6), (2, 3)]
    assert [feature.shape[-1] for feature in seen.features] == [528, 528, 96]
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        maps = model.forward_intermediates(images, intermediates_only=True)
    assert [tuple(m.shape[1:]) for m in maps] == [(128, 16, 24), (256, 8, 12), (528, 4, 6), (96, 2, 3)]


def test_nano_models_have_at_most_a_million_parameters_and_8_by_8_tokens():
    for name in (n for n in NAMES if "nano" in n):
        model = timm.create_model(name).eval()
        assert sum(parameter.numel() for parameter in model.parameters()) <= 1_000_000
        with torch.no_grad(), holdfast.watch(model) as seen:
            model(torch.randn(1, 3, 32, 32))
        assert seen.attention[0].grid == (8, 8)


def test_an_unknown_model_is_answered_with_the_nearest_names():
    with pytest.raises(holdfast.HoldfastError, match=r"did you mean .*fan_tiny_8_p4_hybrid"):
        holdfast.create_model("fan_tiny_8_hybrid")
