"""Feature pyramids of detectors, strides 4 to 64, on any encoder."""

import pytest
import timm
import torch

import holdfast
from holdfast.models.heads.fpn import SimplePyramid, StageLevels, WithFPN, feature_pyramid
from tests.models.test_detector import (
    NANO,
    SMALL,
    pictures,
)


@pytest.mark.parametrize(
    ("encoder", "options", "pyramid"),
    [
        ("fan_nano_hybrid", NANO, WithFPN),
        ("fan_nano", {"patch_size": 16}, SimplePyramid),
        ("rvt_nano", {"patch_size": 16, "img_size": 96}, SimplePyramid),
        ("vit_nano", {"dynamic_img_size": True}, SimplePyramid),
        ("vit_tiny_patch16_224", {"depth": 2}, SimplePyramid),
        ("swin_tiny_patch4_window7_224", {"depths": (2, 1, 1, 1), "embed_dim": 24}, WithFPN),
        ("convnext_atto", {"depths": (1, 1, 1, 1)}, WithFPN),
        ("resnet18", {}, WithFPN),
    ],
)
def test_any_encoder_gets_a_pyramid_of_five_maps_whose_strides_double(encoder, options, pyramid):
    model = holdfast.detector(encoder, encoder_options=options, **SMALL).eval()
    assert isinstance(model.backbone, pyramid)
    assert model.backbone.strides == (4, 8, 16, 32, 64)
    with torch.no_grad():
        maps = list(model.backbone(torch.rand(1, 3, 96, 128)).values())
        (found,) = model(pictures((60, 90)))
    assert [tuple(level.shape) for level in maps] == [(1, 16, -(-96 // s), -(-128 // s)) for s in (4, 8, 16, 32, 64)]
    assert found["masks"].shape[1:] == (1, 60, 90)


def test_an_encoder_of_one_size_gets_every_image_at_that_size():
    encoder = timm.create_model("fan_swin_tiny_patch4_window7_224", img_size=64, depths=(1, 1, 1, 1), embed_dim=24)
    model = holdfast.detector(encoder, "faster", **SMALL | {"fixed_size": (64, 64)}).eval()
    assert isinstance(model.backbone.levels, StageLevels)
    with torch.no_grad():
        (found,) = model(pictures((50, 100)))
    assert "masks" not in found
    assert found["boxes"][:, 2].max() <= 100


def test_encoders_that_make_no_pyramid_are_refused():
    with pytest.raises(holdfast.HoldfastError, match="strides of the encoder's maps must double, got 2, 4, 4, 8"):
        feature_pyramid(timm.create_model("fan_nano_hybrid"))
    with pytest.raises(holdfast.HoldfastError, match="patches of 4, 8, 16, 32 px for a pyramid, got 14"):
        feature_pyramid(timm.create_model("vit_small_patch14_dinov2", depth=1))
    with pytest.raises(holdfast.HoldfastError, match="timm model with feature_info"):
        holdfast.detector(torch.nn.Linear(2, 2))
    with pytest.raises(holdfast.HoldfastError, match="unknown model 'fan_tyni'"):
        holdfast.detector("fan_tyni")
