"""One model, one picture, one answer: evaluate, predict, label maps as files, lab and export prepare images alike."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import nn

import holdfast
from holdfast import EvalProtocol, evaluate
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.inference.export import prepare_export
from holdfast.inference.label_map_files import export_predictions
from holdfast.lab import inspect_image, open_model, probabilities
from tests.evaluation.toys import colours
from tests.training.helpers import run

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
MEASURED = EvalProtocol(mean=MEAN, std=STD)
CLASSES = ("blue", "green", "red")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Six pictures that are larger than the models' images and not square, in folders of their classes."""
    root, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for number in range(6):
        low = rng.integers(0, 256, (9, 12, 3)).astype(np.uint8)
        picture = Image.fromarray(low).resize((80 + 7 * number, 60), Image.Resampling.BICUBIC)
        folder = root / CLASSES[number % 3]
        folder.mkdir(exist_ok=True)
        picture.save(folder / f"{number}.png")
    return root


def timm_model():
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=3)
    cfg = {"input_size": (3, 64, 64), "crop_pct": 0.8, "interpolation": "bicubic", "mean": MEAN, "std": STD}
    model.pretrained_cfg = {**model.pretrained_cfg, **cfg}
    return model.eval()


def torchvision_model():
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.resnet18(num_classes=3).eval()


def run_model(folder):
    path = folder / "run"
    run(path, model={"name": "vit_nano", "kwargs": {"depth": 1}}, data={"crop_pct": 0.8})
    return f"run:{path}"


def onnx_with_metadata(folder, photographs):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    path = folder / "with.onnx"
    holdfast.export(timm_model(), path, f"folder:{photographs}")
    return f"onnx:{path}"


def onnx_without_metadata(folder):
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    path = folder / "with.onnx"
    file = onnx.load(str(path))
    del file.metadata_props[:]
    onnx.save(file, str(folder / "without.onnx"))
    return f"onnx:{folder / 'without.onnx'}"


def hugging_face_model(folder):
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    torch.manual_seed(0)
    names = dict(enumerate(CLASSES))
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        id2label=names, label2id={name: number for number, name in names.items()},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(folder / "hf")
    transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=list(MEAN), image_std=list(STD)
    ).save_pretrained(folder / "hf")
    return f"hf:{folder / 'hf'}"


