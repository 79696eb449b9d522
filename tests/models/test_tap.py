"""Token-aware average pooling against brute force, and where it goes."""

import copy

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models._hub import save_for_hf

import holdfast
from holdfast.errors import HoldfastError

PUBLISHED_PARAMETERS = {
    "tap_fan_tiny_12_p16_224": 7_404_688,
    "tap_fan_small_12_p16_224": 28_513_048,
    "tap_fan_base_18_p16_224": 54_643_360,
    "tap_fan_large_24_p16_224": 80_992_468,
    "tap_fan_tiny_8_p4_hybrid": 7_523_752,
    "tap_fan_small_12_p4_hybrid": 26_257_704,
    "tap_fan_base_16_p4_hybrid": 50_735_528,
    "tap_fan_large_16_p4_hybrid": 77_238_644,
    "tap_fan_Xlarge_16_p4_hybrid": 120_873_916,
    "tap_rvt_tiny_plus": 11_049_928,
    "tap_rvt_small_plus": 23_468_584,
    "tap_rvt_base_plus": 89_396_872,
}


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_parameter_counts_are_the_published_ones(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED_PARAMETERS[name]


TABLE_1 = {"tap": 50.7, "tap-multi-kernel": 50.7, "avgpool3": 50.5, "avgpool5": 50.5, "conv3": 79.4, "conv5": 130.9}


@pytest.mark.parametrize("kind", TABLE_1)
def test_the_family_of_table_1_has_the_printed_sizes(kind):
    """The paper prints 50.4 for FAN-B-Hybrid (50.48 M) and 130.7 for conv5 (130.76 M)."""
    with torch.device("meta"):
        model = holdfast.add_tap(timm.create_model("fan_base_16_p4_hybrid"), kind=kind)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(TABLE_1[kind], abs=0.15)


@pytest.mark.parametrize("name", ["fan_tiny_8_p4_hybrid", "rvt_tiny_plus"])
def test_add_tap_equals_the_published_entry_point(name):
    added = holdfast.add_tap(timm.create_model(name)).eval()
    published = timm.create_model(f"tap_{name}").eval()
    assert added.state_dict().keys() == published.state_dict().keys()
    published.load_state_dict(added.state_dict())
    images = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        torch.testing.assert_close(added(images), published(images), atol=0, rtol=0)


STOCK = {  # timm's own models: keyword arguments, image size
    "deit_tiny_patch16_224": ({"img_size": (48, 64)}, (48, 64)),
    "deit_tiny_distilled_patch16_224": ({"img_size": (48, 64)}, (48, 64)),
    "vit_tiny_patch16_224": ({"dynamic_img_size": True}, (48, 64)),
    "swin_tiny_patch4_window7_224": ({"img_size": (56, 112)}, (56, 112)),
    "fan_swin_tiny_patch4_window7_224": ({"img_size": (64, 96)}, (64, 96)),
    "fan_nano": ({}, (32, 48)),
    "rvt_nano": ({}, (32, 48)),
    "vit_nano": ({"img_size": (32, 48)}, (32, 48)),
}


@pytest.mark.parametrize("kind", ["tap", "avgpool3", "conv3"])
@pytest.mark.parametrize("name", STOCK)
def test_pooling_goes_in_front_of_attention_only(name, kind):
    """What norm1 sees is the pooled input; class tokens and the residual path are untouched."""
    kwargs, size = STOCK[name]
    model = timm.create_model(name, **kwargs).eval()
    keys = set(model.state_dict())
    model = holdfast.add_tap(model, branches=3, kind=kind).eval()
    assert {key for key in model.state_dict() if "dilation_predictor" not in key} == keys

    seen = {}
    block = next(module for module in model.modules() if hasattr(module, "dilation_predictor"))
    block.register_forward_pre_hook(lambda m, args: seen.update(block=args[0]))
    block.norm1.register_forward_pre_hook(lambda m, args: seen.update(norm=args[0]))
    block.attn.register_forward_hook(lambda m, args, kwargs, out: seen.update(attention=out), with_kwargs=True)
    with torch.no_grad():
        logits = model(torch.randn(2, 3, *size))
        assert logits.isfinite().all()
        x, fed = seen["block"], seen["norm"]
        prefix = getattr(model, "num_prefix_tokens", 0)
        if x.ndim == 4:  # Swin's maps
            expected = block.dilation_predictor(x.flatten(1, 2), *x.shape[1:3]).reshape(x.shape)
        else:
            patch = 4 if "nano" in name else 16
            grid = (size[0] // patch, size[1] // patch)
            expected = torch.cat([x[:, :prefix], block.dilation_predictor(x[:, prefix:], *grid)], dim=1)
    torch.testing.assert_close(fed, expected, atol=0, rtol=0)
    torch.testing.assert_close(fed[:, :prefix], x[:, :prefix], atol=0, rtol=0)
    assert (fed - x).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_a_copied_model_pools_with_its_own_weights(name):
    """EMA and evaluation copy models: the copy must not reach back into the original."""
    kwargs, size = STOCK[name]
    original = holdfast.add_tap(timm.create_model(name, **kwargs)).eval()
    twin = copy.deepcopy(original)
    images = torch.randn(1, 3, *size)
    with torch.no_grad():
        before = twin(images)
        for key, parameter in original.named_parameters():
            if "dilation_predictor" in key:
                parameter.normal_()
        torch.testing.assert_close(twin(images), before, atol=0, rtol=0)
        assert (original(images) - before).abs().max() > 1e-6


def test_tap_trains_on_stock_models():
    model = holdfast.add_tap(timm.create_model("deit_tiny_patch16_224", img_size=32, num_classes=3))
    model(torch.randn(2, 3, 32, 32)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("deit_base_patch16_224", {"depth": 2, "embed_dim": 32, "num_heads": 2}),
        ("swin_base_patch4_window7_224", {"depths": (1, 1, 2, 1), "embed_dim": 16, "num_heads": (1, 2, 4, 8)}),
    ],
)
def test_the_models_of_table_5_are_timms_with_tap_and_come_back_from_a_run_folder(name, small, tmp_path):
    kwargs = {"img_size": 64, "num_classes": 5, **small}
    model = timm.create_model(f"tap_{name}", **kwargs).eval()
    same = holdfast.add_tap(timm.create_model(name, **kwargs)).eval()
    same.load_state_dict(model.state_dict())
    images = torch.randn(2, 3, 64, 64)
    save_for_hf(model, str(tmp_path), model_args={"img_size": 64, **small}, safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(images), same(images), atol=0, rtol=0)
        torch.testing.assert_close(model(images), again(images), atol=0, rtol=0)


def test_what_cannot_have_tap_is_refused_in_one_sentence():
    with pytest.raises(holdfast.HoldfastError, match="it has no blocks with a known token grid"):
        holdfast.add_tap(timm.create_model("resnet18"))
    with pytest.raises(holdfast.HoldfastError, match="has TAP already"):
        holdfast.add_tap(holdfast.add_tap(timm.create_model("fan_nano")))
    with pytest.raises(
        holdfast.HoldfastError, match=r"must be one of tap, .*, got 'avgpool4'; did you mean 'avgpool5'"
    ):
        holdfast.add_tap(timm.create_model("fan_nano"), kind="avgpool4")
    with pytest.raises(holdfast.HoldfastError, match="branches must be at least 1, got 0"):
        holdfast.add_tap(timm.create_model("fan_nano"), branches=0)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "vit_small_patch14_dinov2", "swin_tiny_patch4_window7_224"])
