"""Segmentation from data to scores: what is kept, what follows from it, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassJaccardIndex

import holdfast
from holdfast import ComputeConfig, EvalProtocol
from holdfast.cli.main import main
from holdfast.data import open_data
from holdfast.data.scenes import SceneSource
from holdfast.errors import HoldfastError
from holdfast.metrics.comparison import compare
from holdfast.metrics.iou import KINDS, cityscapes_c_mean, mean_iou, pixel_counts
from holdfast.records.records import load_records
from tests.data.test_camvid import CAMVID, write_camvid
from tests.data.test_cityscapes import write_cityscapes
from tests.data.test_label_maps import save_image, save_labels


class Brightness(nn.Module):
    """Eleven classes by the level of the red channel: quick, and different for every corruption."""

    def forward(self, images):
        levels = torch.arange(11, device=images.device).view(1, -1, 1, 1) / 10
        return -(images[:, :1] - levels).square() * 40


class Constant(nn.Module):
    """Always the first of so many classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images):
        logits = images.new_zeros(len(images), self.classes, *images.shape[-2:])
        logits[:, 0] = 2
        return logits + 0 * images.sum()


def evaluate(model, data, suites="clean", **options):
    return holdfast.evaluate(model, data, suites, **{"workers": 0, "show": False, **options})


def by_hand(model, source, seen=None) -> np.ndarray:
    """Counts of a data set, image by image."""
    total = 0
    for index in range(len(source)):
        pixels = np.asarray(source.image(index)) if seen is None else seen(index)
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
        predicted = model(image)[0].argmax(0).numpy()
        total = total + pixel_counts(predicted, source.target(index), classes=len(source.classes))
    return total


def test_records_hold_the_counts_and_scores_follow_from_them(tmp_path):
    source = SceneSource("test", count=5)
    records = evaluate(Brightness(), source, "clean", out=tmp_path)
    cell = records.cells["clean"]
    np.testing.assert_array_equal(cell.counts.sum(axis=0), by_hand(Brightness(), source))
    np.testing.assert_array_equal(cell.bands.sum(axis=1), cell.counts)
    summary = records.summary()
    assert summary["clean"].value == pytest.approx(100 * mean_iou(cell.counts.sum(axis=0)))
    assert summary["clean"].low <= summary["clean"].value <= summary["clean"].high
    jaccard = MulticlassJaccardIndex(num_classes=11, ignore_index=255)
    for index in range(5):
        pixels = torch.from_numpy(np.asarray(source.image(index)).copy()).permute(2, 0, 1)[None].float() / 255
        jaccard.update(Brightness()(pixels).argmax(1), torch.from_numpy(source.target(index))[None].long())
    assert summary["clean"].value == pytest.approx(100 * float(jaccard.compute()), abs=1e-4)
    assert summary["iou/background"].value > 0
    assert summary["pixel_accuracy"].value == pytest.approx(100 * cell.counts[:, 2].sum() / cell.counts[:, 0].sum())
    (again,) = load_records(tmp_path)
    assert again.task == "segmentation"
    assert again.header["class_names"][1] == "0"
    assert again.summary(intervals=False)["clean"].value == summary["clean"].value


def test_corruptions_are_those_that_leave_labels_in_place_and_average_by_both_rules():
    source = SceneSource("test", size=(40, 48), count=2)
    records = evaluate(Brightness(), source, "clean,corruptions")
    kinds = {cell.spec.kind for cell in records.cells.values()} - {""}
    assert kinds == set(KINDS)
    assert len(records.cells) == 81
    mious = {name: 100 * float(mean_iou(cell.counts.sum(axis=0))) for name, cell in records.cells.items()}
    summary = records.summary(intervals=False)
    assert summary["cityscapes_c"].value == pytest.approx(cityscapes_c_mean(mious))
    assert summary["cityscapes_c_fan_released"].value == pytest.approx(cityscapes_c_mean(mious, rule="fan-released"))
    every = np.mean([mious[f"{kind}/{severity}"] for kind in KINDS for severity in range(1, 6)])
    assert summary["mean_corruption_miou"].value == pytest.approx(every)
    assert summary["retention"].value == pytest.approx(100 * every / mious["clean"])
    assert summary["cityscapes_c_retention"].value == pytest.approx(100 * cityscapes_c_mean(mious) / mious["clean"])
    fog = np.mean([mious[f"fog/{severity}"] for severity in range(1, 6)])
    assert summary["miou/fog"].value == pytest.approx(fog)
    assert summary["miou_group/weather"].value == pytest.approx(
        np.mean(
            [np.mean([round(mious[f"{k}/{s}"], 2) for s in range(1, 6)]) for k in ("snow", "spatter", "fog", "frost")]
        )
    )


