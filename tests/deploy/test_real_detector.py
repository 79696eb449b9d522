"""A detector of somebody else's (PicoDet-S, trained on COCO) on COCO128: the AP of its raw outputs by hand.

The other layouts are cut out of the same graph, so that every one is measured on real detections of real images.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import cv2
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from holdfast import evaluate
from holdfast.evaluation.config import EvalProtocol
from holdfast.metrics.scoring.detection import SCORING
from tests.deploy.detection_graphs import coco_scores, corners, greedy_nms, letterbox
from tests.docs.world import COCO_IDS

SHARED = Path(__file__).parents[3] / "shared"
WEIGHTS, COCO = SHARED / "weights" / "picodet_s_416_coco.onnx", SHARED / "data" / "coco128"
SIDE, MEAN, STD = 416, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BOXES, SCORES = "Mul.23", "Concat.9"  # of the graph before suppression: (1, places, 4) corners, (1, 80, places)

pytestmark = pytest.mark.skipif(
    not (WEIGHTS.is_file() and COCO.is_dir()), reason="needs ../shared/weights/picodet_s_416_coco.onnx and data/coco128"
)


def normalised(pixels):
    values = (pixels.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def stretched(pixels):
    seen = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    return normalised(seen), np.array([SIDE / pixels.shape[1], SIDE / pixels.shape[0]] * 2), np.zeros(4)


def letterboxed(pixels):
    ratio, left, top = letterbox(pixels.shape[:2], (SIDE, SIDE))
    height, width = (round(side * ratio) for side in pixels.shape[:2])
    canvas = np.full((SIDE, SIDE, 3), 114, np.uint8)
    canvas[top : top + height, left : left + width] = cv2.resize(pixels, (width, height))
    return normalised(canvas), np.full(4, ratio), np.array([left, top, left, top])


def by_hand(path, prepare, decode, *, clip=False):
    """Rows of every image: x0, y0, x1, y1 in its pixels, score, rank of the class."""
    session, found = onnxruntime.InferenceSession(str(path)), {}
    for file in sorted((COCO / "images").iterdir()):
        pixels = np.array(Image.open(file).convert("RGB"))
        seen, scale, offset = prepare(pixels)
        fed = {"image": seen}
        if any(one.name == "scale_factor" for one in session.get_inputs()):
            fed["scale_factor"] = np.array([scale[1::-1]], np.float32)
        rows = decode(*session.run(None, fed))
        if len(session.get_inputs()) == 1:
            rows[:, :4] = (rows[:, :4] - offset) / scale
        if clip:
            rows[:, :4] = rows[:, :4].clip(0, np.array([*pixels.shape[1::-1]] * 2))
        found[file.name] = rows[np.argsort(-rows[:, 4], kind="stable")]
    return coco_scores(COCO / "instances.json", found, COCO_IDS)


def check(path, wanted, **options):
    protocol = EvalProtocol(mean=MEAN, std=STD, **options)
    data = f"coco:{COCO / 'images'},{COCO / 'instances.json'}"
    records = evaluate(f"onnx:{path}", data, workers=0, show=False, protocol=protocol)
    columns = SCORING.replicates(records.cells["clean"], None)
    got = [columns[f"box_{name}"][0] for name in ("AP", "AP50", "AP75")]
    assert got == pytest.approx(wanted[:3].tolist(), abs=1e-6)
    return got[0]


def test_picodet_has_the_ap_of_its_raw_outputs():
    def decode(rows, counts):
        assert len(rows) == counts[0]
        return np.column_stack([rows[:, 2:], rows[:, 1], rows[:, 0]]).astype(np.float64)

    assert check(WEIGHTS, by_hand(WEIGHTS, stretched, decode)) == pytest.approx(0.442, abs=0.001)


# --------------------------------------------------------------------------------------- the other layouts


def cut(path, outputs, nodes, weights=()):
    """PicoDet's graph with these nodes and outputs instead of its own; its boxes in the model's pixels."""
    model = onnx.load(str(WEIGHTS))
    model.graph.input.remove(next(one for one in model.graph.input if one.name == "scale_factor"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 2), np.float32), "scale_factor"))
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in weights)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in outputs)
    onnx.save(model, str(path))
    return path


CENTRES = np.array([[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [-1, 0, 1, 0], [0, -1, 0, 1]], np.float32).T
FLOAT, NODE = TensorProto.FLOAT, helper.make_node


def candidates(boxes, scores, iou):
    places, classes = np.nonzero(scores > 0.001)
    rows = np.column_stack([corners(boxes)[places], scores[places, classes], classes]).astype(np.float64)
    return greedy_nms(rows, iou)


@pytest.mark.full
def test_yolov8(tmp_path):
    nodes = [
        NODE("MatMul", [BOXES, "centres"], ["centred"]),
        NODE("Transpose", ["centred"], ["columns"], perm=[0, 2, 1]),
        NODE("Concat", ["columns", SCORES], ["output0"], axis=1),
    ]
    path = cut(tmp_path / "m.onnx", [("output0", FLOAT)], nodes, [("centres", CENTRES)])
    wanted = by_hand(path, letterboxed, lambda grid: candidates(grid[0, :4].T, grid[0, 4:].T, 0.7), clip=True)
    assert check(path, wanted) > 0.3


@pytest.mark.full
def test_yolov5(tmp_path):
    nodes = [
        NODE("MatMul", [BOXES, "centres"], ["centred"]),
        NODE("Transpose", [SCORES], ["rows"], perm=[0, 2, 1]),
        NODE("ReduceMax", ["rows"], ["most"], axes=[2]),
        NODE("Sqrt", ["most"], ["objectness"]),
        NODE("Concat", ["centred", "objectness", "rows"], ["output"], axis=2),
    ]
    path = cut(tmp_path / "m.onnx", [("output", FLOAT)], nodes, [("centres", CENTRES)])

    def decode(grid):
        return candidates(grid[0, :, :4], grid[0, :, 5:] * grid[0, :, 4:5], 0.6)

    assert check(path, by_hand(path, letterboxed, decode, clip=True)) > 0.3


def queries(path, nodes):
    """DETR's two outputs: boxes in shares of the image, and what the nodes make of ``rows`` (1, places, 80)."""
    shared = [
        NODE("MatMul", [BOXES, "centres"], ["pred_boxes"]),
        NODE("Transpose", [SCORES], ["raw"], perm=[0, 2, 1]),
        NODE("Clip", ["raw", "low", "high"], ["rows"]),
    ]
    bounds = [("low", np.float32(1e-6)), ("high", np.float32(1 - 1e-6)), ("one", np.float32(1))]
    weights = [("centres", CENTRES / SIDE), *((name, np.array(value)) for name, value in bounds)]
    return cut(path, [("logits", FLOAT), ("pred_boxes", FLOAT)], [*shared, *nodes], weights)


