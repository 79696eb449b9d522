"""Detectors of other projects as ONNX files: the AP of a decoder written by hand and pycocotools, or one sentence."""

import json
import re

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from holdfast import evaluate
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.models.factory import load_model
from tests.deploy.detection_graphs import (
    coco_scores,
    constant_graph,
    greedy_nms,
    letterbox,
    sizes_of,
)
from tests.tasks.detectors import IDS, coco_folder

SEEN = (64, 96)  # height and width of what the files see
PLAIN = {"mean": (0, 0, 0), "std": (1, 1, 1)}
NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


@pytest.fixture
def data(tmp_path):
    """Pictures of 40×64, 48×64 and 56×64 with categories 1, 3 and 13."""
    folder = tmp_path / "coco"
    folder.mkdir()
    coco_folder(folder)
    return folder


def placed(folder, resize):
    """By image: scale and offset of x and y in what the model sees."""
    found = {}
    for name, (height, width) in sizes_of(folder, folder / "instances.json").items():
        if resize == "letterbox":
            ratio, left, top = letterbox((height, width), SEEN)
            found[name] = ((ratio, ratio), (left, top), (height, width))
        else:
            scale = (SEEN[1] / width, SEEN[0] / height) if resize == "stretch" else (1.0, 1.0)
            found[name] = (scale, (0, 0), (height, width))
    return found


def candidates(folder, resize):
    """Boxes that are right for some image, in the model's pixels, with scores and classes; and near doubles of them."""
    content = json.loads((folder / "instances.json").read_text())
    names = {image["id"]: image["file_name"] for image in content["images"]}
    where, rng, rows = placed(folder, resize), np.random.default_rng(0), []
    for number, truth in enumerate(content["annotations"]):
        (across, down), (left, top), _ = where[names[truth["image_id"]]]
        x, y, w, h = truth["bbox"]
        box = np.array([x * across + left, y * down + top, (x + w) * across + left, (y + h) * down + top])
        label = IDS.index(truth["category_id"])
        rows.append([*(box + rng.normal(0, 0.7, 4)), 0.9 - 0.07 * number, label])
        rows.append([*(box + rng.normal(0, 1.5, 4)), 0.5 - 0.05 * number, label])
        rows.append([*(box + rng.normal(0, 1.5, 4)), 0.3 - 0.05 * number, (label + 1) % len(IDS)])
    return np.array(rows)


def undone(rows, where, *, clip):
    """Rows in the model's pixels → by image, in its own."""
    found = {}
    for name, (scale, offset, (height, width)) in where.items():
        moved = rows.copy()
        moved[:, :4] = (rows[:, :4] - np.tile(offset, 2)) / np.tile(scale, 2)
        if clip:
            moved[:, :4] = moved[:, :4].clip(0, [width, height, width, height])
        found[name] = moved
    return found


def centres(rows):
    return np.concatenate([(rows[:, :2] + rows[:, 2:4]) / 2, rows[:, 2:4] - rows[:, :2]], axis=1)


def scattered(rows):
    """Scores as a table of place × class."""
    table = np.zeros((len(rows), len(IDS)))
    table[np.arange(len(rows)), rows[:, 5].astype(int)] = rows[:, 4]
    table[:, 0] = np.maximum(table[:, 0], 0.05)  # places of several classes
    return table


def of_table(boxes, table, least):
    places, classes = np.nonzero(table > least)
    return np.column_stack([boxes[places], table[places, classes], classes])


def yolov8(folder):
    rows = candidates(folder, "letterbox")
    table = scattered(rows)
    grid = np.concatenate([centres(rows), table], axis=1).T[None].astype(np.float32)
    found = greedy_nms(of_table(rows[:, :4], table, 0.001), 0.7)
    return {"output0": grid}, undone(found, placed(folder, "letterbox"), clip=True), {}


def yolov8_agnostic(folder):
    outputs, _, _ = yolov8(folder)
    rows = candidates(folder, "letterbox")
    found = greedy_nms(of_table(rows[:, :4], scattered(rows), 0.001), 0.4, per_class=False)
    options = {"nms": "agnostic", "nms_iou": 0.4}
    return outputs, undone(found, placed(folder, "letterbox"), clip=True), options