def test_a_model_of_timm_with_tap_takes_weights_trained_without_it(name, tmp_path):
    """The registered name is timm's model with ``add_tap``; a file of the plain model fills all but TAP."""
    size = 56 if "vit" in name else 64 if "deit" in name else 224
    arguments = {"img_size": size, "num_classes": 3}
    plain = timm.create_model(name, **arguments).eval()
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    ours = timm.create_model(f"tap_{name}", tap="tap-identity", **arguments).eval()
    holdfast.load_checkpoint(ours, tmp_path / "plain.safetensors")
    kept = {key: value for key, value in ours.state_dict().items() if ".dilation_predictor." not in key}
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in kept.items())
    assert kept.keys() == plain.state_dict().keys()
    images = torch.randn(1, 3, size, size)
    with torch.no_grad():
        moved = (ours(images) - plain(images)).abs().max() / plain(images).abs().max()
    assert 0 < moved < 0.2


def test_a_file_with_some_of_its_tap_missing_is_refused(tmp_path):
    model = holdfast.add_tap(timm.create_model("vit_nano"))
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("blocks.0.dilation")}
    save_file(state, tmp_path / "damaged.safetensors")
    with pytest.raises(HoldfastError, match="missing"):
        holdfast.load_checkpoint(model, tmp_path / "damaged.safetensors")
