"""FAN's detectors compute what the published ones compute, from the encoder to the nine training losses."""

import json
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from torchvision.models.detection.image_list import ImageList

import holdfast
from holdfast.models.heads.fpn import FanHybridLevels
from tests import golden_weights
from tests.models import published_layout

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "detection.json").read_text())
HEADS = GOLDEN["cascade_mask_rcnn_heads/fan_tiny_8_p4_hybrid/128x160"]
SHAPES = [(128, 160)]
BACKBONES = {"fan_tiny_8_p4_hybrid": "fan_tiny_8_p4_hybrid", "fan_large_12_p4_hybrid": "fan_large_16_p4_hybrid"}


class Golden(nn.Module):
    """Fills what is behind the pyramid's levels by the published keys without the wrapper's own prefix."""

    def __init__(self, levels: FanHybridLevels) -> None:
        super().__init__()
        for name, module in levels.encoder.named_children():
            self.add_module(name, module)
        self.cls_token = levels.encoder.cls_token
        self.learnable_downsample = levels.learnable_downsample


@pytest.mark.parametrize("published", BACKBONES)
def test_the_four_maps_of_the_encoder_are_the_published_ones(published):
    golden = GOLDEN[f"{published}/128x160"]
    levels = FanHybridLevels(timm.create_model(BACKBONES[published])).eval()
    filled = golden_weights.fill(Golden(levels))
    assert sum(parameter.numel() for parameter in filled.parameters()) == golden["parameters"]
    assert len(filled.state_dict()) == golden["keys"]
    with torch.no_grad():
        maps = levels(golden_weights.images(f"golden/detection/{published}/128x160", 2, 128, 160))
    for level, expected in zip(maps, golden["levels"], strict=True):
        assert list(level.shape) == expected["shape"]
        check_map(level, expected, tolerance=5e-5)


def check_map(level, expected, *, tolerance):
    """The channels of the first and of the last place, and mean, deviation and largest magnitude of all."""
    for end, values in (("first8", level[:, :8, 0, 0]), ("last8", level[:, -8:, -1, -1])):
        wanted = torch.tensor(expected[end]).reshape(len(level), 8)
        torch.testing.assert_close(values, wanted, atol=tolerance, rtol=0)
    stats = [level.mean().item(), level.std().item(), level.abs().max().item()]
    assert stats == pytest.approx(expected["stats"], abs=tolerance)


@pytest.fixture(scope="module")
def detector():
    """A Cascade Mask R-CNN on FAN-T-Hybrid; only what is behind the encoder has golden weights."""
    model = holdfast.detector("fan_tiny_8_p4_hybrid", "cascade").eval()
    model.backbone.fpn.load_state_dict(published_layout.neck([128, 256, 192, 768]))
    model.rpn.load_state_dict(published_layout.region_proposals())
    stages = {}
    for s in range(3):
        stages |= published_layout.stage(s, prefix=f"stages.{s}.")
    model.roi_heads.load_state_dict(stages)
    return model