def test_the_papers_suite_has_72_cells_and_partial_ones_say_so():
    source = SceneSource("test", size=(40, 48), count=1)
    records = evaluate(Constant(11), source, "cityscapes-c")
    assert len(records.cells) == 72
    assert "gaussian_noise/4" not in records.cells
    summary = records.summary(intervals=False)
    assert "cityscapes_c" in summary
    assert "mean_corruption_miou_partial" in summary  # noise lacks severities 4 and 5
    some = records.only([name for name in records.cells if name.startswith("fog")]).summary(intervals=False)
    assert "cityscapes_c_partial" in some
    assert "miou/fog" in some


def test_records_are_the_same_for_any_workers_and_shards_and_after_a_stop(tmp_path):
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11)
    source = SceneSource("test", size=(32, 40), count=4)
    suites = "clean,segpgd5"
    plain = evaluate(model, source, suites)
    others = [
        evaluate(model, source, suites, workers=2, compute=ComputeConfig(shard_size=2)),
        evaluate(model, source, suites, compute=ComputeConfig(batch_size=3, attack_batch_size=2, shard_size=3)),
    ]
    folder = tmp_path / "stopped"
    evaluate(model, source, suites, out=folder, compute=ComputeConfig(shard_size=2))
    for path in list(folder.rglob("segpgd5.*.safetensors"))[:2]:
        path.unlink()
    others.append(evaluate(model, source, suites, out=folder, compute=ComputeConfig(shard_size=2)))
    for other in others:
        for name, cell in plain.cells.items():
            for field in ("counts", "bands", "boundary"):
                np.testing.assert_array_equal(getattr(other.cells[name], field), getattr(cell, field))


def test_attacks_say_their_radius_and_steps():
    records = evaluate(
        holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11),
        SceneSource("test", size=(32, 40), count=2),
        "pgd5,segpgd5",
    )
    summary = records.summary(intervals=False)
    assert summary["attack/segpgd5"].note == "ε = 1/255, 5 steps"
    assert records.cells["pgd5"].header["settings"]["steps"] == 5


def test_windows_are_recorded_and_change_what_is_seen():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11)
    source = SceneSource("test", size=(48, 96), count=2)
    whole, windows = evaluate(model, source), evaluate(model, source, protocol=EvalProtocol(window=48, stride=32))
    assert whole.header["preprocessing"]["inference"] == "whole images, one at a time"
    assert windows.header["preprocessing"]["inference"] == "windows of 48×48, stride 32, mean logits"
    assert whole.header["fingerprint"] != windows.header["fingerprint"]
    assert not np.array_equal(whole.cells["clean"].counts, windows.cells["clean"].counts)
    assert model.window is None
    foreign = evaluate(Brightness(), source, protocol=EvalProtocol(window=48))
    np.testing.assert_array_equal(foreign.cells["clean"].counts, evaluate(Brightness(), source).cells["clean"].counts)


def test_two_models_are_compared_on_the_same_draws():
    source = SceneSource("test", count=6)
    one, other = evaluate(Brightness(), source), evaluate(Constant(11), source)
    difference = compare(one, other).differences["clean"]
    assert difference.first - difference.second == pytest.approx(difference.interval.value)
    assert compare(one, one).differences["clean"].interval.high == 0


def test_recordings_are_shown_separately_and_left_out_in_blocks(tmp_path):
    write_camvid(tmp_path, segnet=False)
    records = evaluate(Constant(11), f"camvid:{tmp_path}")
    summary = records.summary()
    assert summary["group/0001TP"].value == pytest.approx(100 * mean_iou(records.cells["clean"].counts[0]))
    assert "group/Seq05VD" in summary
    assert "blocks of about 10 consecutive frames" in summary.interval_note


@pytest.mark.skipif(not CAMVID.is_dir(), reason="CamVid is not here")
def test_the_real_camvid_is_evaluated_by_recording():
    model = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11)
    records = evaluate(model, f"camvid:{CAMVID}", limit=4)
    summary = records.summary()
    assert {"group/0001TP", "group/Seq05VD"} <= set(summary.scores)
    assert records.cells["clean"].counts[:, 0].sum() < 4 * 480 * 360  # void counts nowhere


