"""The runner: the same records however the work is cut, interrupted or shared, and nothing ever mixed."""

import inspect
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast import ComputeConfig, EvalProtocol, evaluate
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.errors import HoldfastError
from holdfast.records.records import load_records, read_records
from tests.evaluation.toys import Brightest, ByLevel, colours

QUICK = {"workers": 0, "show": False}
SUITES = "clean,corruptions,fgsm"
ASKED = 11  # a grey image, to learn what the model returns, the eight probe images, and two of them once more


def assert_same(one, other, *, exactly=False, but=()):
    """The same images, answers and, but for the last bits, the same confidences; headers may differ in ``but``."""
    assert {k: v for k, v in one.header.items() if k not in but} == {
        k: v for k, v in other.header.items() if k not in but
    }
    assert one.views == other.views
    for view in one.views:
        assert list(one.by_view[view]) == list(other.by_view[view])
        for name, cell in one.by_view[view].items():
            again = other.by_view[view][name]
            for field in ("ids", "targets", "predictions", "top5"):
                np.testing.assert_array_equal(getattr(cell, field), getattr(again, field), err_msg=name)
            for field in ("confidences", "nll"):
                tolerance = 0 if exactly else 1e-5
                np.testing.assert_allclose(getattr(cell, field), getattr(again, field), rtol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def reference():
    return evaluate(Brightest(), colours(9), SUITES, compute=ComputeConfig(shard_size=5), **QUICK)


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (7, 0), (500, 1), (64, 2)])
def test_batches_and_workers_do_not_change_records(reference, batch_size, workers):
    compute = ComputeConfig(batch_size=batch_size, shard_size=5)
    assert_same(evaluate(Brightest(), colours(9), SUITES, compute=compute, workers=workers, show=False), reference)


def test_a_transformer_gives_the_same_counts_for_all_batch_sizes_and_workers():
    from holdfast import create_model

    model = create_model("vit_nano", num_classes=10, depth=1)
    runs = [
        evaluate(
            model,
            "digits",
            "clean,corruptions",
            limit=8,
            compute=ComputeConfig(batch_size=size, shard_size=5),
            workers=workers,
            show=False,
        )
        for workers, size in ((0, 8), (2, 3))
    ]
    assert_same(*runs)


def test_the_order_of_the_images_does_not_change_their_records(reference):
    source = colours(9)
    turned = type(source)(
        "colours", source.images[::-1], source.targets[::-1].copy(), source.classes, source.numbers[::-1]
    )
    records = evaluate(Brightest(), turned, "corruptions", compute=ComputeConfig(shard_size=5), **QUICK)
    for name, cell in records.cells.items():
        assert cell.predictions[::-1].tolist() == reference.cells[name].predictions.tolist()


class Counting(Brightest):
    """Counts the images it is shown."""

    def __init__(self):
        super().__init__()
        self._seen = 0

    def forward(self, images):
        self._seen += len(images)
        return super().forward(images)


def test_running_again_measures_nothing_and_more_suites_only_what_is_new(tmp_path):
    model, source = Counting(), colours(10)
    first = evaluate(model, source, "clean", out=tmp_path, **QUICK)
    model._seen = 0
    again = evaluate(model, source, "clean", out=tmp_path, **QUICK)
    assert model._seen == ASKED
    assert_same(first, again, exactly=True)
    evaluate(model, source, "clean,pgd5", out=tmp_path, **QUICK)
    (records,) = load_records(tmp_path)
    assert list(records.cells) == ["clean", "pgd5"]
    model._seen = 0
    evaluate(model, source, "clean", out=tmp_path, fresh=True, **QUICK)
    assert model._seen == ASKED + 10