@pytest.fixture(scope="module")
def maps(detector):
    channels, strides = (128, 256, 192, 768), (4, 8, 16, 32)
    levels = {
        str(i): 0.5 * golden(f"golden/detection/cascade_mask/level{i}", (1, width, 128 // stride, 160 // stride))
        for i, (width, stride) in enumerate(zip(channels, strides, strict=True))
    }
    with torch.no_grad():
        return detector.backbone.fpn(levels)


def golden(key, shape):
    return torch.from_numpy(golden_weights.normal(key, shape)).float()


@pytest.fixture(scope="module")
def roi_maps(maps):
    return {name: 8 * level for name, level in maps.items()}


ROIS = torch.tensor(HEADS["rois"])


def test_the_whole_has_as_many_parameters_as_published(detector):
    """58,084,530 behind the encoder, plus the boxes and masks that torchvision's layers have for the background."""
    behind = [*detector.backbone.fpn.parameters(), *detector.rpn.parameters(), *detector.roi_heads.parameters()]
    unused = 3 * (4 * 1024 + 4 + 256 + 1)
    assert sum(parameter.numel() for parameter in behind) == HEADS["parameters"] + unused


def test_feature_pyramid(maps):
    for level, expected in zip(maps.values(), HEADS["fpn"], strict=True):
        assert list(level.shape) == expected["shape"]
        check_map(level, expected, tolerance=1e-5)


def test_anchors_are_exact_and_lie_at_multiples_of_the_true_stride(detector, maps):
    images = ImageList(torch.zeros(1, 3, 128, 160), SHAPES)
    anchors = detector.rpn.anchor_generator(images, list(maps.values()))[0]
    counts = [level["count"] for level in HEADS["anchors"]]
    for level, expected in zip(anchors.split(counts), HEADS["anchors"], strict=True):
        torch.testing.assert_close(level[:3], torch.tensor(expected["first3"]), atol=1e-4, rtol=0)
        torch.testing.assert_close(level[-1], torch.tensor(expected["last"]), atol=1e-4, rtol=0)


def test_region_proposals(detector, maps):
    objectness, deltas = detector.rpn.head(list(maps.values()))
    for level, expected in enumerate(HEADS["rpn"]):
        torch.testing.assert_close(
            objectness[level][0, :, 0, 0], torch.tensor(expected["objectness"]), atol=1e-5, rtol=0
        )
        torch.testing.assert_close(deltas[level][0, :, 0, 0], torch.tensor(expected["deltas"]), atol=1e-5, rtol=0)
    (boxes,), losses = detector.rpn(ImageList(torch.zeros(1, 3, 128, 160), SHAPES), maps)
    assert len(boxes) == HEADS["proposals"]["count"]
    torch.testing.assert_close(boxes[:5], torch.tensor(HEADS["proposals"]["first5"])[:, :4], atol=1e-3, rtol=0)
    assert losses == {}


def test_three_stages_on_given_boxes(detector, roi_maps):
    boxes = [ROIS]
    with torch.no_grad():
        for stage, expected in zip(detector.roi_heads.stages, HEADS["stages"], strict=True):
            torch.testing.assert_close(boxes[0][:4], torch.tensor(expected["rois_first4"]), atol=1e-3, rtol=0)
            logits, codes = stage.predict(roi_maps, boxes, SHAPES)
            torch.testing.assert_close(logits[:3, 1:9], torch.tensor(expected["logits_first8"]), atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(logits[:3, 0], torch.tensor(expected["background"]), atol=2e-5, rtol=1e-5)
            best = logits[:, 1:].argmax(dim=1)
            assert best.tolist() == expected["foreground_argmax"]
            boxes = stage.refine_boxes(boxes, codes, best + 1, SHAPES)


def test_scores_are_the_softmax_of_the_mean_logits(detector, roi_maps):
    with torch.no_grad():
        logits, _, _ = detector.roi_heads.final_predictions(roi_maps, [ROIS], SHAPES)
    scores = logits.softmax(dim=1)
    torch.testing.assert_close(scores[:3, 1:9], torch.tensor(HEADS["scores"]["first8"]), atol=1e-6, rtol=0)
    best = scores[:, 1:].amax(dim=1)
    torch.testing.assert_close(best, torch.tensor(HEADS["scores"]["max_foreground"]), atol=1e-6, rtol=0)


def test_detections_and_masks(detector, roi_maps):
    expected = HEADS["detections"]
    detector.roi_heads.stages[-1].score_thresh = expected["score_threshold"]
    with torch.no_grad():
        (found,) = detector.roi_heads.detect(roi_maps, [ROIS], SHAPES)
    assert len(found["boxes"]) == expected["count"]
    assert (found["labels"][:5] - 1).tolist() == expected["labels_first5"]
    first = torch.cat([found["boxes"], found["scores"][:, None]], dim=1)[:5]
    torch.testing.assert_close(first, torch.tensor(expected["boxes_scores_first5"]), atol=1e-3, rtol=0)

    masks = found["masks"][:3, 0]
    expected = HEADS["mask_probability"]
    assert list(masks.shape) == expected["shape"]
    torch.testing.assert_close(masks[:, 14, :8], torch.tensor(expected["row14_first8"]), atol=1e-5, rtol=0)
    torch.testing.assert_close(masks.mean(dim=(1, 2)), torch.tensor(expected["mean"]), atol=1e-5, rtol=0)


def triangles(boxes):
    y, x = torch.meshgrid(torch.arange(128) + 0.5, torch.arange(160) + 0.5, indexing="ij")
    masks = []
    for x0, y0, x1, y1 in boxes:
        inside = (x > x0) & (x < x1) & (y > y0) & (y < y1)
        masks.append(inside & ((x - x0) * (y1 - y0) >= 0.5 * (y - y0) * (x1 - x0)))
    return torch.stack(masks).byte()


@pytest.fixture
def training(detector):
    detector.roi_heads.train()
    for module in detector.roi_heads.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    yield detector.roi_heads
    detector.eval()


def test_nine_training_losses(training, roi_maps):
    given = HEADS["training"]
    boxes = torch.tensor(given["ground_truth"])
    masks = triangles(boxes)
    assert masks.sum(dim=(1, 2)).tolist() == given["mask_pixels"]
    target = {"boxes": boxes, "labels": torch.tensor(given["labels"]) + 1, "masks": masks}
    _, losses = training(roi_maps, [ROIS], SHAPES, [target])
    assert_losses(losses, given["losses"])


def test_an_image_without_objects_trains_the_classifier_alone_and_leaves_no_parameter_without_gradient(
    training, roi_maps
):
    nothing = {
        "boxes": torch.zeros(0, 4),
        "labels": torch.zeros(0, dtype=torch.int64),
        "masks": torch.zeros(0, 128, 160, dtype=torch.uint8),
    }
    _, losses = training(roi_maps, [ROIS], SHAPES, [nothing])
    assert_losses(losses, HEADS["training_without_objects"])
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in training.parameters())
    training.zero_grad()


def assert_losses(losses, expected):
    ours = {"loss_cls": "loss_classifier", "loss_bbox": "loss_box_reg", "loss_mask": "loss_mask"}
    assert len(losses) == len(expected) == 9
    for key, value in expected.items():
        stage, name = key.split(".")
        found = losses[f"stage{int(stage[1:]) + 1}.{ours[name]}"].item()
        assert found == pytest.approx(value, rel=1e-5, abs=1e-6), key
