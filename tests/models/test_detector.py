"""Detectors on any encoder: torchvision's protocol, and where the published arithmetic differs from torchvision's."""

import pytest
import timm
import torch
from timm.models._hub import save_for_hf
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import generalized_box_iou

import holdfast
from holdfast.models.heads.cascade_rcnn import AlignedPool, mask_targets
from holdfast.models.heads.detection_transform import paste_masks, scaled_size
from holdfast.models.heads.fpn import SimplePyramid, StageLevels, WithFPN, feature_pyramid
from holdfast.models.heads.rpn import BestMatcher, RegionProposals, TwoSidedBoxCoder

NANO = {"patch_size": 16, "trunk_stride": 8, "img_size": 128}
SMALL = {
    "num_classes": 10,
    "channels": 16,
    "head_width": 32,
    "mask_convs": (16,),
    "top_channels": 24,
    "min_size": 96,
    "max_size": 128,
    "proposals": (60, 40),
    "samples": 32,
}


def nano(kind="mask", **settings):
    return holdfast.detector("fan_nano_hybrid", kind, encoder_options=NANO, **SMALL | settings)


def pictures(*sizes):
    return [torch.rand(3, height, width, generator=torch.Generator().manual_seed(height)) for height, width in sizes]


def a_target(height, width, *, objects=2):
    boxes = torch.tensor([[4.0, 6.0, 40.0, 50.0], [30.0, 20.0, 60.0, 44.0]])[:objects].reshape(-1, 4)
    masks = torch.zeros(objects, height, width, dtype=torch.uint8)
    for mask, (x0, y0, x1, y1) in zip(masks, boxes.int().tolist(), strict=True):
        mask[y0:y1, x0:x1] = 1
    return {"boxes": boxes, "labels": torch.tensor([3, 10])[:objects], "masks": masks}


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


@pytest.mark.parametrize("kind", ["faster", "mask", "cascade"])
def test_training_gives_losses_by_name_and_a_gradient_to_every_parameter_that_learns(kind):
    model = nano(kind).train()
    losses = model(pictures((64, 96), (96, 64)), [a_target(64, 96), a_target(96, 64, objects=0)])
    names = {"loss_classifier", "loss_box_reg", *(() if kind == "faster" else ("loss_mask",))}
    stages = {f"stage{n}.{name}" for n in (1, 2, 3) for name in names} if kind == "cascade" else names
    assert set(losses) == stages | {"loss_objectness", "loss_rpn_box_reg"}
    assert all(torch.isfinite(loss) for loss in losses.values())
    sum(losses.values()).backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []


def test_a_few_steps_on_one_image_lower_the_loss():
    model = nano("cascade").train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, targets = pictures((96, 96)), [a_target(96, 96)]
    totals = []
    for _ in range(12):
        loss = sum(model(images, targets).values())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        totals.append(loss.item())
    assert sum(totals[-3:]) < 0.7 * sum(totals[:3])


