"""How images are prepared: clean ones as the model says, corrupted ones as the benchmark does."""

import logging

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torchvision import transforms

from holdfast import EvalProtocol, evaluate
from holdfast.corruptions import corrupt_batch
from holdfast.data import from_torch
from holdfast.data.source import ArraySource
from holdfast.errors import HoldfastError
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.predictor import Predictor, requested_steps
from holdfast.metrics.summary import summarise
from tests.evaluation.toys import Brightest, colours

CIFAR = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
AFAT = {"input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bicubic", **CIFAR}
ALONE = {"workers": 0, "show": False}


class Configured(Brightest):
    """A model that says how it wants its images, and remembers them, normalised."""

    def __init__(self, **cfg):
        super().__init__()
        self.pretrained_cfg = cfg
        self.seen = []

    def forward(self, images):
        self.seen.append(images.clone())
        return super().forward(images)


def noise(count, size=32):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return ArraySource("noise", images, np.arange(count) % 3, ("red", "green", "blue"), np.arange(count))


class Photographs:
    """Pictures of 300 × 400 pixels."""

    classes = ("red", "green", "blue")
    targets = np.arange(3)

    def __len__(self):
        return 3

    def id(self, index):
        return str(index)

    def image(self, index):
        low = np.random.default_rng(index).integers(0, 256, (15, 20, 3)).astype(np.uint8)
        return Image.fromarray(low).resize((400, 300), Image.Resampling.BICUBIC)


def resize_and_crop(short, side, interpolation):
    method = transforms.InterpolationMode(interpolation)
    return transforms.Compose([transforms.Resize(short, interpolation=method), transforms.CenterCrop(side)])


def steps_of(source, model, **asked):
    return requested_steps(model, EvaluationData("x", "x", source), EvalProtocol(**asked))


def test_afats_cifar_protocol_is_its_transform_bit_by_bit():
    """Table 1: resize to 256 bicubic, centre crop 224, on 1,000 images."""
    source, model = noise(1000), Configured(**AFAT)
    written_out = transforms.Compose(
        [
            transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(CIFAR["mean"], CIFAR["std"]),
        ]
    )
    predictor = Predictor.open(model, EvaluationData("noise", "noise", source), EvalProtocol())
    model.seen.clear()
    for index in range(1000):
        predictor.predict(source.image(index))
        assert torch.equal(model.seen.pop()[0], written_out(source.image(index)))


def test_corrupted_cifar_images_take_the_same_way_as_clean_ones_on_the_fly_and_stored():
    source, model = noise(4), Configured(**AFAT)
    steps = steps_of(source, model)
    resize = resize_and_crop(256, 224, "bicubic")
    for index in range(4):
        corrupted = corrupt_batch(
            [steps.to_protocol(source.image(index))], "fog", ids=["x"], severity=3, preset="cifar"
        )[0]
        assert corrupted.shape == (32, 32, 3)
        wanted = np.array(resize(Image.fromarray(corrupted)))
        assert np.array_equal(steps.to_model(corrupted, corrupted=True), wanted)
        assert np.array_equal(steps.to_model(corrupted, corrupted=False), wanted)  # as a stored set is shown


def test_clean_photographs_are_cropped_as_the_model_says_and_corrupted_ones_as_imagenet_c():
    source = Photographs()
    fan = Configured(input_size=(3, 224, 224), crop_pct=1.0, interpolation="bicubic")
    steps = steps_of(source, fan)
    picture = source.image(0)
    own, benchmark = resize_and_crop(224, 224, "bicubic"), resize_and_crop(256, 224, "bilinear")
    assert np.array_equal(steps.clean(picture), np.array(own(picture)))
    assert np.array_equal(steps.to_protocol(picture), np.array(benchmark(picture)))
    stored = steps.to_protocol(picture)
    assert np.array_equal(steps.to_model(stored, corrupted=True), stored)  # never by crop_pct
    larger = steps_of(source, Configured(input_size=(3, 384, 384), crop_pct=0.9, interpolation="bicubic"))
    wanted = Image.fromarray(stored).resize((384, 384), Image.Resampling.BICUBIC)
    assert np.array_equal(larger.to_model(stored, corrupted=True), np.array(wanted))


def test_options_win_over_the_model():
    source, model = Photographs(), Configured(input_size=(3, 224, 224), crop_pct=1.0, interpolation="bicubic")
    steps = steps_of(source, model, crop_pct=0.5, interpolation="bilinear")
    wanted = resize_and_crop(448, 224, "bilinear")
    assert np.array_equal(steps.clean(source.image(1)), np.array(wanted(source.image(1))))
    for wrong in ({"crop_pct": 0.0}, {"crop_pct": 1.5}):
        with pytest.raises(HoldfastError, match="crop_pct must be above 0 and at most 1"):
            EvalProtocol(**wrong)
    with pytest.raises(HoldfastError, match="interpolation must be one of"):
        steps_of(source, model, interpolation="bicubical")


