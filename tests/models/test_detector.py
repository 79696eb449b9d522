"""Detectors on any encoder: torchvision's protocol, and where the published arithmetic differs from torchvision's."""

import pytest
import timm
import torch
from timm.models._hub import save_for_hf
from torchvision.ops import generalized_box_iou

import holdfast
from holdfast.models.heads.detection_transform import paste_masks, scaled_size

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
