"""Segmenters compute what the published ones compute, and take any encoder and any size."""

import json
from pathlib import Path

import pytest
import timm
import torch
from torch.nn import functional as F

import holdfast
from holdfast.errors import HoldfastError
from holdfast.methods import AttentionDiversification
from holdfast.methods.segmentation_loss import pixel_cross_entropy
from tests import golden_weights

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "segmentation.json").read_text())
LARGE = "fan_large_16_p4_hybrid/128x192"
MODELS = [name for name in GOLDEN if "x" in name.rpartition("/")[2] and not name.startswith("adl/")]
CONV_SEG = 19 * 256 + 19  # in every released model with SegFormer's head, never used
TOLERANCE = 1e-5


def published(entry: str) -> holdfast.models.segmenter.Segmenter:
    encoder, _, head = entry.partition("/")[0].partition("+")
    model = holdfast.segmenter(encoder, "setr" if head else "segformer", sizes="floor")
    return golden_weights.fill(model).eval()


def size_of(entry: str) -> tuple[int, int]:
    height, width = entry.rpartition("/")[2].split("x")
    return int(height), int(width)


def statistics(values: torch.Tensor) -> list[float]:
    return [values.mean().item(), values.std().item(), values.abs().max().item()]


def check_samples(values: torch.Tensor, samples: list) -> None:
    for (image, row, column), expected in samples:
        torch.testing.assert_close(values[image, :8, row, column], torch.tensor(expected), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("entry", [pytest.param(n, marks=pytest.mark.full if n == LARGE else ()) for n in MODELS])
@torch.no_grad()
def test_maps_logits_and_loss_are_the_published_ones(entry):
    golden, (height, width) = GOLDEN[entry], size_of(entry)
    model = published(entry)
    unused = 0 if "setr" in entry else CONV_SEG
    parameters = [sum(p.numel() for p in part.parameters()) for part in (model.backbone, model.decode_head)]
    assert parameters == [golden["backbone_parameters"], golden["head_parameters"] - unused]
    assert len(model.state_dict()) == golden["keys"] - (2 if unused else 0)

    images = golden_weights.images(f"golden/seg/{entry}", 2, height, width)
    maps = model.features(images)
    assert [list(one.shape) for one in maps] == golden["feature_shapes"]
    for one, expected in zip(maps, golden["feature_stats"], strict=True):
        assert statistics(one) == pytest.approx(expected, abs=TOLERANCE)
    at_head, logits = model.decode_head(maps), model(images)
    assert [list(at_head.shape), list(logits.shape)] == [golden["head_logits_shape"], golden["logits_shape"]]
    assert statistics(at_head) == pytest.approx(golden["head_logits_stats"], abs=TOLERANCE)
    assert statistics(logits) == pytest.approx(golden["logits_stats"], abs=TOLERANCE)
    check_samples(at_head, golden["head_logits_samples"])
    check_samples(logits, golden["logits_samples"])

    predicted = torch.bincount(logits.argmax(1).flatten(), minlength=19)
    differing = (predicted - torch.tensor(golden["pixels_per_predicted_class"])).abs().sum()
    assert differing <= 2 * golden["pixels_with_margin_below_1e-4"]
    labels = golden_weights.labels(f"golden/seg/{entry}", 2, height, width)
    loss = pixel_cross_entropy(logits, labels, divisor="all").item()
    assert loss == pytest.approx(golden["loss_mean_over_all_pixels"], abs=TOLERANCE)
    assert pixel_cross_entropy(logits, labels).item() == pytest.approx(loss / golden["labelled_fraction"], abs=1e-5)
    assert (labels != 255).float().mean().item() == pytest.approx(golden["labelled_fraction"], abs=1e-6)


@torch.no_grad()
def test_sliding_windows_are_the_published_ones():
    (entry,) = (name for name in MODELS if "slide" in GOLDEN[name])
    golden = GOLDEN[entry]["slide"]
    images = golden_weights.images(f"golden/seg/{entry}", 2, *size_of(entry))
    logits = holdfast.slide(published(entry), images, window=tuple(golden["crop"]), stride=golden["stride"][0])
    assert statistics(logits) == pytest.approx(golden["logits_stats"], abs=TOLERANCE)
    check_samples(logits, golden["logits_samples"])


def test_adl_in_a_segmenter_is_the_published_one():
    golden = GOLDEN["adl/tap_fan_tiny_8_p4_hybrid/128x128"]
    model = golden_weights.fill(holdfast.segmenter("tap_fan_tiny_8_p4_hybrid")).eval()
    images = golden_weights.images("golden/seg/adl", 2, 128, 128)
    with torch.no_grad(), holdfast.watch(model) as seen:
        model(images)
        loss, _ = AttentionDiversification()(seen.attention)
    assert loss.item() == pytest.approx(golden["as_released_batch_2"], abs=1e-6)
    largest = [
        (64 * handle.maps().mean(dim=(1, 2)).max()).item()  # mean over heads and queries, times tokens
        for handle in seen.attention
    ]
    assert largest == pytest.approx(golden["largest_mean_attention_times_tokens_per_block"], abs=1e-3)


# ---------------------------------------------------------------------- the head


def head_as_published(head: torch.nn.Module, maps: list[torch.Tensor]) -> torch.Tensor:
    """SegFormer's head as it is printed: project, resample, concatenate coarsest first, fuse."""
    finest = maps[0].shape[-2:]
    parts = []
    for number, one in enumerate(maps, start=1):
        projected = getattr(head, f"linear_c{number}").proj(one.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        parts.append(F.interpolate(projected, size=finest, mode="bilinear", align_corners=False))
    return head.linear_pred(head.dropout(head.linear_fuse(torch.cat(parts[::-1], dim=1))))


@pytest.mark.parametrize("training", [False, True])
def test_the_folded_head_equals_the_plain_one_in_values_and_gradients(training):
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=5, dropout=0.0).double()
    head = model.decode_head.train(training)
    torch.nn.init.normal_(head.linear_fuse.bn.weight)
    sizes = [(12, 17), (6, 8), (3, 4), (3, 4)]
    maps = [
        torch.randn(2, c, *size, dtype=torch.double, requires_grad=True)
        for c, size in zip(model.maps.channels, sizes, strict=True)
    ]
    inputs = [*maps, *head.parameters()]
    folded, plain = (compute(maps) for compute in (head, lambda maps: head_as_published(head, maps)))
    torch.testing.assert_close(folded, plain, atol=1e-12, rtol=1e-10)
    weights = torch.randn_like(plain)
    gradients = [torch.autograd.grad((logits * weights).sum(), inputs) for logits in (folded, plain)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-8)


def test_dropout_takes_whole_channels():
    head = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3, dropout=0.5).decode_head.train()
    seen = []
    head.linear_pred.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    head([torch.randn(1, c, s, s) for c, s in ((32, 8), (64, 4), (128, 2), (128, 2))])
    dropped = (seen[0] == 0).flatten(2).all(dim=2)
    assert 20 < dropped.sum() < 108