@pytest.fixture(scope="module")
def models(tmp_path_factory, photographs):
    """By name: a model, and what must be said of it."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "timm": (timm_model(), EvalProtocol()),
        "run": (run_model(folder), EvalProtocol(classes_differ=True)),
        "onnx": (onnx_with_metadata(folder, photographs), EvalProtocol()),
        "onnx without metadata": (onnx_without_metadata(folder), EvalProtocol(mean=MEAN, std=STD, crop_pct=0.8)),
        "hf": (hugging_face_model(folder), EvalProtocol()),
        "torchvision": (torchvision_model(), EvalProtocol(size=96, mean=MEAN, std=STD, crop_pct=0.9)),
    }


def confidences(records):
    cell = records.cells["clean"]
    return dict(zip(cell.ids.tolist(), cell.confidences.tolist(), strict=True))


@pytest.mark.parametrize("name", ["timm", "onnx", "onnx without metadata", "hf", "torchvision"])
def test_every_command_gives_the_same_probability(models, photographs, name):
    model, protocol = models[name]
    data = f"folder:{photographs}"
    measured = confidences(evaluate(model, data, workers=0, show=False, protocol=protocol))
    predicted = holdfast.predict(model, photographs, top=1, protocol=protocol)
    for each in predicted:
        key = str(Path(each.image).relative_to(photographs))
        assert each.rows[0]["probability"] == pytest.approx(measured[key], abs=1e-6)
    lens = open_model(model, data, protocol=protocol)
    for number in range(len(lens.source)):
        seen = inspect_image(lens, number)
        assert float(probabilities(seen.before.answers[""][0]).max()) == pytest.approx(
            measured[lens.source.id(number)], abs=1e-6
        )
    if "onnx" in name:  # a file already
        return
    found = prepare_export(model, data, protocol=protocol)
    answers = dict(zip(found.ids, found.answers, strict=True))
    for key, logits in answers.items():
        assert float(logits.softmax(0).max()) == pytest.approx(measured[key], abs=1e-6)


def test_a_run_is_asked_as_its_validation_asked_it(models):
    """And by the same images in every command: digits, whose files are written for predict."""
    from holdfast.training.augment.classification import ImageFormat, validation_transform

    model, _ = models["run"]
    source = open_data("digits:test[0:6]", split="test")
    measured = confidences(evaluate(model, source, workers=0, show=False))
    net = holdfast.models.factory.load_model(model).model.eval()
    cfg = net.pretrained_cfg
    assert cfg["crop_pct"] == 0.8
    transform = validation_transform(
        ImageFormat(32, tuple(cfg["mean"]), tuple(cfg["std"]), cfg["interpolation"], cfg["crop_pct"])
    )
    with torch.no_grad():
        for number in range(len(source)):
            wanted = net(transform(source.image(number).convert("RGB"))[None]).softmax(1).max()
            assert measured[source.id(number)] == pytest.approx(float(wanted), abs=1e-6)
    lens = open_model(model, source)
    found = prepare_export(model, source)
    answers = dict(zip(found.ids, found.answers, strict=True))
    for number in range(len(source)):
        key = source.id(number)
        assert float(probabilities(inspect_image(lens, number).before.answers[""][0]).max()) == pytest.approx(
            measured[key], abs=1e-6
        )
        assert float(answers[key].softmax(0).max()) == pytest.approx(measured[key], abs=1e-6)


class PixelClasses(nn.Module):
    """Two classes per pixel, by red against green, of normalised values."""

    task = "segmentation"

    def forward(self, images):
        return 4 * torch.stack([images[:, 0], images[:, 1], images[:, 2], *[images.mean(1) - 1] * 3], dim=1)


def test_label_maps_as_files_are_those_that_evaluate_counts(tmp_path):
    """With --mean and --std: a segmenter that is asked otherwise answers otherwise."""
    source = open_data("scenes:val[0:2]", split="test")
    model = PixelClasses()

    class Fitting(PixelClasses):
        def forward(self, images):
            few = super().forward(images)
            return few[:, torch.arange(len(source.classes)) % few.shape[1]]

    model = Fitting()
    protocol = EvalProtocol(mean=(0.9, 0.1, 0.5), std=(0.2, 0.9, 0.5))
    records = evaluate(model, source, workers=0, show=False, protocol=protocol)
    assert export_predictions(model, source, tmp_path, protocol=protocol) == 2
    counts = records.cells["clean"].counts  # true, predicted, both
    for number in range(2):
        seen = np.asarray(Image.open(tmp_path / f"{source.id(number)}.png"))
        numbers = getattr(source, "numbers", None) or range(len(source.classes))
        true = source.target(number)
        predicted = [int((seen[true != 255] == value).sum()) for value in numbers]
        assert predicted == counts[number][1].tolist()


OPTIONS = ["--size", "32", "--mean", "0", "0", "0", "--std", "1", "1", "1", "--pixel-range", "1"]
OPTIONS += ["--interpolation", "bilinear", "--crop-pct", "1.0", "--probabilities", "no"]


@pytest.mark.parametrize("command", ["evaluate", "predict", "analyze", "lab", "export"])
def test_every_command_has_the_same_options(command):
    from holdfast.cli.main import build_parser

    known = {option for action in build_parser(command)._actions for option in action.option_strings}
    wanted = ["size", "mean", "std", "pixel-range", "probabilities", "window", "stride", "interpolation", "crop-pct"]
    assert {f"--{name}" for name in wanted} <= known


def test_the_options_reach_predict_and_evaluate(tmp_path, capsys):
    graphs = pytest.importorskip("tests.models.onnx_graphs", reason="needs the extra onnx")
    path = graphs.brightest(tmp_path / "m.onnx", told=None)
    (tmp_path / "data" / "red").mkdir(parents=True)
    (tmp_path / "data" / "green").mkdir()
    (tmp_path / "data" / "blue").mkdir()
    for number, name in enumerate(("red", "green", "blue")):
        colours(3).image(number).save(tmp_path / "data" / name / "0.png")
    assert main(["predict", str(tmp_path / "data"), "--model", f"onnx:{path}", *OPTIONS]) == 0
    arguments = ["--model", f"onnx:{path}", "--data", f"folder:{tmp_path / 'data'}", "--suite", "clean"]
    assert main(["evaluate", *arguments, *OPTIONS, "--workers", "0", "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()


# what cannot be right


class Softmaxed(nn.Module):
    def forward(self, images):
        return (20 * images.mean(dim=(2, 3))).softmax(1)


def test_means_above_one_are_refused_unless_the_pixel_range_is_255():
    options = {"workers": 0, "show": False}
    model, source = Softmaxed(), colours(6)
    imagenet = {"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}
    for wrong in (imagenet, {"mean": (0, 0, 0), "std": (58.4, 57.1, 57.4)}):
        with pytest.raises(HoldfastError, match=r"pixels from 0 to 1.*--pixel-range 255"):
            evaluate(model, source, protocol=EvalProtocol(**wrong, probabilities=True), **options)
    wide = EvalProtocol(**imagenet, pixel_range=255, probabilities=True)
    narrow = {name: tuple(value / 255 for value in values) for name, values in imagenet.items()}
    one = evaluate(model, source, protocol=wide, **options).cells["clean"]
    other = evaluate(model, source, protocol=EvalProtocol(**narrow, probabilities=True), **options).cells["clean"]
    assert np.allclose(one.confidences, other.confidences, atol=1e-6)
    with pytest.raises(HoldfastError, match=r"pixels from 0 to 255"):
        evaluate(model, source, protocol=EvalProtocol(mean=MEAN, std=STD, pixel_range=255), **options)
    with pytest.raises(HoldfastError, match="pixel_range must be 1 or 255, got 256"):
        EvalProtocol(pixel_range=256)


def test_a_model_of_pixels_from_0_to_255_gets_them():
    class Levels(nn.Module):
        def forward(self, images):
            assert float(images.max()) > 2
            return images.mean(dim=(2, 3)) / 10

    one = evaluate(Levels(), colours(6), workers=0, show=False, protocol=EvalProtocol(pixel_range=255))
    two = evaluate(Softmaxed(), colours(6), workers=0, show=False, protocol=EvalProtocol(probabilities=True))
    assert np.array_equal(one.cells["clean"].predictions, two.cells["clean"].predictions)


def test_answers_that_are_probabilities_must_be_said_to_be_such(tmp_path):
    source = colours(3)
    with pytest.raises(HoldfastError, match=r"look like probabilities.*--probabilities yes.*--probabilities no"):
        evaluate(Softmaxed(), source, workers=0, show=False)
    source.image(0).save(tmp_path / "x.png")
    with pytest.raises(HoldfastError, match="look like probabilities"):
        holdfast.predict(Softmaxed(), tmp_path / "x.png")
    yes = evaluate(Softmaxed(), source, workers=0, show=False, protocol=EvalProtocol(probabilities=True))
    no = evaluate(Softmaxed(), source, workers=0, show=False, protocol=EvalProtocol(probabilities=False))
    assert yes.cells["clean"].confidences.max() > no.cells["clean"].confidences.max()


def test_what_is_no_probability_is_not_taken_for_one():
    from tests.evaluation.toys import Brightest

    with pytest.raises(HoldfastError, match=r"--probabilities yes.*do not sum to 1"):
        evaluate(Brightest(), colours(3), workers=0, show=False, protocol=EvalProtocol(probabilities=True))


def test_the_bare_flag_means_yes(tmp_path, capsys):
    graphs = pytest.importorskip("tests.models.onnx_graphs", reason="needs the extra onnx")
    path = graphs.brightest(tmp_path / "p.onnx", softmax=True, told=graphs.PLAIN)
    colours(1).image(0).save(tmp_path / "x.png")
    command = ["predict", str(tmp_path / "x.png"), "--model", f"onnx:{path}", "--format", "csv"]
    said = {}
    for name, flag in {"yes": ["--probabilities", "yes"], "bare": ["--probabilities"]}.items():
        assert main([*command, *flag]) == 0
        said[name] = capsys.readouterr().out
    assert said["bare"] == said["yes"]
    assert main([*command, "--probabilities", "perhaps"]) == 2
    assert "yes or no" in capsys.readouterr().err


def test_windows_are_of_label_maps():
    with pytest.raises(HoldfastError, match="window and stride are settings of segmentation"):
        evaluate(Softmaxed(), colours(3), workers=0, show=False, protocol=EvalProtocol(window=16, probabilities=True))