def test_every_crop_mode_of_timm_is_kept():
    picture = Photographs().image(2)
    for mode in ("center", "squash", "border"):
        cfg = {"input_size": (3, 96, 96), "crop_pct": 0.9, "crop_mode": mode, "interpolation": "bilinear", **CIFAR}
        wanted = timm.data.create_transform(**{**cfg, "input_size": (3, 96, 96)}, is_training=False, normalize=False)
        steps = steps_of(Photographs(), Configured(**cfg))
        assert np.array_equal(steps.clean(picture), wanted(picture).permute(1, 2, 0).numpy())


def test_a_model_that_does_not_say_it_and_images_that_come_prepared_are_left_alone():
    source = Photographs()
    steps = steps_of(source, Brightest())
    assert np.array_equal(steps.clean(source.image(0)), steps.to_protocol(source.image(0)))
    prepared = from_torch((torch.rand(3, 3, 64, 64), torch.arange(3)))
    tensors = steps_of(prepared, Configured(input_size=(3, 64, 64), crop_pct=0.8))
    assert np.array_equal(tensors.clean(prepared.image(0)), np.array(prepared.image(0)))


def test_the_benchmarks_preparation_is_what_it_was():
    source, model = Photographs(), Configured(input_size=(3, 112, 112), crop_pct=1.0, interpolation="bicubic")
    steps = steps_of(source, model, preparation="benchmark")
    stretched = Image.fromarray(steps.to_protocol(source.image(0))).resize((112, 112), Image.Resampling.BICUBIC)
    assert np.array_equal(steps.clean(source.image(0)), np.array(stretched))
    assert steps.record() == {
        "protocol": "short side 256 bilinear, centre crop 224; 224×224 files as they are",
        "after_corruption": "nothing",
        "model_size": "112×112 bicubic",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    with pytest.raises(HoldfastError, match="preparation must be one of model, benchmark"):
        EvalProtocol(preparation="own")


def test_every_cell_names_its_steps():
    model = Configured(input_size=(3, 224, 224), crop_pct=1.0, interpolation="bicubic", **CIFAR)
    records = evaluate(model, Photographs(), "clean,corruptions-135", protocol=EvalProtocol(stored_jpeg=True), **ALONE)
    own, benchmark = "short side 224 bicubic, centre crop 224×224", "short side 256 bilinear, centre crop 224×224"
    assert records.cells["clean"].header["preprocessing"] == [own]
    assert records.cells["fog/1"].header["preprocessing"] == [benchmark, "corruption", "JPEG quality 85"]
    assert records.header["preprocessing"]["clean"] == own
    small = evaluate(Configured(**AFAT), noise(3), "clean,corruptions-135", **ALONE)
    resized = "short side 256 bicubic, centre crop 224×224"
    assert small.cells["clean"].header["preprocessing"] == [resized]
    assert small.cells["fog/1"].header["preprocessing"] == ["corruption", resized]


def test_retention_across_two_preparations_says_so():
    def note(model, source, **asked):
        records = evaluate(model, source, "clean,corruptions", protocol=EvalProtocol(**asked), limit=3, **ALONE)
        return summarise(records, intervals=False)["retention"].note

    fan = {"input_size": (3, 48, 48), "interpolation": "bicubic", "crop_pct": 1.0}
    said = note(Configured(**fan), colours(3, size=64), preset="cifar")
    assert said == (
        "clean and corrupted images are prepared differently: short side 48 bicubic, centre crop 48×48; "
        "short side 32 bilinear, centre crop 32×32, then short side 48 bicubic, centre crop 48×48"
    )
    assert note(Configured(**fan), noise(3)) == ""  # CIFAR: the same way
    assert note(Configured(**fan), colours(3, size=64), preset="cifar", preparation="benchmark") == ""


def test_records_of_another_preparation_are_measured_again_and_it_is_said(tmp_path, caplog):
    model, source = Configured(input_size=(3, 48, 48), crop_pct=0.8), noise(3)
    first = evaluate(model, source, protocol=EvalProtocol(preparation="benchmark"), out=tmp_path, **ALONE)
    with caplog.at_level(logging.WARNING):
        second = evaluate(model, source, out=tmp_path, **ALONE)
    assert first.folder != second.folder
    assert f"{first.folder.name} was measured with other preprocessing" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        evaluate(model, source, out=tmp_path, **ALONE)
    assert not caplog.text
