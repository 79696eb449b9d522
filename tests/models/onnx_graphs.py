"""ONNX files made by hand, of which everything is known."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

from holdfast.deploy.onnx_files import METADATA, OnnxDescription

PLAIN = OnnxDescription(size=(32, 32), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), classes=("red", "green", "blue"))


def brightest(
    path: Path,
    *,
    batch="batch",
    side=32,
    kind=TensorProto.FLOAT,
    softmax=False,
    told: OnnxDescription | None = PLAIN,
    scale: np.ndarray | None = None,
    nodes=(),
    **places,
) -> Path:
    """Three classes: 20 × the mean of each channel, as ``tests.evaluation.toys.Brightest`` says it."""
    weights = numpy_helper.from_array(np.full(1, 20, np.float32) if scale is None else scale, "scale")
    images = helper.make_tensor_value_info("images", kind, [batch, 3, side, side])
    found = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 3])
    steps = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "scale"], ["scaled" if softmax else "logits"]),
        *([helper.make_node("Softmax", ["scaled"], ["logits"])] if softmax else []),
        *nodes,
    ]
    graph = helper.make_graph(steps, "brightest", [images], [found], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    if told is not None:
        helper.set_model_props(model, {METADATA: told.text()})
    save_model(model, str(path), **places)
    return path
