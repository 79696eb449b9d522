"""The runner: the same records however the work is cut, interrupted or shared, and nothing ever mixed."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from holdfast import ComputeConfig, EvalProtocol, evaluate
from holdfast.errors import HoldfastError
from holdfast.records.records import load_records
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


def test_an_attack_that_fails_names_its_cell():
    class Constant(nn.Module):
        def forward(self, images):
            return torch.zeros(len(images), 3)

    with pytest.raises(HoldfastError, match=r"^pgd5: the model must be differentiable"):
        evaluate(Constant(), colours(3), "pgd5", **QUICK)
