"""TORA-ViT and its comparisons: the pretrained function at the start, what depends on the image, sizes, files."""

import copy

import pytest
import timm
import torch
from torch.nn import functional as F

import holdfast
from holdfast.cli.main import main
from holdfast.errors import HoldfastError
from holdfast.models.tora import METHODS, ToraViT, gate_maps

SMALL = {"depth": 3, "embed_dim": 48, "num_heads": 4}
VITS = {
    "vit_nano": {},
    "vit_tiny_patch16_224": {"img_size": 64},
    "deit_tiny_patch16_224": {"img_size": 64},
    "vit_small_patch14_reg4_dinov2": {"img_size": 28, "num_classes": 7},
    "vit_base_patch16_clip_224": {"img_size": 32, "num_classes": 7},
}


def vit(name: str = "vit_nano", **kwargs) -> torch.nn.Module:
    model = timm.create_model(name, **{**VITS[name], **SMALL, **kwargs})
    for parameter in model.parameters():  # a head, tokens and scales that are not zero
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def images(model, count: int = 4) -> torch.Tensor:
    return torch.randn(count, 3, *model.patch_embed.img_size)


def one_step(model: ToraViT, x: torch.Tensor) -> None:
    """A step of everything that was added."""
    for added in (model.layers, model.heads, model.tokens):
        added.requires_grad_(True)
    free = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(free, lr=1e-2)
    F.cross_entropy(model(x), torch.arange(len(x)) % model.num_classes).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("name", VITS)
@pytest.mark.parametrize("method", METHODS)
def test_at_the_start_every_prediction_is_exactly_the_pretrained_one(name, method):
    model = vit(name)
    x = images(model)
    expected = model(x)
    adapted = holdfast.tora(model, method=method)
    views = adapted.views(x)
    assert list(views) == list(adapted.view_names)
    assert all(torch.equal(logits, expected) for logits in views.values())
    assert all(torch.equal(adapted(x, view=view), expected) for view in views)


@pytest.mark.parametrize("softmax", ["adapter", "token"])
def test_after_one_step_both_streams_depend_on_the_image(softmax):
    adapted = holdfast.tora(vit(), gate_softmax=softmax)
    x = images(adapted.backbone)
    before = adapted.streams(x)[1]
    assert not any(stream.any() for stream in before.values())
    one_step(adapted, x)
    for stream in adapted.streams(x)[1].values():
        assert (stream - stream[:1]).abs().max() > 1e-4


def test_under_the_literal_formula_the_streams_never_see_the_image():
    """[ACC]_l = ψ_A([ACC]_{l−1}): what the slides write, after steps that move everything."""
    adapted = holdfast.tora(vit())
    x = images(adapted.backbone)
    for _ in range(3):
        one_step(adapted, x)
    for name in ("acc", "rob"):
        literal = adapted.tokens[name].expand(len(x), 1, -1)
        for layer in adapted.layers:
            literal = layer.get_submodule(name)(literal)
        assert literal.any()
        assert torch.equal(literal, literal[:1].expand_as(literal))


def test_joint_is_the_mean_of_the_two_heads():
    adapted = holdfast.tora(vit())
    x = images(adapted.backbone)
    one_step(adapted, x)
    views = adapted.views(x)
    assert not torch.equal(views["acc"], views["rob"])
    torch.testing.assert_close(views["joint"], (views["acc"] + views["rob"]) / 2)
    torch.testing.assert_close(adapted(x), views["joint"])


def test_the_layers_are_the_formulas_of_the_page():
    """One TORA layer written out: a, r, next input and streams."""
    adapted = holdfast.tora(vit()).double()
    x = images(adapted.backbone).double()
    one_step(adapted, x)
    layer, z = adapted.layers[0], torch.randn(2, 6, 48, dtype=torch.float64)
    streams = {name: torch.randn(2, 1, 48, dtype=torch.float64) for name in ("acc", "rob")}
    a = layer.acc(torch.cat([streams["acc"], z[:, 1:]], dim=1))
    r = layer.rob(torch.cat([streams["rob"], z[:, 1:]], dim=1))
    fusion = layer.fusion
    scores = torch.stack([fusion.split(fusion.q(z)) @ fusion.split(fusion.k(m)).mT for m in (a, r)]) * fusion.scale
    gates = scores.softmax(dim=0) / z.shape[1]
    o_acc, o_rob = (fusion.merge(g @ fusion.split(fusion.v(m))) for g, m in zip(gates, (a, r), strict=True))
    following, new = layer(z, streams, False)
    torch.testing.assert_close(following, z + o_acc + o_rob)
    torch.testing.assert_close(new["acc"], a[:, :1] + o_acc[:, :1])
    torch.testing.assert_close(new["rob"], r[:, :1] + o_rob[:, :1])
    unchanged, last = layer(z, streams, True)
    assert unchanged is z
    torch.testing.assert_close(last, new)