def test_a_detector_is_a_model_of_timm_and_comes_back_from_a_folder(tmp_path):
    arguments = {"encoder": "fan_nano_hybrid", "kind": "cascade", "encoder_options": NANO, **SMALL}
    model = timm.create_model("detector", **arguments).eval()
    assert model.pretrained_cfg["mean"] == (0, 0, 0)
    save_for_hf(model, str(tmp_path), model_args=arguments, safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert again.settings == model.settings
    images = pictures((60, 90))
    with torch.no_grad():
        for key, value in model(images)[0].items():
            assert torch.equal(again(images)[0][key], value)


def test_new_classes_get_new_layers():
    model = nano("mask")
    model.reset_classifier(3)
    assert model.get_classifier().out_features == 4
    assert model.roi_heads.stages[0].mask_predictor.mask_fcn_logits.out_channels == 4
    assert model.pretrained_cfg["num_classes"] == 3


def test_an_encoders_weights_are_loaded_alone(tmp_path):
    encoder = timm.create_model("fan_nano_hybrid", **NANO)
    torch.save(encoder.state_dict(), tmp_path / "imagenet.pth")
    model = nano("faster")
    heads = {key: value.clone() for key, value in model.roi_heads.state_dict().items()}
    holdfast.load_checkpoint(model, tmp_path / "imagenet.pth")
    for key, value in model.encoder.state_dict().items():
        assert torch.equal(value, encoder.state_dict()[key])
    assert all(torch.equal(value, heads[key]) for key, value in model.roi_heads.state_dict().items())

    torch.save(timm.create_model("fan_nano").state_dict(), tmp_path / "other.pth")
    with pytest.raises(holdfast.HoldfastError, match=r"other.pth does not fit FAN"):
        holdfast.load_checkpoint(model, tmp_path / "other.pth")

    torch.save(model.state_dict(), tmp_path / "detector.pth")
    assert holdfast.load_checkpoint(nano("faster"), tmp_path / "detector.pth").used == len(model.state_dict())


def test_the_mean_of_logits_is_not_the_mean_of_probabilities():
    logits = torch.tensor([[2.0, 0, -1], [0, 3, 0], [1, 1, -2]])
    torch.testing.assert_close(logits.mean(0).softmax(0), torch.tensor([0.3951, 0.5514, 0.0535]), atol=5e-5, rtol=0)


def test_giou_of_two_shifted_squares():
    one, other = torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[5.0, 5, 15, 15]])
    assert generalized_box_iou(one, other).item() == pytest.approx(-0.079365, abs=1e-6)


def test_an_object_claims_its_best_box_only_if_that_is_good_enough():
    overlaps = torch.tensor([[0.8, 0.5, 0.0, 0.0], [0.75, 0.1, 0.29, 0.2], [0.0, 0.35, 0.1, 0.31]])
    # box 0 is best for objects 0 and 1: the later claim wins; box 1 is object 2's best though it overlaps object 0 more
    assert BestMatcher(0.7, 0.3)(overlaps).tolist() == [1, 2, -1, -2]
    weak = torch.tensor([[0.29, 0.1]])
    assert BestMatcher(0.7, 0.3)(weak).tolist() == [-1, -1]


def test_boxes_neither_grow_nor_shrink_by_more_than_sixty_two_times():
    boxes = torch.tensor([[0.0, 0, 62.5, 62.5]])
    codes = torch.tensor([[0.0, 0, 99, -99]])
    x0, y0, x1, y1 = TwoSidedBoxCoder((1.0, 1.0, 1.0, 1.0)).decode_single(codes, boxes)[0].tolist()
    assert x1 - x0 == pytest.approx(62.5**2, rel=1e-5)
    assert y1 - y0 == pytest.approx(1, rel=1e-4)
    ordinary = torch.tensor([[0.3, -0.2, 0.5, -0.4]])
    torch.testing.assert_close(
        TwoSidedBoxCoder((30.0, 30.0, 15.0, 15.0)).decode_single(ordinary, boxes),
        BoxCoder((30.0, 30.0, 15.0, 15.0)).decode_single(ordinary, boxes),
    )


def test_anchors_that_cross_the_border_train_unless_told_otherwise():
    target = {"boxes": torch.tensor([[20.0, 20, 52, 52]]), "labels": torch.tensor([1])}
    anchors = torch.tensor([[20.0, 20, 52, 52], [-1, 20, 31, 52], [40, 40, 64, 72], [0, 0, 8, 8]])
    sized = {**target, "size": torch.tensor([64, 64])}
    everywhere = RegionProposals(8, (4, 8), proposals=(10, 10))
    inside = RegionProposals(8, (4, 8), proposals=(10, 10), border_anchors=False)
    assert everywhere.assign_targets_to_anchors([anchors], [sized])[0][0].tolist() == [1, 0, 0, 0]
    assert inside.assign_targets_to_anchors([anchors], [sized])[0][0].tolist() == [1, -1, -1, 0]