def test_cities_are_shown_separately_and_stored_cityscapes_c_is_scored(tmp_path):
    root = write_cityscapes(tmp_path / "cityscapes")
    stem = "lindau_000000_000019"
    save_image(root / "leftImg8bit" / "val" / "lindau" / f"{stem}_leftImg8bit.png")
    save_labels(root / "gtFine" / "val" / "lindau" / f"{stem}_gtFine_labelIds.png", [7] * 8)
    clean = evaluate(Constant(19), f"cityscapes:{root}")
    assert clean.summary(intervals=False)["group/lindau"].value == 100
    for place in ("frankfurt", "lindau"):
        name = f"{place}_000000_000019_leftImg8bit.png"
        save_image(tmp_path / "stored" / "fog" / "3" / place / name)
    stored = evaluate(Constant(19), f"cityscapes-c:{tmp_path / 'stored'},{root}", "cityscapes-c")
    assert list(stored.cells) == ["fog/3"]
    assert stored.header["label"] == "official"
    assert len(stored.header["partial"]) == 71
    np.testing.assert_array_equal(stored.cells["fog/3"].counts, clean.cells["clean"].counts)


def test_acdc_is_fitted_into_its_box_and_scored_by_condition(tmp_path):
    size = (54, 96)  # as 1080×1920: short and long side
    for weather, label in (("fog", 7), ("night", 8), ("rain", 7), ("snow", 7)):
        stem = f"GOPR0475_frame_{weather}_000041"
        save_image(tmp_path / "rgb_anon" / weather / "val" / "GOPR0475" / f"{stem}_rgb_anon.png", size)
        save_labels(tmp_path / "gt" / weather / "val" / "GOPR0475" / f"{stem}_gt_labelIds.png", np.full(size, label))
    seen = []

    class Watching(Constant):
        def forward(self, images):
            seen.append(tuple(images.shape[-2:]))
            return super().forward(images)

    source = open_data(f"acdc:{tmp_path}")
    assert source.box == (1024, 2048)
    source.box = (64, 128)
    records = evaluate(Watching(19), source)
    assert seen[-1] == (64, 114)
    assert records.cells["clean"].counts[0].sum(axis=-1).tolist() == [54 * 96] * 3
    summary = records.summary(intervals=False)
    scores = {name: summary[f"condition/{name}"].value for name in ("fog", "night", "rain", "snow")}
    assert scores == {"fog": 100, "night": 0, "rain": 100, "snow": 100}
    assert summary["mean_condition_miou"].value == 75
    assert summary["clean"].value == pytest.approx(100 * 0.75 / 2)  # pooled: road 3/4, pavement 0


# ---------------------------------------------------------------------- sources


# ---------------------------------------------------------------------- refusals


def tiny_folder(root: Path) -> str:
    for name in ("a", "b"):
        save_image(root / "images" / f"{name}.png")
        save_labels(root / "labels" / f"{name}.png", [0, 1] * 4)
    return f"masks:{root / 'images'},{root / 'labels'}"


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_labels_stop_the_evaluation_with_their_sentence(tmp_path, workers):
    data = tiny_folder(tmp_path)
    (tmp_path / "labels" / "classes.txt").write_text("road\nsky\n")
    save_labels(tmp_path / "labels" / "b.png", [0, 7] * 4)
    with pytest.raises(HoldfastError, match=r"labels of 'b.png' must be 0 to 1 or 255 for ignored, got 7"):
        evaluate(Constant(2), data, workers=workers)
    save_labels(tmp_path / "labels" / "b.png", np.zeros((3, 3)))
    with pytest.raises(HoldfastError, match="image's size 6×8, got 3×3"):
        evaluate(Constant(2), data, workers=workers)


def test_an_unreadable_image_counts_in_no_cell(tmp_path):
    data = tiny_folder(tmp_path)
    (tmp_path / "images" / "b.png").write_bytes(b"")
    records = evaluate(Constant(2), data)
    assert records.excluded == ("b.png",)
    assert len(records.cells["clean"]) == 1


def test_a_classifier_cannot_segment_and_a_segmenter_cannot_classify():
    with pytest.raises(HoldfastError, match="a classifier cannot segment"):
        evaluate(holdfast.create_model("fan_nano"), SceneSource("test", count=1))
    with pytest.raises(HoldfastError, match=r"logits of shape \(images, classes\), got \(1, 10, 224, 224\)"):
        evaluate(holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=10), "digits", limit=2)
    with pytest.raises(HoldfastError, match="must have the 11 classes of"):
        evaluate(Constant(5), SceneSource("test", count=1))