# ---------------------------------------------------------------------- encoders and sizes

ENCODERS = {  # name → strides
    "fan_mini_4_p4_hybrid": (4, 8, 16, 16),
    "tap_fan_tiny_8_p4_hybrid": (4, 8, 16, 16),
    "fan_tiny_12_p16_224": (16, 16, 16, 16),
    "rvt_tiny": (16, 16, 16, 32),
    "vit_tiny_patch16_224": (16, 16, 16, 16),
    "swin_tiny_patch4_window7_224": (4, 8, 16, 32),
    "resnet18": (4, 8, 16, 32),
    "convnext_atto": (4, 8, 16, 32),
    "pvt_v2_b0": (4, 8, 16, 32),
}


@pytest.mark.parametrize("encoder", ENCODERS)
def test_any_encoder_any_size_and_every_weight_learns(encoder):
    model = holdfast.segmenter(encoder, num_classes=4, width=32)
    assert model.maps.strides == ENCODERS[encoder]
    images = torch.randn(2, 3, 70, 99)
    logits = model.train()(images)
    assert logits.shape == (2, 4, 70, 99)
    pixel_cross_entropy(logits, torch.randint(0, 4, (2, 70, 99))).backward()
    dead = [key for key, parameter in model.named_parameters() if parameter.grad is None]
    last = f"backbone.cls_attn_blocks.{len(getattr(model.backbone, 'cls_attn_blocks', ())) - 1}."
    assert [key for key in dead if not key.startswith(last)] == []  # the class token's own last step leads nowhere
    with torch.no_grad():
        assert model.eval()(torch.randn(1, 3, 33, 65)).shape == (1, 4, 33, 65)