def test_anchor_strides_are_those_of_the_maps_at_any_padded_size():
    images = ImageList(torch.zeros(1, 3, 800, 1344), [(800, 1333)])
    rpn = RegionProposals(8, (4, 8, 16, 32, 64), proposals=(10, 10))
    maps = [torch.zeros(1, 8, -(-800 // s), -(-1344 // s)) for s in (4, 8, 16, 32, 64)]
    coarsest = rpn.anchor_generator(images, maps)[0][-13 * 21 * 3 :].view(13, 21, 3, 4)
    centres = (coarsest[..., :2] + coarsest[..., 2:]) / 2
    assert centres[1, 0, 0].tolist() == [0, 64]
    assert centres[12, 20, 2].tolist() == pytest.approx([1280, 768], abs=1e-3)


def test_pooling_a_box_on_a_slope_gives_its_pixel_centres():
    """A map whose value is x in pixels of the image: aligned cells of [8, 24] have their centres' x."""
    slope = (torch.arange(16.0) * 4 + 2).expand(1, 1, 16, 16).contiguous()  # stride 4: cell centres at 2, 6, 10 …
    pool = AlignedPool((4,), 4)
    values = pool({"0": slope}, [torch.tensor([[8.0, 8, 24, 24]])], [(64, 64)])
    torch.testing.assert_close(values[0, 0, 0], torch.tensor([10.0, 14, 18, 22]))


def test_large_boxes_are_pooled_from_coarse_maps():
    pool = AlignedPool((4, 8, 16, 32), 7)
    sides = torch.tensor([10.0, 56, 111, 113, 224, 448, 2000])
    rois = torch.stack([torch.zeros(7), torch.zeros(7), torch.zeros(7), sides, sides], dim=1)
    assert pool.level_of(rois).tolist() == [0, 0, 0, 1, 2, 3, 3]


def test_mask_targets_are_zero_or_one():
    masks = torch.zeros(2, 60, 60, dtype=torch.uint8)
    masks[1, 10:38, 10:24] = 1
    wanted = mask_targets(masks, torch.tensor([[10.0, 10, 38, 38], [10.0, 10, 38, 38]]), torch.tensor([1, 0]))
    assert wanted[0, :, :14].min() == 1
    assert wanted[0, :, 14:].max() == 0
    assert wanted[1].max() == 0


def test_images_are_resized_as_published():
    assert scaled_size((480, 640), 800, 1333) == (800, 1067)
    assert scaled_size((300, 900), 800, 1333) == (444, 1333)


def test_a_full_mask_is_pasted_on_exactly_its_box():
    masks = paste_masks(torch.ones(1, 1, 28, 28), torch.tensor([[3.0, 5.0, 11.0, 9.0]]), (16, 20)) >= 0.5
    ys, xs = torch.where(masks[0, 0])
    assert (xs.min(), xs.max(), ys.min(), ys.max()) == (3, 10, 5, 8)
    assert masks.sum() == 8 * 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"kind": "msak"}, "kind must be one of faster, mask, cascade, got 'msak'; did you mean 'mask'?"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        (
            {"chanels": 8},
            "settings must be those of DetectorSettings, got 'chanels'; did you mean 'channels' or 'top_channels'?",
        ),
        ({"mask_convs": ()}, "mask_convs must be one or more widths"),
        ({"encoder_options": {"dept": 3}}, "options of encoder 'fan_nano_hybrid' must be its own arguments"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence.replace("?", r"\?")):
        holdfast.detector("fan_nano_hybrid", **arguments)


def test_encoders_that_make_no_pyramid_are_refused():
    with pytest.raises(holdfast.HoldfastError, match="strides of the encoder's maps must double, got 2, 4, 4, 8"):
        feature_pyramid(timm.create_model("fan_nano_hybrid"))
    with pytest.raises(holdfast.HoldfastError, match="patches of 4, 8, 16, 32 px for a pyramid, got 14"):
        feature_pyramid(timm.create_model("vit_small_patch14_dinov2", depth=1))
    with pytest.raises(holdfast.HoldfastError, match="timm model with feature_info"):
        holdfast.detector(torch.nn.Linear(2, 2))
    with pytest.raises(holdfast.HoldfastError, match="unknown model 'fan_tyni'"):
        holdfast.detector("fan_tyni")