def yolov5(folder):
    rows = candidates(folder, "letterbox")
    table, objectness = scattered(rows), np.linspace(0.6, 1, len(rows))[:, None]
    grid = np.concatenate([centres(rows), objectness, table], axis=1)[None].astype(np.float32)
    found = greedy_nms(of_table(rows[:, :4], table * objectness, 0.001), 0.6)
    return {"output": grid}, undone(found, placed(folder, "letterbox"), clip=True), {}


def yolov10(folder):
    rows = candidates(folder, "letterbox")
    filled = np.concatenate([rows, np.zeros((300 - len(rows), 6))])[None].astype(np.float32)
    return {"output0": filled}, undone(rows, placed(folder, "letterbox"), clip=True), {}


def detr(folder):
    rows = candidates(folder, "stretch")
    logits = np.random.default_rng(1).normal(0, 1, (len(rows), len(IDS) + 1))
    logits[np.arange(len(rows)), rows[:, 5].astype(int)] += 4
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    best = chances[:, :-1].argmax(1)
    shares = centres(rows) / [SEEN[1], SEEN[0], SEEN[1], SEEN[0]]
    found = np.column_stack([rows[:, :4], chances[np.arange(len(rows)), best], best])
    outputs = {"logits": logits[None].astype(np.float32), "pred_boxes": shares[None].astype(np.float32)}
    return outputs, undone(found, placed(folder, "stretch"), clip=False), PLAIN