def test_the_small_encoder_has_the_published_strides_and_one_and_a_half_million_parameters():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11)
    assert 1.2e6 < sum(parameter.numel() for parameter in model.parameters()) < 1.6e6


@torch.no_grad()
def test_padding_adds_nothing_where_nothing_is_missing_and_follows_the_mean_colour_elsewhere():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3).eval()
    floor = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3, sizes="floor").eval()
    floor.load_state_dict(model.state_dict())
    even = torch.randn(1, 3, 64, 80)
    torch.testing.assert_close(model(even), floor(even), atol=0, rtol=0)
    odd = torch.randn(1, 3, 61, 77)
    torch.testing.assert_close(model(odd), model(F.pad(odd, (0, 3, 0, 3)))[..., :61, :77], atol=0, rtol=0)
    assert not torch.allclose(model(odd), floor(odd))


@torch.no_grad()
def test_windows_average_logits_and_small_images_are_one_window():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3).eval()
    images = torch.randn(1, 3, 40, 112)
    torch.testing.assert_close(holdfast.slide(model, images, window=128, stride=64), model(images), atol=0, rtol=0)
    seen = holdfast.slide(model, images, window=64, stride=48)
    left, right = model(images[..., :64]), model(images[..., 48:])
    torch.testing.assert_close(seen[..., :48], left[..., :48])
    torch.testing.assert_close(seen[..., 48:64], (left[..., 48:] + right[..., :16]) / 2)
    torch.testing.assert_close(seen[..., 64:], right[..., 16:])


# ---------------------------------------------------------------------- files


def released_file(model: torch.nn.Module, path: Path, *, old: bool = False) -> Path:
    """What a released training checkpoint looks like: a container, an unused convolution, perhaps the older names."""
    state = dict(model.state_dict())
    if old:
        state = {
            key.replace("linear_fuse", "hybrid_embed_fuse")
            .replace("linear_c", "hybrid_embed_c")
            .replace("linear_pred", "conv_seg"): value
            for key, value in state.items()
        }
    else:
        state["decode_head.conv_seg.weight"] = torch.zeros(19, 256, 1, 1)
        state["decode_head.conv_seg.bias"] = torch.zeros(19)
    torch.save({"meta": {"CLASSES": ["road"]}, "state_dict": state, "optimizer": {}}, path)
    return path


@pytest.mark.parametrize("old", [False, True])
def test_released_files_load_whole(tmp_path, old):
    giver, taker = (holdfast.segmenter("fan_mini_4_p4_hybrid") for _ in range(2))
    loaded = holdfast.load_checkpoint(taker, released_file(giver, tmp_path / "iter_160000.pth", old=old))
    assert loaded.left_out == ()
    for key, value in giver.state_dict().items():
        torch.testing.assert_close(taker.state_dict()[key], value, atol=0, rtol=0)


def test_a_released_file_is_refused_by_positions_with_floor(tmp_path):
    giver = holdfast.segmenter("fan_mini_4_p4_hybrid")
    taker = holdfast.segmenter("fan_mini_4_p4_hybrid", pos_floor=True)
    with pytest.raises(HoldfastError, match="pos_floor=False"):
        holdfast.load_checkpoint(taker, released_file(giver, tmp_path / "iter.pth"))