def test_what_is_missing_is_measured_and_nothing_else(tmp_path, reference):
    folder = evaluate(
        Brightest(), colours(9), SUITES, compute=ComputeConfig(shard_size=5), out=tmp_path, **QUICK
    ).folder
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    rng = np.random.default_rng(0)
    for name in rng.choice([name for name in content if name.count(".") > 1], 30, replace=False):
        (folder / name).unlink()
    assert_same(
        evaluate(Brightest(), colours(9), SUITES, compute=ComputeConfig(shard_size=5), out=tmp_path, **QUICK), reference
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


def test_damaged_units_are_set_aside_reported_and_measured_again(tmp_path, caplog):
    records = evaluate(
        Brightest(), colours(10), "clean,fgsm", compute=ComputeConfig(shard_size=4), out=tmp_path, **QUICK
    )
    paths = [records.folder / name for name in ("clean.00001.safetensors", "fgsm.00002.safetensors")]
    good = [path.read_bytes() for path in paths]
    paths[0].write_bytes(good[0][:-3])
    paths[1].write_bytes(bytes(byte ^ (number == 700) for number, byte in enumerate(good[1])))
    again = evaluate(Brightest(), colours(10), "clean,fgsm", compute=ComputeConfig(shard_size=4), out=tmp_path, **QUICK)
    assert_same(records, again, exactly=True)
    assert [path.read_bytes() for path in paths] == good
    assert sorted(path.name for path in records.folder.glob("*.damaged")) == [f"{path.name}.damaged" for path in paths]
    for path in paths:
        assert f"{path.name} is damaged" in caplog.text


def test_a_unit_of_another_measurement_is_not_taken(tmp_path):
    one = evaluate(Brightest(), colours(6), "clean", out=tmp_path / "one", **QUICK)
    other = evaluate(Brightest(), colours(6, seed=1), "clean", out=tmp_path / "other", **QUICK)
    shutil.copy(other.folder / "clean.00000.safetensors", one.folder)
    assert_same(evaluate(Brightest(), colours(6), "clean", out=tmp_path / "one", **QUICK), one, exactly=True)


def test_a_damaged_header_or_list_of_images_is_written_again(tmp_path):
    records = evaluate(Brightest(), colours(6), "clean", out=tmp_path, **QUICK)
    (records.folder / "evaluation.json").write_text("{")
    (records.folder / "images.safetensors").write_bytes(b"")
    assert_same(evaluate(Brightest(), colours(6), "clean", out=tmp_path, **QUICK), records, exactly=True)


class Weighted(Brightest):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, images):
        return self.weight * super().forward(images)


def test_nothing_that_changes_a_record_shares_a_folder(tmp_path):
    source = colours(6)
    other_pixels, other_targets = source.images.copy(), source.targets.copy()
    other_pixels[3, 2, 1, 0] ^= 1
    other_targets[3] = 1
    variants = [
        (Weighted(1.0), source, {}),
        (Weighted(1.5), source, {}),
        (ByLevel(3, 40), source, {}),
        (ByLevel(3, 41), source, {}),
        (Weighted(1.0), type(source)("colours", other_pixels, source.targets, source.classes, source.numbers), {}),
        (Weighted(1.0), type(source)("colours", source.images, other_targets, source.classes, source.numbers), {}),
        (Weighted(1.0), type(source)("colours", source.images, source.targets, source.classes, source.numbers + 1), {}),
        *[
            (Weighted(1.0), source, options)
            for options in (
                {"seed": 1},
                {"limit": 4},
                {"protocol": EvalProtocol(stored_jpeg=True)},
                {"protocol": EvalProtocol(preset="any")},
                {"protocol": EvalProtocol(size=48)},
                {"protocol": EvalProtocol(mean=(0.5, 0.5, 0.5))},
                {"protocol": EvalProtocol(std=(0.5, 0.5, 0.5))},
                {"compute": ComputeConfig(amp=True)},
                {"compute": ComputeConfig(attack_batch_size=5)},
                {"compute": ComputeConfig(shard_size=5)},
            )
        ],
    ]
    folders = [evaluate(m, data, "clean", out=tmp_path, **QUICK, **options).folder for m, data, options in variants]
    assert len(set(folders)) == len(variants)
    assert len(load_records(tmp_path)) == len(variants)
    again = evaluate(
        Weighted(1.0), source, "clean", out=tmp_path, workers=1, compute=ComputeConfig(batch_size=2), show=False
    )
    assert again.folder == folders[0]