def rt_detr(folder):
    rows = candidates(folder, "stretch")
    logits = np.random.default_rng(1).normal(-2, 1, (len(rows), len(IDS)))
    logits[np.arange(len(rows)), rows[:, 5].astype(int)] += 4
    chances = 1 / (1 + np.exp(-logits))
    best = np.argsort(-chances.ravel())[: len(rows)]
    shares = centres(rows) / [SEEN[1], SEEN[0], SEEN[1], SEEN[0]]
    found = np.column_stack([rows[best // len(IDS), :4], chances.ravel()[best], best % len(IDS)])
    outputs = {"pred_boxes": shares[None].astype(np.float32), "logits": logits[None].astype(np.float32)}
    return outputs, undone(found, placed(folder, "stretch"), clip=False), PLAIN


def torchvision(folder):
    rows = candidates(folder, "stretch")
    outputs = {
        "boxes": rows[:, :4].astype(np.float32),
        "labels": np.array(IDS)[rows[:, 5].astype(int)],
        "scores": rows[:, 4].astype(np.float32),
    }
    return outputs, undone(rows, placed(folder, "stretch"), clip=False), {"class_ids": "category-ids"}


def paddle(folder):
    rows = candidates(folder, "none")
    written = np.column_stack([rows[:, 5], rows[:, 4], rows[:, :4]]).astype(np.float32)
    outputs = {"rows": written, "count": np.array([len(rows)])}
    return outputs, dict.fromkeys(placed(folder, "none"), rows), PLAIN


CASES = (yolov8, yolov8_agnostic, yolov5, yolov10, detr, rt_detr, torchvision, paddle)


def measured(path, folder, **options):
    data = f"coco:{folder},{folder / 'instances.json'}"
    return evaluate(f"onnx:{path}", data, workers=0, show=False, protocol=EvalProtocol(**options))


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_every_layout_has_the_ap_of_a_decoder_by_hand_and_pycocotools(data, tmp_path, make):
    outputs, found, options = make(data)
    more = ("scale_factor",) if make is paddle else ()
    path = constant_graph(tmp_path / "m.onnx", outputs, size=SEEN, more=more)
    records = measured(path, data, **options)
    wanted = coco_scores(data / "instances.json", found, IDS)
    columns = {name: values[0] for name, values in _columns(records).items()}
    got = [columns.get(f"box_{name}", -1.0) for name in NAMES]  # −1: there is nothing of that size
    assert got == pytest.approx(wanted.tolist(), abs=1e-6)
    assert 0.05 < wanted[0] < 0.999
    assert records.header["preprocessing"]["outputs"] in make.__name__.replace("_", "-")


def _columns(records):
    from holdfast.metrics.scoring.detection import SCORING

    return SCORING.replicates(records.cells["clean"], None)


def test_a_fixed_batch_and_an_image_without_batch_give_the_same(data, tmp_path):
    outputs, _, _ = yolov8(data)
    four = {"output0": np.repeat(outputs["output0"], 4, axis=0)}
    one = measured(constant_graph(tmp_path / "one.onnx", outputs, size=SEEN), data)
    batch = measured(constant_graph(tmp_path / "four.onnx", four, size=SEEN, batch=4), data)
    alone = measured(constant_graph(tmp_path / "alone.onnx", outputs, size=SEEN, batch=None), data)
    wanted = np.concatenate(one.cells["clean"].fields["boxes"])
    for other in (batch, alone):
        assert np.array_equal(np.concatenate(other.cells["clean"].fields["boxes"]), wanted)


def test_a_file_of_an_open_size_must_be_told_one_and_the_records_name_it(data, tmp_path):
    outputs, _, _ = yolov8(data)
    path = constant_graph(tmp_path / "m.onnx", outputs, size=("h", "w"))
    with pytest.raises(HoldfastError, match="does not define its size: add --size"):
        measured(path, data)
    steps = measured(path, data, size=SEEN).header["preprocessing"]
    assert steps["model_size"] == "64×96 letterbox, opencv-bilinear"
    assert steps["nms_iou"] == 0.7
    assert steps["score_threshold"] <= 0.001
    with pytest.raises(HoldfastError, match="size must be the 64×96 that the file fixes, got 128"):
        measured(constant_graph(tmp_path / "n.onnx", outputs, size=SEEN), data, size=128)


def test_what_neither_file_nor_layout_says_must_be_said(data, tmp_path):
    path = constant_graph(tmp_path / "m.onnx", detr(data)[0], size=SEEN)
    with pytest.raises(HoldfastError, match="does not define its mean and std: add --mean and --std"):
        measured(path, data)
    path = constant_graph(tmp_path / "t.onnx", torchvision(data)[0], size=SEEN)
    with pytest.raises(HoldfastError, match="give --class-ids category-ids"):
        measured(path, data)


def test_settings_are_part_of_the_model_and_words_are_checked(data, tmp_path):
    path = constant_graph(tmp_path / "m.onnx", yolov8(data)[0], size=SEEN)
    another = constant_graph(tmp_path / "n.onnx", {"output0": yolov8(data)[0]["output0"] * 0.9}, size=SEEN)
    one, other, third = measured(path, data), measured(path, data, nms="agnostic"), measured(another, data)
    assert len({records.header["model_fingerprint"] for records in (one, other, third)}) == 3
    copy = constant_graph(tmp_path / "copy.onnx", yolov8(data)[0], size=SEEN)
    assert measured(copy, data).header["model_fingerprint"] == one.header["model_fingerprint"]
    for options, sentence in (
        ({"outputs": "yolo8"}, "outputs must be one of torchvision, paddle, .* got 'yolo8'"),
        ({"nms": "soft"}, "nms must be one of per-class, agnostic, none, got 'soft'"),
        ({"resize": "crop"}, "resize must be one of none, stretch, letterbox"),
        ({"interpolation": "cubic"}, "interpolation must be one of"),
        ({"nms_iou": 1.5}, r"nms_iou must lie in 0…1, got 1\.5"),
        ({"window": 32}, "window and stride are settings of segmentation"),
    ):
        with pytest.raises(HoldfastError, match=sentence):
            measured(path, data, **options)


FIRST = np.array([1, 0, 0, 0, 0, 0])  # the column of classes
MALFORMED = {
    "NaN boxes": (yolov8, "output0", lambda values: np.where(values > 30, np.nan, values), "NaN or infinity"),
    "infinite logits": (detr, "logits", lambda values: values * np.inf, "NaN or infinity"),
    "too large a count": (
        paddle,
        "count",
        lambda values: values + 3,
        r"must add up to the 12 rows there are, got \[15\]",
    ),
    "a negative count": (paddle, "count", lambda values: -values, "must add up"),
    "class out of range": (
        paddle,
        "rows",
        lambda values: values + 90 * FIRST,
        "classes must be numbers 0 to 2",
    ),
    "half a class": (paddle, "rows", lambda values: values + 0.5 * FIRST, "classes must be whole numbers"),
    "id out of range": (torchvision, "labels", lambda values: values + 50, "classes must be numbers 0 to 13"),
    "other counts": (torchvision, "scores", lambda values: values[:-1], "must be equally many, got 12, 12, 11"),
    "other classes": (yolov8, "output0", lambda values: values[:, :-1], "must have the 3 classes of the data"),
}


@pytest.mark.parametrize("case", MALFORMED.values(), ids=MALFORMED)
def test_malformed_outputs_are_one_sentence_and_nothing_is_written(data, tmp_path, case, capsys):
    from holdfast.cli.main import main

    make, name, change, sentence = case
    outputs, _, options = make(data)
    outputs[name] = change(outputs[name]).astype(outputs[name].dtype)
    path = constant_graph(tmp_path / "m.onnx", outputs, size=SEEN)
    words = ["--mean", "0", "0", "0", "--std", "1", "1", "1"] if "mean" in options else []
    words += ["--class-ids", "category-ids"] if "class_ids" in options else []
    command = ["evaluate", "--model", f"onnx:{path}", "--data", f"coco:{data},{data / 'instances.json'}"]
    assert main([*command, "--suite", "clean", "--workers", "0", "--out", str(tmp_path / "out"), *words]) == 2
    told = capsys.readouterr().err
    assert re.search(sentence, told)
    assert told.count("\n") == 1
    assert not (tmp_path / "out" / "records").exists() or not any((tmp_path / "out" / "records").iterdir())


def test_outputs_that_fit_several_layouts_or_none_are_told_apart(data, tmp_path):
    rows = np.zeros((1, 40, 6), np.float32)
    with pytest.raises(
        HoldfastError, match=r"can be those of several layouts: name one with --outputs \(yolov5, yolov10\)"
    ):
        measured(constant_graph(tmp_path / "m.onnx", {"output": rows}, size=SEEN), data)
    strange = {"a": np.zeros((1, 7, 4), np.float32), "b": np.zeros((1, 3, 9, 9), np.float32)}
    with pytest.raises(HoldfastError, match="detections as torchvision, paddle, yolov8"):
        load_model(f"onnx:{constant_graph(tmp_path / 'n.onnx', strange, size=SEEN)}")
    path = constant_graph(tmp_path / "o.onnx", yolov8(data)[0], size=SEEN, more=("orig_size",))
    with pytest.raises(HoldfastError, match="wants 'orig_size' beside the image"):
        load_model(f"onnx:{path}")
    path = constant_graph(tmp_path / "p.onnx", yolov8(data)[0], size=SEEN)
    with pytest.raises(HoldfastError, match="cannot be read as detr: that is DETR"):
        measured(path, data, outputs="detr", **PLAIN)


def test_options_of_such_detectors_are_refused_for_other_models(data):
    from tests.tasks.detectors import plain_mask_rcnn

    with pytest.raises(HoldfastError, match="nms is a setting of other detectors or segmenters"):
        evaluate(plain_mask_rcnn(), f"coco:{data},{data / 'instances.json'}", protocol=EvalProtocol(nms="none"))


def words(**options):
    """A protocol as options of a command."""
    return [
        w for key, value in options.items() for w in (f"--{key.replace('_', '-')}", *map(str, np.atleast_1d(value)))
    ]


def test_a_foreign_file_goes_through_every_command(data, tmp_path, capsys):
    """Evaluate, gate in one step, report, predict with overlays, lab; export says why not."""
    from holdfast.cli.main import main
    from holdfast.lab import inspect_image, open_model
    from holdfast.lab.session import Session, ViewState

    outputs, _, _ = detr(data)
    path, spec = constant_graph(tmp_path / "m.onnx", outputs, size=SEEN), f"coco:{data},{data / 'instances.json'}"
    model, told = f"onnx:{path}", words(mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5), outputs="detr")
    run = ["evaluate", "--model", model, "--data", spec, "--suite", "clean", "--workers", "0"]
    assert main([*run, "--out", str(tmp_path / "old"), *told]) == 0
    gate = [
        "gate",
        "--model",
        model,
        "--against",
        str(tmp_path / "old"),
        "--out",
        str(tmp_path / "new"),
        "--workers",
        "0",
    ]
    assert main(gate) == 2
    assert "does not define its mean and std" in capsys.readouterr().err
    assert main([*gate, *told, "--unresolved", "pass"]) == 0
    assert main(["gate", str(tmp_path / "new"), "--against", str(tmp_path / "old"), "--outputs", "detr"]) == 2
    assert "need --model" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "old"), "--out", str(tmp_path / "report.html")]) == 0
    seen = ["predict", str(data / "0.png"), "--model", model, "--overlays", str(tmp_path / "seen")]
    assert main([*seen, *told]) == 0
    assert (tmp_path / "seen" / "0.png").is_file()
    assert main(["export", model, "--data", spec, "--out", str(tmp_path / "n.onnx"), *told]) == 2
    assert "which is an exported file" in capsys.readouterr().err
    protocol = EvalProtocol(mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5), outputs="detr")
    lens = open_model(model, spec, protocol=protocol)
    assert inspect_image(lens, 0, "fog/3").after.fields
    assert "outputs='detr'" in Session([lens]).download(ViewState(0, "fog/3"), "lines.py").decode()


