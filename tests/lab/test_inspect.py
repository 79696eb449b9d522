"""A number in the lab equals the number in the records of evaluate and the results of analyze."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import holdfast
from holdfast.analysis.query_maps import place_of, query_map, received_map
from holdfast.analysis.settings import Settings
from holdfast.attacks.patch_selection import attention_received
from holdfast.attention import watch
from holdfast.corruptions import corrupt_batch
from holdfast.data import open_data
from holdfast.data.subsets import Subset
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import ComputeConfig, EvalProtocol
from holdfast.lab import inspect_image, open_model, probabilities, right
from holdfast.lab.inspect import focus_of
from holdfast.lab.server import kind_groups
from holdfast.lab.view_data import answers
from holdfast.models import create_model
from holdfast.models.corruption_model import Corruptor
from tests.evaluation.toys import colours

IMAGES = 3
SUITES = "clean,corruptions,cifar-c-bar,fgsm,pgd5,pgd5-rspc,occlusion-random"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return create_model("fan_nano", num_classes=10).eval()


@pytest.fixture(scope="module")
def data():
    return Subset(open_data("digits:test", split="test"), np.arange(IMAGES))


@pytest.fixture(scope="module")
def lens(model, data):
    return open_model(model, data)


@pytest.fixture(scope="module")
def records(model, data):
    return holdfast.evaluate(model, data, SUITES, workers=0, compute=ComputeConfig(attack_batch_size=1), show=False)


def test_the_lab_offers_c_bar_to_classifiers(lens):
    groups = dict(kind_groups(lens.kinds))
    assert list(groups)[-2:] == ["extra", "c-bar"]
    assert len(groups["c-bar"]) == 15


CELLS = {
    "": "clean",
    "fog/3": "fog/3",
    "gaussian_noise/5": "gaussian_noise/5",
    "jpeg_compression/2": "jpeg_compression/2",
    "sparkles/4": "sparkles/4",
    "fgsm/1": "fgsm",
    "pgd/1": "pgd5",
    "pgd/8": "pgd5-rspc",
}


@pytest.mark.parametrize(("damage", "cell"), CELLS.items())
def test_answers_are_those_of_the_records(lens, records, damage, cell):
    recorded = records.cells[cell]
    for number in range(IMAGES):
        seen = inspect_image(lens, number, damage)
        chances = probabilities(seen.after.answers[""][0])
        assert chances.argmax() == recorded.predictions[number]
        assert chances.max() == pytest.approx(recorded.confidences[number], abs=1e-5)
        assert seen.after.fields["nll"][0] == pytest.approx(recorded.nll[number], abs=1e-4)
        assert right(seen, seen.after) == recorded.right[number]


def test_an_occlusion_is_the_first_mask_of_the_records(lens, records):
    recorded = records.cells["occlusion-random"]
    for number in range(IMAGES):
        chances = probabilities(inspect_image(lens, number, "occlude/0.1").after.answers[""][0])
        assert chances.max() == pytest.approx(recorded.confidences[number, 0], abs=1e-5)


def test_before_is_the_clean_cell_and_attention_is_compared_in_one_crop():
    """A model that crops clean images otherwise than the benchmark: both numbers stay those of evaluate and analyze."""
    torch.manual_seed(0)
    model = create_model("fan_nano", num_classes=3).eval()
    model.pretrained_cfg = {**model.pretrained_cfg, "crop_pct": 0.6}
    source, asked = colours(2, size=64), EvalProtocol(preset="cifar")
    lens = open_model(model, source, protocol=asked)
    seen = inspect_image(lens, 0, "fog/3")
    records = holdfast.evaluate(model, source, "clean", workers=0, show=False, protocol=asked)
    wanted = records.cells["clean"].confidences[0]
    assert probabilities(seen.before.answers[""][0]).max() == pytest.approx(wanted, abs=1e-5)
    settings = Settings(cells=("fog/3",))
    found = holdfast.analyze(model, source, "stability", settings=settings, show=False, protocol=asked).results
    assert seen.stability == pytest.approx(np.nanmean(found["stability"].arrays["flattened"][0, 0]), abs=1e-5)
    assert seen.aligned is not seen.before
    assert inspect_image(lens, 0, "fgsm/1").aligned is not seen.aligned


def test_stability_and_overfocusing_are_those_of_the_analysis(lens, model, data):
    settings = Settings(cells=("fog/3",))
    found = holdfast.analyze(model, data, "stability,overfocus", settings=settings, show=False).results
    for number in range(IMAGES):
        seen = inspect_image(lens, number, "fog/3")
        flattened = found["stability"].arrays["flattened"][0, number]
        assert seen.stability == pytest.approx(np.nanmean(flattened), abs=1e-5)
        for layer in range(len(seen.cosines)):
            alone = inspect_image(lens, number, "fog/3", before=seen.before).layer_stability(layer)
            np.testing.assert_allclose(alone, flattened[layer], atol=1e-5)
            focus = focus_of(seen.before, layer)
            for name in ("effective_tokens", "top_share"):
                expected = found["overfocus"].arrays[name][number, layer]
                np.testing.assert_allclose(getattr(focus, name)[0], expected, rtol=1e-4)


def test_the_records_draw_is_the_default_and_the_dice_changes_it(lens):
    default, same, other = (inspect_image(lens, 0, text).after.bytes for text in ("fog/3", "fog/3@0", "fog/3@1"))
    assert (default == same).all()
    assert (default != other).any()


def test_steps_act_in_their_order(lens):
    one, two = inspect_image(lens, 0, "fog/3,pgd/8").after.bytes, inspect_image(lens, 0, "pgd/8,fog/3").after.bytes
    assert (one != two).any()
    fog = inspect_image(lens, 0, "fog/3").after.bytes.astype(int)
    assert np.abs(one - fog).max() <= 8  # the attack stays in its ball around the fog


def test_hidden_patches_are_covered_and_nothing_else(lens):
    before, after = inspect_image(lens, 0).before.bytes, inspect_image(lens, 0, "hide/8x8:0.9").after.bytes
    changed = (before != after).any(axis=2)
    assert changed[:4, :4].any()
    assert changed[4:8, 4:8].any()
    changed[:4, :4] = changed[4:8, 4:8] = False
    assert not changed.any()


def test_without_damage_nothing_is_done_twice(lens):
    seen = inspect_image(lens, 0)
    assert seen.after is seen.before
    assert seen.stability == pytest.approx(1)


def test_a_model_without_attention_shows_the_rest(data):
    lens = open_model(create_model("resnet10t", num_classes=10).eval(), data)
    seen = inspect_image(lens, 0, "fog/3")
    assert seen.after.attention == ()
    assert seen.stability is None
    assert probabilities(seen.after.answers[""][0]).sum() == pytest.approx(1)


def test_tora_has_three_predictions_and_a_gate_map(data):
    tora = holdfast.tora(create_model("vit_nano", num_classes=10)).eval()
    seen = inspect_image(open_model(tora, data), 0, "fog/3")
    assert set(seen.after.answers) == {"joint", "acc", "rob"}
    assert seen.gates is not None
    assert seen.gates[0].shape == seen.gates[1].shape
    assert ((seen.gates[0] >= 0) & (seen.gates[0] <= 1)).all()
    assert seen.stability is not None


def test_segmenters_answer_as_in_the_records():
    data = Subset(open_data("scenes", split="test"), np.arange(2))
    model = holdfast.segmenter("fan_nano", num_classes=len(data.classes)).eval()
    recorded = holdfast.evaluate(model, data, "clean", workers=0, show=False)
    seen = inspect_image(open_model(model, data), 1, "snow/2")
    assert right(seen, seen.before) == pytest.approx(recorded.cells["clean"].right[1], abs=1e-9)
    snowy = corrupt_batch([np.array(data.image(1))], "snow", ids=[data.id(1)], severity=2, preset="any")[0]
    assert (seen.after.bytes == snowy).all()
    said = answers(seen)
    assert [one["title"] for one in said["pictures"]][:3] == ["labels, true", "labels, before", "errors, before"]
    assert {one["name"] for one in said["legend"]} >= {data.classes[n] for n in np.unique(data.target(1)) if n != 255}


def test_of_a_model_that_sees_windows_no_attention_is_shown_as_that_of_the_image():
    data = Subset(open_data("scenes", split="test"), np.arange(1))
    model = holdfast.segmenter("fan_nano", num_classes=len(data.classes)).eval()
    assert inspect_image(open_model(model, data), 0, "fog/2").after.attention
    own = holdfast.segmenter("fan_nano", num_classes=len(data.classes), window=32).eval()
    for opened in (open_model(model, data, protocol=EvalProtocol(window=32)), open_model(own, data)):
        seen = inspect_image(opened, 0, "fog/2")
        assert not seen.after.attention
        assert seen.stability is None


def test_detectors_answer_as_in_the_records():
    data = Subset(open_data("scene-objects", split="test"), np.arange(1))
    options = {
        "encoder_options": {"patch_size": 16, "trunk_stride": 8, "img_size": 128},
        "min_size": 64,
        "max_size": 96,
    }
    small = {"kind": "faster", "channels": 16, "head_width": 16, "top_channels": 16}
    model = holdfast.detector("fan_nano_hybrid", num_classes=len(data.classes), **options, **small).eval()
    recorded = holdfast.evaluate(model, data, "clean", workers=0, show=False)
    seen = inspect_image(open_model(model, data), 0, "fog/3")
    assert right(seen, seen.before) == recorded.cells["clean"].right[0]
    np.testing.assert_allclose(seen.before.fields["boxes"][0], recorded.cells["clean"].boxes[0], atol=1e-3)
    assert [one["title"] for one in answers(seen)["pictures"]] == ["boxes, true", "boxes, before", "boxes, after"]
    with pytest.raises(HoldfastError, match="attacks on detection"):
        inspect_image(open_model(model, data), 0, "pgd/1")


def test_a_corruption_model_chooses_the_patches_that_are_hidden(lens):
    torch.manual_seed(0)
    chooser = replace(lens, corruptor=Corruptor((8, 8), patch_size=4))
    seen = inspect_image(chooser, 0, "learned/0.25")
    keep = chooser.corruptor.keep(lens.judge.pixels.normalise(seen.before.pixels), 0.25)[0, 0]
    changed = (seen.before.bytes != seen.after.bytes).any(axis=2).reshape(8, 4, 8, 4).any(axis=(1, 3))
    assert (changed == (keep < 0.5).numpy()).all()
    assert changed.sum() == 16


@pytest.mark.parametrize(
    ("model", "data", "said"),
    [
        ("timm:nothing_of_the_kind", "digits:test", "nothing_of_the_kind"),
        ("/nowhere", "digits:test", "/nowhere"),
    ],
)
def test_what_does_not_fit_is_one_sentence(model, data, said):
    with pytest.raises(HoldfastError) as error:
        open_model(model, data)
    assert said in str(error.value)


def test_an_image_that_is_not_there_and_a_missing_corruption_model_are_one_sentence(lens):
    with pytest.raises(HoldfastError, match="0…2"):
        inspect_image(lens, 3)
    with pytest.raises(HoldfastError, match="AFAT"):
        inspect_image(lens, 0, "learned/0.1")


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_what_tokens_receive_is_the_mean_of_all_queries_maps(name):
    size = 56 if "swin" in name else 64
    model = create_model(name, num_classes=2, img_size=size).eval()
    with torch.no_grad(), watch(model) as seen:
        model(torch.rand(1, 3, size, size))
    handle = seen.attention[1]  # of Swin a shifted one
    received = received_map(handle)
    rows, columns = received.shape[1:]
    places = [place_of(handle, ((r + 0.5) / rows, (c + 0.5) / columns)) for r in range(rows) for c in range(columns)]
    if name.startswith("vit"):
        torch.testing.assert_close(received.flatten(1), attention_received(handle))
        maps = torch.stack([query_map(handle, place) for place in places])
        prefix = handle.maps().mean(dim=1)[:, : handle.prefix, handle.prefix :].sum(dim=1)
        torch.testing.assert_close(received.flatten(1) * handle.q.shape[-2], maps.sum(0).flatten(1) + prefix)
        one = received_map(handle, head=1).flatten(1)
        torch.testing.assert_close(one, handle.maps()[:, 1, :, handle.prefix :].mean(dim=1))
    else:
        total = torch.stack([query_map(handle, place) for place in places]).sum(0) / handle.q.shape[-2]
        torch.testing.assert_close(received, total)
