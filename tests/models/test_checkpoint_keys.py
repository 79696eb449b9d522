"""Keys of published files become ours, whatever their spelling."""

import pytest
import timm
import torch
from safetensors.torch import save_file

import holdfast
from holdfast.cli.main import main
from holdfast.models.checkpoints import read_weights
from tests.models.test_checkpoints import logits, saver_dict, trained


def fuse_class_attention(state: dict) -> dict:
    fused = dict(state)
    for block in {key.split(".")[1] for key in state if key.startswith("cls_attn_blocks.")}:
        for leaf in ("weight", "bias"):
            parts = [fused.pop(f"cls_attn_blocks.{block}.attn.{part}.{leaf}") for part in "qkv"]
            fused[f"cls_attn_blocks.{block}.attn.qkv.{leaf}"] = torch.cat(parts)
    return fused


def without_buffers(state: dict) -> dict:
    return {key: value for key, value in state.items() if not key.endswith(("attn_mask", "relative_position_index"))}


SPELLINGS = {  # model, keyword arguments, what the file makes of its state
    "pos_embeder": ("fan_nano", {}, lambda s: {k.replace("pos_embed.", "pos_embeder."): v for k, v in s.items()}),
    "fused class attention": ("fan_nano", {}, fuse_class_attention),
    "Swin without its derived buffers": ("fan_swin_tiny_patch4_window7_224", {"img_size": 32}, without_buffers),
    "Swin with them": ("fan_swin_tiny_patch4_window7_224", {"img_size": 32}, dict),
    "TAP": ("tap_rvt_tiny_plus", {"img_size": 32}, dict),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_gives_equal_logits(spelling, tmp_path):
    name, kwargs, respell = SPELLINGS[spelling]
    source = trained(name, **kwargs)
    torch.save(saver_dict(respell(source.state_dict())), tmp_path / "official.pth")
    model = timm.create_model(name, **kwargs)
    holdfast.load_checkpoint(model, tmp_path / "official.pth")
    torch.testing.assert_close(logits(model), logits(source), atol=0, rtol=0)


RVT_FORMS = [
    {"masked_blocks": 7},
    {"masked_blocks": 0},
    {"mlp": "linear"},
    {"conv_qkv": True},
    {"conv_qkv": True, "masked_blocks": 5, "mlp": "linear"},
]


@pytest.mark.parametrize("form", RVT_FORMS)
def test_rvt_follows_the_keys_of_the_file(form, tmp_path):
    source = trained("rvt_nano", **form)
    torch.save({"model": source.state_dict()}, tmp_path / "rvt.pth")
    model = timm.create_model("rvt_nano")
    holdfast.load_checkpoint(model, tmp_path / "rvt.pth")
    torch.testing.assert_close(logits(model), logits(source), atol=0, rtol=0)
    assert main(["convert", str(tmp_path / "rvt.pth"), str(tmp_path / "out"), "--model", "rvt_nano"]) == 0
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    torch.testing.assert_close(logits(again), logits(source), atol=0, rtol=0)


def test_an_mmseg_file_fills_the_backbone(tmp_path):
    source = trained("fan_nano_hybrid", pos_floor=False)
    state = {f"backbone.{k}": v for k, v in source.state_dict().items() if not k.startswith(("norm.", "head."))}
    state["decode_head.linear_pred.weight"] = torch.randn(19, 8)
    torch.save({"state_dict": state, "meta": {"epoch": 1}}, tmp_path / "mmseg.pth")
    model = timm.create_model("fan_nano_hybrid", pos_floor=False)
    loaded = holdfast.load_checkpoint(model, tmp_path / "mmseg.pth")
    assert set(loaded.left_out) == {"head.weight", "head.bias", "norm.weight", "norm.bias"}
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        ours = model.eval().forward_intermediates(images, intermediates_only=True)
        theirs = source.eval().forward_intermediates(images, intermediates_only=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=0)


def test_timm_models_load_with_their_own_fix_ups(tmp_path):
    source = trained("vit_tiny_patch16_224", img_size=48, num_classes=5)
    save_file(source.state_dict(), tmp_path / "vit.safetensors")
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=5)
    holdfast.load_checkpoint(model, tmp_path / "vit.safetensors")
    assert model.pos_embed.shape[1] == 17
    torch.testing.assert_close(model.blocks[3].attn.qkv.weight, source.blocks[3].attn.qkv.weight)


def test_prefixes_are_stripped_on_reading(tmp_path):
    torch.save({"state_dict": {"module.a": torch.ones(1)}}, tmp_path / "x.pth")
    assert read_weights(tmp_path / "x.pth").keys() == {"a"}