def test_a_layout_of_ones_own_is_one_row(data, tmp_path, monkeypatch):
    """Rows of corners, class and score, as nobody else writes them."""
    from holdfast.deploy.detection_layouts import LAYOUTS, Detections, Layout

    def parts(outputs):
        return {"mine": outputs[0][1]} if outputs[0][0] == "mine" else None

    def decode(found, seen, least):
        rows = torch.from_numpy(found["mine"][0])
        return Detections(rows[:, :4], rows[:, 4].long(), rows[:, 5])

    plain = ((0.0,) * 3, (1.0,) * 3)
    monkeypatch.setitem(LAYOUTS, "mine", Layout("corners, class, score", parts, decode, normalisation=plain))
    rows = candidates(data, "stretch")
    outputs = {"mine": rows[None][:, :, [0, 1, 2, 3, 5, 4]].astype(np.float32)}
    records = measured(constant_graph(tmp_path / "m.onnx", outputs, size=SEEN), data, outputs="mine")
    wanted = coco_scores(data / "instances.json", undone(rows, placed(data, "stretch"), clip=False), IDS)
    assert _columns(records)["box_AP"][0] == pytest.approx(wanted[0], abs=1e-6)


def test_names_that_an_exporter_wrote_into_the_file_are_shown_and_compared(data, tmp_path):
    import onnx

    from holdfast import predict

    path = constant_graph(tmp_path / "m.onnx", yolov8(data)[0], size=SEEN)
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"names": "{0: 'car', 1: 'bus', 2: 'cat'}"})
    onnx.save(model, str(path))
    (found,) = predict(f"onnx:{path}", data / "0.png")
    assert {row["class"] for row in found.rows} <= {"car", "bus", "cat"}
    with pytest.raises(HoldfastError, match="number 0 is 'car' for the model and 'c1' in the data"):
        measured(path, data)
    (named,) = predict(f"onnx:{path}", data / "0.png", class_names=["one", "two", "three"])
    assert {row["class"] for row in named.rows} <= {"one", "two", "three"}