def test_the_version_is_part_of_the_fingerprint(monkeypatch):
    from holdfast.data import fingerprints

    one = evaluate(Brightest(), colours(3), "clean", **QUICK).header
    monkeypatch.setattr(fingerprints, "__version__", "99.0")
    other = evaluate(Brightest(), colours(3), "clean", **QUICK).header
    assert one["fingerprint"] != other["fingerprint"]
    assert other["versions"]["holdfast"] == "99.0"


def test_a_model_is_left_as_it_was():
    model = nn.Sequential(nn.Dropout(), Brightest())
    model.train()
    model[1].eval()
    evaluate(model, colours(3), "clean,pgd5", **QUICK)
    assert model.training
    assert model[0].training
    assert not model[1].training


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_worker_cannot_do_is_one_sentence(workers):
    with pytest.raises(HoldfastError, match=r"^image: expected at least 32 pixels on each side, got 16×16$"):
        evaluate(
            Brightest(),
            colours(2),
            "corruptions",
            protocol=EvalProtocol(preset="any", size=16),
            workers=workers,
            show=False,
        )


# ---------------------------------------------------------------------- bad input


@pytest.fixture
def folder_with_a_truncated_jpeg(tmp_path):
    source = colours(9)
    for number, image in enumerate(source.images):
        path = tmp_path / "images" / source.classes[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path, quality=95)
    path = tmp_path / "images" / "green" / "4.jpg"
    path.write_bytes(path.read_bytes()[:400])
    return tmp_path / "images"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_truncated_image_is_named_counted_and_excluded_from_all_cells(folder_with_a_truncated_jpeg, caplog, workers):
    suites = "clean,fgsm,perturbations"
    records = evaluate(
        Brightest(), f"folder:{folder_with_a_truncated_jpeg}", suites, limit=9, show=False, workers=workers
    )
    assert records.excluded == ("green/4.jpg",)
    for cell in records.cells.values():
        assert len(cell) == 8
        assert "green/4.jpg" not in cell.ids
    assert "1 of 9 images could not be read and are excluded from every cell: green/4.jpg" in caplog.text


def test_a_shard_without_a_readable_image_is_a_finished_unit(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"broken")
    Image.new("RGB", (32, 32), (9, 0, 0)).save(tmp_path / "a" / "1.png")
    for model in (Brightest(), ByLevel(3, 10)):
        records = evaluate(model, f"folder:{tmp_path}", "clean,fgsm", compute=ComputeConfig(shard_size=1), **QUICK)
        assert records.cells["clean"].ids.tolist() == ["a/1.png"]
        assert len(records.excluded) == 3


class NaN(Brightest):
    def forward(self, images):
        logits = super().forward(images)
        bright = images.mean(dim=(1, 2, 3)) > 0.75
        return torch.where(bright[:, None], torch.nan, logits)


def test_nan_names_its_cell_and_records_nothing_for_it(tmp_path):
    with pytest.raises(HoldfastError, match=r"got NaN or infinity for \d+ of \d+ images in (frost|brightness)/\d"):
        evaluate(NaN(), colours(6), "clean,corruptions", out=tmp_path, **QUICK)
    (folder,) = (tmp_path / "records").iterdir()
    kept = read_records(folder).cells
    assert "clean" in kept
    assert "brightness/5" not in kept
    for cell in kept.values():
        assert np.isfinite(cell.nll).all()