@pytest.mark.parametrize(
    ("suite", "options", "sentence"),
    [
        ("perturbations", {}, "perturbations"),
        ("patch-fool", {}, "one class per image"),
        ("occlusion-random", {}, "needs images of one size"),
        ("clean", {"protocol": EvalProtocol(stored_jpeg=True)}, "stored_jpeg is a setting of ImageNet-C"),
    ],
)
def test_suites_that_label_maps_cannot_serve_are_refused(suite, options, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        evaluate(Constant(11), SceneSource("test", count=1), suite, **options)


def test_suites_of_label_maps_are_refused_for_classes():
    with pytest.raises(HoldfastError, match="needs label maps"):
        evaluate(holdfast.create_model("fan_nano"), "digits", "cityscapes-c", limit=2)
    with pytest.raises(HoldfastError, match="needs a class per pixel"):
        evaluate(holdfast.create_model("fan_nano"), "digits", "segpgd5", limit=2)


def test_numbers_that_are_none_are_refused():
    class Broken(Constant):
        def forward(self, images):
            return super().forward(images) * float("nan")

    with pytest.raises(HoldfastError, match="NaN or infinity in clean"):
        evaluate(Broken(11), SceneSource("test", count=1))


# ---------------------------------------------------------------------- predictions as files, and the command line


def test_a_released_file_is_evaluated_by_name_of_its_encoder(tmp_path, capsys):
    giver = holdfast.segmenter("fan_mini_4_p4_hybrid", num_classes=11)
    state = {**giver.state_dict(), "decode_head.conv_seg.weight": torch.zeros(11, 256, 1, 1)}
    torch.save({"meta": {}, "state_dict": state}, tmp_path / "iter_160000.pth")
    model = f"timm:fan_mini_4_p4_hybrid@{tmp_path / 'iter_160000.pth'}"
    data = ["--data", "scenes:test,40x48,2", "--suite", "clean", "--workers", "0"]
    assert main(["evaluate", "--model", model, *data, "--out", str(tmp_path / "out")]) == 0
    assert "pixel accuracy" in capsys.readouterr().out
    (records,) = load_records(tmp_path / "out")
    expected = evaluate(
        giver, "scenes:test,40x48,2", protocol=EvalProtocol(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    )
    np.testing.assert_array_equal(records.cells["clean"].counts, expected.cells["clean"].counts)
    assert main(["evaluate", "--model", model, *data, "--predictions", str(tmp_path / "maps")]) == 0
    assert len(list((tmp_path / "maps").rglob("*.png"))) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "masks:nowhere,neither"], "masks needs two folders"),
        (["--data", "camvid:nowhere"], "must hold test.txt"),
        (["--data", "cityscapes:nowhere"], "must hold images"),
        (["--data", "acdc:nowhere"], "must hold images"),
        (["--data", "scenes:tset"], "did you mean 'test'"),
        (["--data", "scenes:test,2", "--suite", "perturbations"], "perturbations"),
        (
            ["--data", "scenes:test,2", "--window", "32", "--stride", "64"],
            "stride must lie between 1 and the window's 32",
        ),
        (["--data", "digits"], "logits of shape"),
    ],
)
def test_the_command_line_answers_bad_input_with_one_sentence(arguments, sentence, tmp_path, capsys, monkeypatch):
    (tmp_path / "own.py").write_text(
        "import holdfast\ndef build():\n    return holdfast.segmenter('fan_mini_4_p4_hybrid', num_classes=11)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["evaluate", "--model", "python:own:build", "--suite", "clean", "--workers", "0", *arguments]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_records_whose_header_lost_its_task_are_a_sentence(tmp_path):
    holdfast.evaluate(Brightness(), "scenes:test", "clean", limit=2, out=tmp_path, workers=0, show=False)
    header = next(tmp_path.rglob("evaluation.json"))
    told = json.loads(header.read_text())
    header.write_text(json.dumps({key: value for key, value in told.items() if key != "task"}))
    with pytest.raises(HoldfastError, match="a cell of classification has no 'predictions' here"):
        load_records(tmp_path)[0].summary()


@pytest.mark.parametrize("classes", [2**63, 12, 10, 0, -1])
def test_records_whose_header_counts_other_classes_are_a_sentence(classes, tmp_path):
    holdfast.evaluate(Brightness(), "scenes:test", "clean", limit=2, out=tmp_path, workers=0, show=False)
    header = next(tmp_path.rglob("evaluation.json"))
    header.write_text(json.dumps({**json.loads(header.read_text()), "classes": classes}))
    with pytest.raises(HoldfastError, match=f"must have the {classes} classes of their header"):
        load_records(tmp_path)[0].summary()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ("aaa", "must hold class_names as list"),
        ([1] * 11, "class_names, .*shard_size have invalid values"),
        (["a"], "got 1 names"),
    ],
)
def test_records_whose_header_names_other_classes_are_a_sentence(names, sentence, tmp_path):
    holdfast.evaluate(Brightness(), "scenes:test", "clean", limit=2, out=tmp_path, workers=0, show=False)
    header = next(tmp_path.rglob("evaluation.json"))
    header.write_text(json.dumps({**json.loads(header.read_text()), "class_names": names}))
    with pytest.raises(HoldfastError, match=sentence):
        load_records(tmp_path)[0].summary()
