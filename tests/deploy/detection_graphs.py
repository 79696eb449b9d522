"""ONNX detectors made by hand that answer every image with the same arrays, and decoders written a second time."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model
from PIL import Image

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


def constant_graph(
    path: Path, outputs: dict, *, size=(64, 64), batch=1, more=(), kind=TensorProto.FLOAT, channels=3
) -> Path:
    """A file whose outputs are these arrays, whatever it sees; they depend on it by nothing, so that it is used."""
    shape = [channels, *size] if batch is None else [batch, channels, *size]
    inputs = [helper.make_tensor_value_info("images", kind, shape)]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in more]
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
    ]
    weights, declared = [numpy_helper.from_array(np.zeros((), np.float32), "zero")], []
    for name, values in outputs.items():
        weights.append(numpy_helper.from_array(values, f"{name}_values"))
        added = values.dtype == np.float32 and np.isfinite(values).all()
        nodes.append(
            helper.make_node("Add", [f"{name}_values", "nothing"], [name])
            if added
            else helper.make_node("Identity", [f"{name}_values"], [name])
        )
        open_shape = [f"{name}_{axis}" for axis in range(values.ndim)]
        declared.append(helper.make_tensor_value_info(name, KINDS[values.dtype.kind], open_shape))
    graph = helper.make_graph(nodes, "constant", inputs, declared, weights)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), str(path))
    return path


# ------------------------------------------------------------------------------------------- by hand


def letterbox(size, seen):
    """Ratio and borders left and above of an image of height and width ``size``."""
    ratio = min(seen[0] / size[0], seen[1] / size[1])
    inner = [round(side * ratio) for side in size]
    return ratio, round((seen[1] - inner[1]) / 2 - 0.1), round((seen[0] - inner[0]) / 2 - 0.1)


def corners(boxes):
    """Centres and sides → corners."""
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)


def overlap(one, others):
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    both = (high - low).clip(0).prod(1)
    return both / ((one[2:] - one[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - both)


def greedy_nms(rows, iou, *, per_class=True, candidates=30_000, most=300):
    """Rows of (x0, y0, x1, y1, score, class), best first, without those that overlap a better one."""
    rows = rows[np.argsort(-rows[:, 4], kind="stable")][:candidates]
    groups = rows[:, 5] if per_class else np.zeros(len(rows))
    members = {group: np.flatnonzero(groups == group) for group in np.unique(groups)}
    alive, kept = np.ones(len(rows), bool), []
    for number in range(len(rows)):
        if alive[number] and len(kept) < most:
            kept.append(number)
            worse = members[groups[number]]
            worse = worse[worse > number]
            alive[worse[overlap(rows[number, :4], rows[worse, :4]) > iou]] = False
    return rows[kept]


def coco_scores(annotations: Path, found: dict[str, np.ndarray], category_ids) -> np.ndarray:
    """pycocotools' twelve numbers of rows (x0, y0, x1, y1, score, rank of the class from 0) by file name."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    numbers = {image["file_name"]: image["id"] for image in json.loads(Path(annotations).read_text())["images"]}
    results = [
        {
            "image_id": numbers[name],
            "category_id": int(category_ids[int(row[5])]),
            "bbox": [row[0], row[1], row[2] - row[0], row[3] - row[1]],
            "score": float(row[4]),
        }
        for name, rows in found.items()
        for row in np.asarray(rows, np.float64)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        scored = COCOeval(truth, truth.loadRes(results), "bbox")
        scored.evaluate()
        scored.accumulate()
        scored.summarize()
    return scored.stats


def sizes_of(folder: Path, annotations: Path) -> dict[str, tuple[int, int]]:
    """Height and width of every image file."""
    names = [image["file_name"] for image in json.loads(Path(annotations).read_text())["images"]]
    return {name: Image.open(folder / name).size[::-1] for name in names}