@pytest.mark.full
def test_detr(tmp_path):
    nodes = [
        NODE("ReduceMax", ["rows"], ["most"], axes=[2]),
        NODE("Sub", ["one", "most"], ["nothing"]),
        NODE("Concat", ["rows", "nothing"], ["chances"], axis=2),
        NODE("Log", ["chances"], ["logits"]),
    ]
    path = queries(tmp_path / "m.onnx", nodes)

    def decode(logits, boxes):
        chances = np.exp(logits[0].astype(np.float64))
        chances = (chances / chances.sum(1, keepdims=True))[:, :-1]
        best = chances.argmax(1)
        return np.column_stack([SIDE * corners(boxes[0]), chances.max(1), best]).astype(np.float64)

    wanted = by_hand(path, stretched, decode)
    assert check(path, wanted, interpolation="opencv-bicubic") > 0.01


@pytest.mark.full
def test_rt_detr(tmp_path):
    nodes = [
        NODE("Sub", ["one", "rows"], ["rest"]),
        NODE("Div", ["rows", "rest"], ["odds"]),
        NODE("Log", ["odds"], ["logits"]),
    ]
    path = queries(tmp_path / "m.onnx", nodes)

    def decode(logits, boxes):
        chances = 1 / (1 + np.exp(-logits[0]))
        best = np.argsort(-chances.ravel(), kind="stable")[: len(chances)]
        rows = [SIDE * corners(boxes[0])[best // 80], chances.ravel()[best], best % 80]
        return np.column_stack(rows).astype(np.float64)

    wanted = by_hand(path, stretched, decode)
    assert check(path, wanted, interpolation="opencv-bicubic") > 0.01


@pytest.mark.full
def test_torchvision_and_rows_with_their_suppression_inside(tmp_path):
    rows = onnx.load(str(WEIGHTS)).graph.output[0].name
    parts = [("class", [0, 1]), ("score", [1, 2]), ("boxes", [2, 6])]
    slices = [NODE("Slice", [rows, f"{name}_from", f"{name}_to", "axis"], [name]) for name, _ in parts]
    weights = [("axis", np.array([1])), ("two", np.array([2])), ("zero", np.array([0]))]
    for name, (start, end) in parts:
        weights += [(f"{name}_from", np.array([start])), (f"{name}_to", np.array([end]))]
    nodes = [
        *slices,
        NODE("Squeeze", ["score", "axis"], ["scores"]),
        NODE("Squeeze", ["class", "axis"], ["numbers"]),
        NODE("Cast", ["numbers"], ["ranks"], to=TensorProto.INT64),
        NODE("Add", ["ranks", "axis"], ["labels"]),
        NODE("Concat", ["boxes", "score", "class"], ["list"], axis=1),
        NODE("Unsqueeze", ["list", "zero"], ["output0"]),
    ]
    outputs = [("boxes", FLOAT), ("labels", TensorProto.INT64), ("scores", FLOAT)]
    path = cut(tmp_path / "torchvision.onnx", outputs, nodes, weights)

    def decode(boxes, labels, scores):
        return np.column_stack([boxes, scores, labels - 1]).astype(np.float64)

    options = {"class_ids": "ranks", "interpolation": "opencv-bicubic"}
    assert check(path, by_hand(path, stretched, decode), **options) == pytest.approx(0.442, abs=0.001)
    path = cut(tmp_path / "rows.onnx", [("output0", FLOAT)], nodes, weights)
    wanted = by_hand(path, letterboxed, lambda rows: rows[0].astype(np.float64), clip=True)
    assert check(path, wanted, outputs="yolov10") > 0.3