def test_masks_come_back_at_the_images_size(tmp_path):
    masks = np.zeros((1, 1, *SEEN), np.float32)
    masks[..., 16:48, 24:72] = 1  # the middle half of both sides
    outputs = {
        "boxes": np.array([[24, 16, 72, 48]], np.float32),
        "labels": np.array([1]),
        "scores": np.array([0.9], np.float32),
        "masks": masks,
    }
    model = load_model(f"onnx:{constant_graph(tmp_path / 'm.onnx', outputs, size=SEEN)}").model
    (found,) = model.configured(EvalProtocol(), None)(torch.rand(1, 3, 128, 96))
    assert found["boxes"].tolist() == [[24, 32, 72, 96]]
    assert found["masks"].shape == (1, 1, 128, 96)
    inside = found["masks"][0, 0] >= 0.5
    assert inside[32:96, 24:72].all()
    assert inside.sum() == 64 * 48


def test_paddles_ways_to_say_that_there_is_nothing(data, tmp_path):
    for number, rows in enumerate((np.zeros((0, 6)), np.full((1, 1), -1.0))):
        outputs = {"rows": rows.astype(np.float32), "count": np.array([len(rows)])}
        path = constant_graph(tmp_path / f"{number}.onnx", outputs, size=SEEN, more=("scale_factor",))
        records = measured(path, data, outputs="paddle", **PLAIN)
        assert all(len(boxes) == 0 for boxes in records.cells["clean"].fields["boxes"])
    with pytest.raises(HoldfastError, match="resize must be stretch or none for paddle"):
        measured(path, data, resize="letterbox", **PLAIN)
