"""Segmenters of other projects as ONNX files: the mIoU of the same graph by hand, or one sentence."""

import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime
from onnx import TensorProto, helper, numpy_helper, save_model
from torch.nn.functional import interpolate

from holdfast import evaluate
from holdfast.data.scenes import SceneSource
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.metrics.iou import pixel_counts
from tests.deploy.detection_graphs import constant_graph

CLASSES = 11
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.5, 0.5)


def by_level(path, *, stride=1, size=("h", "w"), labels=False, batch=1, aux=False):
    """Eleven classes by the level of the first channel, at every ``stride``-th pixel; as logits or as their argmax."""
    nodes = [
        helper.make_node("AveragePool", ["images"], ["small"], kernel_shape=[stride] * 2, strides=[stride] * 2),
        helper.make_node("Conv", ["small", "weight", "bias"], ["out" if not labels else "raw"]),
    ]
    rng = np.random.default_rng(0)
    levels = np.linspace(-0.2, 1.8, CLASSES)
    weight = np.stack([2 * levels, rng.normal(0, 0.1, CLASSES), np.zeros(CLASSES)], axis=1)[:, :, None, None]
    weights = [("weight", weight.astype(np.float32)), ("bias", (-(levels**2)).astype(np.float32))]
    kind, shape = (TensorProto.INT64, ["n", "y", "x"]) if labels else (TensorProto.FLOAT, ["n", CLASSES, "y", "x"])
    outputs = [helper.make_tensor_value_info("out", kind, shape)]
    if labels:
        nodes.append(helper.make_node("ArgMax", ["raw"], ["out"], axis=1, keepdims=0))
    if aux:
        nodes.append(helper.make_node("Neg", ["out"], ["aux"]))
        outputs.insert(0, helper.make_tensor_value_info("aux", kind, shape))
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, *size])
    inits = [numpy_helper.from_array(values, name) for name, values in weights]
    graph = helper.make_graph(nodes, "levels", [images], outputs, inits)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), str(path))
    return path


def source():
    return SceneSource("test", count=3)


def measured(path, **options):
    protocol = EvalProtocol(**{"mean": MEAN, "std": STD, **options})
    return evaluate(f"onnx:{path}", source(), workers=0, show=False, protocol=protocol)


def by_hand(path, *, size=None, labels=False, batch=1):
    """Counts of all images: normalise, resize, run, bring back, compare."""
    session, data, total = onnxruntime.InferenceSession(str(path)), source(), 0
    for index in range(len(data)):
        pixels = torch.from_numpy(np.array(data.image(index))).permute(2, 0, 1)[None] / 255
        seen = (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        if size is not None:
            seen = interpolate(seen, size=size, mode="bilinear", antialias=True)
        answer = torch.from_numpy(session.run(["out"], {"images": seen.repeat(batch, 1, 1, 1).numpy()})[0])[:1]
        true = data.target(index)
        if labels:
            predicted = interpolate(answer[:, None].float(), size=true.shape, mode="nearest-exact")[0, 0]
        else:
            predicted = interpolate(answer, size=true.shape, mode="bilinear", align_corners=False)[0].argmax(0)
        total = total + pixel_counts(predicted.numpy().astype(np.uint8), true, classes=CLASSES)
    return total


CASES = {
    "open size": {},
    "stride 4": {"stride": 4},
    "stride 8 and a fixed size": {"stride": 8, "size": (64, 96)},
    "a fixed batch": {"stride": 4, "size": (64, 96), "batch": 2},
    "labels": {"labels": True},
    "labels, stride 4, fixed size": {"labels": True, "stride": 4, "size": (64, 96)},
    "an auxiliary output first": {"stride": 2, "aux": True},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_counts_are_those_of_the_same_graph_by_hand(tmp_path, case):
    path = by_level(tmp_path / "m.onnx", **case)
    size = case.get("size")
    wanted = by_hand(path, size=size, labels=case.get("labels", False), batch=case.get("batch", 1))
    records = measured(path)
    np.testing.assert_array_equal(records.cells["clean"].counts.sum(axis=0), wanted)
    assert np.count_nonzero(wanted[1]) > 2  # several classes are predicted
    told = records.header["preprocessing"]
    assert told["model_size"].startswith("as it is" if size is None else "64×96 stretch, bilinear")
    assert told["mean"] == list(MEAN)


def test_windows_of_the_files_size_see_every_place_once(tmp_path):
    whole = measured(by_level(tmp_path / "open.onnx", stride=1))
    coarse = measured(by_level(tmp_path / "coarse.onnx", stride=2))
    assert whole.header["model_fingerprint"] != coarse.header["model_fingerprint"]
    windows = measured(by_level(tmp_path / "fixed.onnx", stride=1, size=(32, 32)), window=32, stride=16)
    np.testing.assert_array_equal(whole.cells["clean"].counts, windows.cells["clean"].counts)
    assert "windows of 32×32" in windows.header["preprocessing"]["inference"]


def test_what_is_malformed_or_missing_is_one_sentence(tmp_path):
    with pytest.raises(HoldfastError, match="does not define its mean and std"):
        evaluate(f"onnx:{by_level(tmp_path / 'm.onnx')}", source(), workers=0, show=False)
    maps = {
        "beyond": (np.full((1, 8, 8), CLASSES), {}, "must be classes 0 to 10, got 11; nothing was recorded"),
        "negative": (np.full((1, 8, 8), -1), {}, "must be classes 0 to 10, got -1"),
        "halves": (np.full((1, 1, 8, 8), 0.5, np.float32), {"outputs": "labels"}, "must be whole numbers"),
        "NaN": (np.full((1, CLASSES, 8, 8), np.nan, np.float32), {}, "got NaN or infinity"),
        "other classes": (np.zeros((1, 3, 8, 8), np.float32), {}, "must have the 11 classes of .* got 3"),
        "other batch": (np.zeros((3, CLASSES, 8, 8), np.float32), {}, "must answer every image with one map"),
    }
    for name, (values, options, sentence) in maps.items():
        path = constant_graph(tmp_path / f"{name}.onnx", {"out": values}, size=("h", "w"))
        with pytest.raises(HoldfastError, match=sentence):
            measured(path, **options)
    path = by_level(tmp_path / "n.onnx")
    for options, sentence in (
        ({"outputs": "detr"}, "outputs must be one of logits, labels"),
        ({"resize": "letterbox"}, "resize must be one of none, stretch"),
        ({"nms": "none"}, "nms is a setting of other detectors or segmenters"),
    ):
        with pytest.raises(HoldfastError, match=sentence):
            measured(path, **options)


def test_predict_draws_label_maps_of_such_a_file(tmp_path):
    from holdfast import predict

    image = tmp_path / "scene.png"
    source().image(0).save(image)
    path = by_level(tmp_path / "m.onnx", labels=True)
    protocol = EvalProtocol(mean=MEAN, std=STD)
    (found,) = predict(f"onnx:{path}", image, protocol=protocol, overlays=tmp_path / "seen")
    assert sum(row["share"] for row in found.rows) <= 1.0001
    assert (tmp_path / "seen" / "scene.png").is_file()