@pytest.mark.parametrize("method", ["tora", "adapter-fusion", "single-adapter"])
def test_gradient_checkpointing_changes_nothing(method):
    plain = holdfast.tora(vit(), method=method)
    x = images(plain.backbone)
    one_step(plain, x)
    saving = copy.deepcopy(plain)
    saving.set_grad_checkpointing(True)
    for model in (plain, saving):
        model.train()(x).square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)


def test_the_pretrained_model_stays_frozen_and_in_evaluation_mode():
    adapted = holdfast.tora(vit("vit_tiny_patch16_224", drop_path_rate=0.5)).train()
    x = images(adapted.backbone)
    assert torch.equal(adapted(x), adapted(x))
    adapted(x).sum().backward()
    assert all(parameter.grad is None for parameter in adapted.backbone.parameters())
    assert not adapted.backbone.training
    assert adapted.layers.training


@pytest.mark.parametrize("method", ["tora", "adapter-fusion"])
def test_gate_maps_are_shares_on_the_token_grid(method):
    adapted = holdfast.tora(vit("vit_small_patch14_reg4_dinov2", img_size=(28, 42)), method=method)
    x = images(adapted.backbone, 2)
    for _ in range(2):
        one_step(adapted, x)
    maps = gate_maps(adapted, x)
    assert maps["acc"].shape == maps["rob"].shape == (2, 3, 2, 3)
    torch.testing.assert_close(maps["acc"] + maps["rob"], torch.ones(2, 3, 2, 3))
    assert maps["acc"].std() > 0
    assert not any(layer._forward_pre_hooks for layer in adapted.layers)
    token = holdfast.tora(vit(), gate_softmax="token")
    sums = gate_maps(token, images(token.backbone, 2))["rob"].sum(dim=(2, 3))
    assert ((sums > 0) & (sums < 1)).all()  # the stream's own place has the rest


def test_the_architecture_tells_what_was_added_and_images_are_prepared_as_before():
    model = vit("deit_tiny_patch16_224")
    adapted = holdfast.tora(model, method="head-only")
    assert adapted.pretrained_cfg == model.pretrained_cfg | {"architecture": "head-only(deit_tiny_patch16_224)"}
    assert adapted.default_cfg == adapted.pretrained_cfg


def test_attention_of_the_pretrained_blocks_can_be_watched():
    adapted = holdfast.tora(vit())
    with holdfast.watch(adapted) as seen:
        adapted(images(adapted.backbone))
    assert [(handle.grid, handle.prefix) for handle in seen.attention] == [((8, 8), 1)] * 3


# ---------------------------------------------------------------------- files


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "kwargs", "sentence"),
    [
        ("resnet18", {}, "TORA needs a plain ViT or DeiT of timm .*, got ResNet"),
        ("fan_nano", {}, "got FAN"),
        ("swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1)}, "got SwinTransformer"),
        ("deit_tiny_distilled_patch16_224", {"depth": 1}, "got VisionTransformerDistilled"),
        ("vit_nano", {"class_token": False, "global_pool": "avg"}, "got VisionTransformer without a class token"),
        ("vit_nano", {"global_pool": "avg"}, "VisionTransformer with global_pool='avg'"),
        ("vit_nano", {"num_classes": 0}, "give a model with one, got num_classes=0"),
    ],
)
def test_models_that_cannot_be_adapted_get_one_sentence(name, kwargs, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.tora(timm.create_model(name, **kwargs))


def test_arguments_that_cannot_be_get_one_sentence():
    adapted = holdfast.tora(vit())
    with pytest.raises(HoldfastError, match="has adapters already"):
        holdfast.tora(adapted)
    with pytest.raises(HoldfastError, match="view must be one of joint, acc, rob, got 'accuracy'"):
        adapted(images(adapted.backbone), view="accuracy")
    with pytest.raises(HoldfastError, match=r"method must be one of .* did you mean 'tora'"):
        holdfast.tora(vit(), method="torra")
    with pytest.raises(HoldfastError, match="gate_softmax must be one of adapter, token"):
        holdfast.tora(vit(), gate_softmax="adapters")
    with pytest.raises(HoldfastError, match="reduction must be at least 1"):
        holdfast.tora(vit(), reduction=0)
    with pytest.raises(HoldfastError, match="gate maps need method tora or adapter-fusion"):
        gate_maps(holdfast.tora(vit(), method="head-only"), images(adapted.backbone))


def test_listed_among_the_methods(capsys):
    assert main(["list", "methods", "tora"]) == 0
    assert "TORA-ViT" in capsys.readouterr().out