def test_another_number_of_classes_keeps_its_own_last_convolution(tmp_path):
    giver, taker = holdfast.segmenter("fan_mini_4_p4_hybrid"), holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=7)
    loaded = holdfast.load_checkpoint(taker, released_file(giver, tmp_path / "iter.pth"))
    assert loaded.left_out == ("decode_head.linear_pred.bias", "decode_head.linear_pred.weight")
    torch.testing.assert_close(taker.decode_head.linear_c1.proj.weight, giver.decode_head.linear_c1.proj.weight)


def test_a_classifier_starts_the_encoder(tmp_path):
    classifier, model = timm.create_model("fan_mini_4_p4_hybrid"), holdfast.segmenter("fan_mini_4_p4_hybrid")
    torch.save({"state_dict": classifier.state_dict()}, tmp_path / "classifier.pth")
    before = model.decode_head.linear_pred.weight.clone()
    loaded = holdfast.load_checkpoint(model, tmp_path / "classifier.pth")
    assert loaded.used == len(model.backbone.state_dict())
    torch.testing.assert_close(model.backbone.blocks[3].attn.kv.weight, classifier.blocks[3].attn.kv.weight)
    torch.testing.assert_close(model.decode_head.linear_pred.weight, before)


def test_a_file_of_another_encoder_is_refused(tmp_path):
    giver = holdfast.segmenter("fan_tiny_8_p4_hybrid")
    with pytest.raises(HoldfastError, match="does not fit Segmenter"):
        holdfast.load_checkpoint(holdfast.segmenter("fan_mini_4_p4_hybrid"), released_file(giver, tmp_path / "i.pth"))


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"head": "segfromer"}, "did you mean 'segformer'"),
        ({"num_classes": 0}, "num_classes must be at least 1"),
        ({"sizes": "ceil"}, "sizes must be 'pad' or 'floor'"),
        ({"encoder": "fan_mini"}, "unknown model 'fan_mini'"),
        ({"encoder": "resnet18", "sizes": "floor"}, "only FAN"),
        ({"encoder": "resnet18", "maps": (1, 9)}, "indices of the model's 5 features"),
        ({"depths": 3}, "must be its own arguments"),
        ({"encoder": torch.nn.Linear(1, 1)}, "forward_intermediates"),
    ],
)
def test_what_cannot_be_built_gets_one_sentence(arguments, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        holdfast.segmenter(**{"encoder": "fan_mini_4_p4_hybrid", **arguments})


def test_images_seen_at_another_size_have_logits_at_their_own():
    torch.manual_seed(0)
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=3, seen_at=[32, 64]).eval()
    images = torch.randn(1, 3, 64, 128)
    small = torch.nn.functional.interpolate(images, size=(32, 64), mode="bilinear", antialias=True)
    with torch.no_grad():
        inside = model(small)
        expected = torch.nn.functional.interpolate(inside, size=(64, 128), mode="bilinear")
        torch.testing.assert_close(model(images), expected)
    assert inside.shape == (1, 3, 32, 64)


def test_timms_encoders_take_tap_as_ours_do():
    options = {"embed_dim": 32, "depth": 4, "num_heads": 2, "width": 16, "num_classes": 3}
    model = holdfast.segmenter("vit_tiny_patch16_224", tap="tap", **options)
    pools = [name for name, _ in model.named_modules() if name.endswith("dilation_predictor")]
    assert len(pools) == 4
    assert model(torch.randn(1, 3, 48, 80)).shape == (1, 3, 48, 80)


def test_class_weights_are_torchs_and_must_be_one_per_class():
    logits, labels = torch.randn(2, 3, 5, 7), torch.randint(3, (2, 5, 7))
    labels[0, 0] = 255
    weights = [1.0, 0.5, 4.0]
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=torch.tensor(weights), ignore_index=255)
    torch.testing.assert_close(pixel_cross_entropy(logits, labels, class_weights=weights), expected)
    with pytest.raises(HoldfastError, match="class_weights must have 3 values, one per class, got 2"):
        pixel_cross_entropy(logits, labels, class_weights=[1.0, 2.0])
