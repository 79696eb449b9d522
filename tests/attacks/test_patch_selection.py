"""Patch selection: by attention, by gradient or at random, and the pixels of the selected patches."""

import pytest
import timm
import torch

import holdfast
from holdfast.attacks.patch_selection import attention_received_by_patches, fitting_patch
from tests.methods.test_robust_training import (
    afat,
    batch,
    build,
)


def test_the_patch_of_an_occlusion_fits_the_image():
    assert {side: fitting_patch((side, side)) for side in (32, 64, 224, 384, 299)} == {
        32: 4,
        64: 8,
        224: 16,
        384: 16,
        299: 23,
    }


def test_attention_looks_at_the_model_without_leaving_a_trace_also_in_half_precision():
    model = timm.create_model("fan_nano").train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    images, targets = batch()
    attention_received_by_patches(model, images)
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = build(afat(model, selection="attention"))(model, images, targets).total
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_attention_over_windows_or_no_model_at_all_cannot_choose():
    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1))
    with pytest.raises(
        holdfast.HoldfastError, match=r"blocks that attend to all patches of one grid .* SwinTransformer"
    ):
        attention_received_by_patches(swin, torch.zeros(1, 3, 224, 224))
    images, _ = batch()
    with pytest.raises(holdfast.HoldfastError, match="selection 'attention' of AFAT needs a model"):
        afat(timm.create_model("vit_nano"), selection="attention").corrupt(images)