def test_an_attack_that_fails_names_its_cell():
    class Constant(nn.Module):
        def forward(self, images):
            return torch.zeros(len(images), 3)

    with pytest.raises(HoldfastError, match=r"^pgd5: the model must be differentiable"):
        evaluate(Constant(), colours(3), "pgd5", **QUICK)


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (ByLevel(4, 10), {}, "the model must have the 3 classes of 'colours', got 4"),
        (nn.Identity(), {}, r"the model must return logits of shape \(images, classes\), got \(1, 3, 32, 32\)"),
        (nn.Linear(7, 3), {}, "the model fails on images of 32×32"),
        (Brightest(), {"workers": -1}, "workers must be 0 or more, got -1"),
        (Brightest(), {"limit": -1}, "limit must be at least 1, or 0 for all images, got -1"),
        (Brightest(), {"device": "gpu"}, "device must be auto, cpu, .* got 'gpu'; did you mean 'cuda'"),
        (
            Brightest(),
            {"protocol": EvalProtocol(preset="imagnet")},
            "preset: expected one of .* did you mean 'imagenet'",
        ),
        (Brightest(), {"protocol": EvalProtocol(mean=(0, 0))}, "mean and std must be three values"),
        ("run:nowhere", {}, "config.json and model.safetensors are missing in 'nowhere'"),
        ("resnet", {}, "model must be a module, a run's folder or a spec, got 'resnet'"),
        ("timm:resnet_18", {}, "unknown model 'resnet_18'; did you mean 'resnet18'"),
        ("python:tests.evaluation.toys:not_a_model", {}, "must return a torch module, got str"),
        ("python:tests.evaluation.toys:nothing", {}, "has none of that name"),
        ("python:no.such.module:build", {}, "cannot be imported"),
        ("python:tests.evaluation.toys", {}, "must name a module and a function"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence_before_any_work(tmp_path, model, options, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        evaluate(model, colours(3), "clean", out=tmp_path / "out", **{**QUICK, **options})
    assert not (tmp_path / "out").exists()


def test_options_that_cannot_be_are_refused_when_they_are_made():
    with pytest.raises(HoldfastError, match="batch_size must be at least 1, got 0"):
        ComputeConfig(batch_size=0)
    with pytest.raises(HoldfastError, match="exif must be ignore or apply, got 'turn'"):
        EvalProtocol(exif="turn")


def test_the_signature_stays_small():
    assert len(inspect.signature(evaluate).parameters) <= 13


def test_weights_that_cannot_be_fetched_are_one_sentence(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(HoldfastError, match=r"the weights of timm:resnet18 cannot be downloaded .* timm:resnet18@FILE"):
        evaluate("timm:resnet18", colours(3), "clean", **QUICK)


def test_output_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    np.savez(tmp_path / "data.npz", x=colours(3).images, y=colours(3).targets)
    arguments = ["evaluate", "--model", "python:tests.evaluation.toys:brightest", "--suite", "clean", "--workers", "0"]
    assert main([*arguments, "--data", f"npz:{tmp_path / 'data.npz'}", "--out", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("holdfast: error: out must be a folder we can write to")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "needs either runs' folders or --model, got neither"),
        (["runs/x", "--model", "timm:resnet18"], "got both"),
        (["--model", "timm:resnet18"], "needs --data"),
        (["--model", "python:tests.evaluation.toys:brightest", "--data", "digit"], "unknown data 'digit'"),
        (
            ["--model", "python:tests.evaluation.toys:brightest", "--data", "digits"],
            "must have the 10 classes of 'digits', got 3",
        ),
        (["--limt", "3"], "did you mean '--limit'"),
    ],
    ids=str,
)
def test_bad_arguments_of_the_command(arguments, sentence, capsys, tmp_path, monkeypatch):
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_sources_with_twice_the_same_id_are_refused():
    source = colours(4)
    twice = type(source)("x", source.images, source.targets, source.classes, np.zeros(4, dtype=int))
    with pytest.raises(HoldfastError, match="ids of a data set must be unique"):
        evaluate(Brightest(), twice, "clean", **QUICK)


def test_the_header_says_everything(tmp_path):
    records = evaluate(Brightest(), colours(6), "clean", out=tmp_path, limit=4, seed=3, **QUICK)
    header = json.loads((records.folder / "evaluation.json").read_text())
    assert header == records.header
    assert {
        "model",
        "model_fingerprint",
        "data",
        "data_fingerprint",
        "seed",
        "preset",
        "preprocessing",
        "versions",
        "label",
        "limit",
        "frost",
    } < set(header)
    assert records.folder.parent == tmp_path / "records"
    assert records.folder.name == f"colours-{header['fingerprint'][:8]}"


def test_digits_are_evaluated_on_their_test_split():
    class Ten(ByLevel):
        pass

    records = evaluate(Ten(10, 10), "digits", "clean", **QUICK)
    test = open_data("digits:test")
    assert records.cells["clean"].ids.tolist() == [test.id(index) for index in range(len(test))]
