"""What it costs to ask a detector or segmenter of another project through Holdfast, beside the file's own forward pass.

    python perf/adapters.py [--picodet FILE]

Every file is asked three ways in turn: its graph alone on a prepared image; a few lines written by hand (resize,
normalise, run, decode); and Holdfast's adapter. Processor seconds of one thread, medians, interleaved. The grids come
from a small convolutional network made here, whose answers mean nothing; `--picodet` adds a real detector. Writes
perf/results/adapters.json and adapters.md.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torchvision.ops import batched_nms

from environment import as_line, describe
from holdfast.evaluation.config import EvalProtocol
from holdfast.models.factory import load_model
from interleave import interleave

RESULTS = Path(__file__).parent / "results"
BAR = 0.02  # of a forward pass
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


class Categories:
    """As many as COCO's, without gaps."""

    category_ids = tuple(range(1, 81))
    classes = tuple(map(str, range(19)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picodet", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure("YOLOv8's grid, 640 px", grid_file(Path(folder)), picture, by_hand_yolo, rounds=given.rounds),
            measure("logits of stride 8, 512 px", map_file(Path(folder)), picture, by_hand_map, rounds=given.rounds),
        ]
        if given.picodet is not None:
            rows.append(measure("PicoDet-S, 416 px", given.picodet, picture, by_hand_paddle, rounds=given.rounds))
    environment = describe("torch", "torchvision", "onnxruntime", "opencv-python-headless")
    stored = {"environment": environment, "bar": BAR, "rows": rows}
    (RESULTS / "adapters.json").write_text(json.dumps(stored, indent=1) + "\n")
    (RESULTS / "adapters.md").write_text(as_markdown(rows, as_line(environment)))
    print((RESULTS / "adapters.md").read_text())


def measure(name: str, path: Path, picture: np.ndarray, by_hand: Callable[..., Any], *, rounds: int) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    protocol = EvalProtocol(mean=tuple(map(float, MEAN)), std=tuple(map(float, STD)))
    loaded: Any = load_model(f"onnx:{path}").model
    model = loaded.configured(protocol, Categories())
    images = torch.from_numpy(picture).permute(2, 0, 1)[None].float() / 255
    if model.task == "segmentation":  # an evaluation normalises before
        images = (images - torch.from_numpy(MEAN).view(3, 1, 1)) / torch.from_numpy(STD).view(3, 1, 1)
    fed = by_hand(session, picture)[0]
    cases = {
        "forward": lambda: session.run(None, fed),
        "by hand": lambda: by_hand(session, picture),
        "adapter": lambda: model(images),
    }
    with torch.inference_mode():
        seconds = interleave(cases, rounds=rounds, warmup=2, clock=time.process_time)
    return {"what": name, **{key: round(value * 1000, 2) for key, value in seconds.items()}}


def normalised(seen: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(((seen.astype(np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1)[None])


def by_hand_yolo(session: Any, picture: np.ndarray) -> tuple[dict[str, np.ndarray], Any]:
    canvas = np.full((640, 640, 3), 114, np.uint8)
    canvas[80:560] = picture
    fed = {"images": normalised(canvas)}
    grid = torch.from_numpy(session.run(None, fed)[0][0])
    places, classes = torch.nonzero(grid[4:].T > 0.001, as_tuple=True)
    centres, scores = grid[:4].T[places], grid[4:].T[places, classes]
    best = scores.argsort(descending=True)[:30_000]
    centres, scores, classes = centres[best], scores[best], classes[best]
    boxes = torch.cat([centres[:, :2] - centres[:, 2:] / 2, centres[:, :2] + centres[:, 2:] / 2], dim=1)
    return fed, batched_nms(boxes, scores, classes, 0.7)[:300]


def by_hand_map(session: Any, picture: np.ndarray) -> tuple[dict[str, np.ndarray], Any]:
    seen = cv2.resize(picture, (512, 512), interpolation=cv2.INTER_AREA)
    fed = {"images": normalised(seen)}
    logits = torch.from_numpy(session.run(None, fed)[0])
    return fed, torch.nn.functional.interpolate(logits, size=picture.shape[:2], mode="bilinear")


def by_hand_paddle(session: Any, picture: np.ndarray) -> tuple[dict[str, np.ndarray], Any]:
    seen = cv2.resize(picture, (416, 416), interpolation=cv2.INTER_CUBIC)
    scale = np.array([[416 / picture.shape[0], 416 / picture.shape[1]]], np.float32)
    fed = {"image": normalised(seen), "scale_factor": scale}
    rows, _ = session.run(None, fed)
    return fed, rows[:, 2:]


# ------------------------------------------------------------------------------------------- files


def network(channels: list[int], rng: np.random.Generator) -> tuple[list[Any], list[Any], str]:
    """Convolutions of stride 2 with ReLU, as many as there are channels; nodes, weights and the last output."""
    nodes, weights, last, before = [], [], "images", 3
    for number, count in enumerate(channels):
        values = rng.normal(0, 1 / np.sqrt(9 * before), (count, before, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], strides=[2, 2], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last, before = f"r{number}", count
    return nodes, weights, last


def grid_file(folder: Path) -> Path:
    """A grid of 6,400 places and 84 rows, scores around a hundredth as of a real detector: most are background."""
    rng = np.random.default_rng(0)
    nodes, weights, last = network([48, 128, 256], rng)
    head = rng.normal(0, 0.02, (84, 256, 1, 1)).astype(np.float32)
    weights.append(numpy_helper.from_array(head, "head"))
    bias = np.concatenate([[200, 200, 60, 60], np.full(80, -9.0)]).astype(np.float32)
    weights += [numpy_helper.from_array(bias, "bias"), numpy_helper.from_array(np.array([1, 84, -1]), "shape")]
    weights.append(numpy_helper.from_array(np.array([4, 80]), "parts"))
    nodes += [
        helper.make_node("Conv", [last, "head", "bias"], ["map"]),
        helper.make_node("Reshape", ["map", "shape"], ["flat"]),
        helper.make_node("Split", ["flat", "parts"], ["boxes", "raw"], axis=1),
        helper.make_node("Sigmoid", ["raw"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["output0"], axis=1),
    ]
    return save(folder / "grid.onnx", nodes, weights, 640, ("output0", [1, 84, 6400]))


def map_file(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    nodes, weights, last = network([48, 128, 256], rng)
    weights.append(numpy_helper.from_array(rng.normal(0, 0.1, (19, 256, 1, 1)).astype(np.float32), "head"))
    nodes.append(helper.make_node("Conv", [last, "head"], ["logits"]))
    return save(folder / "map.onnx", nodes, weights, 512, ("logits", [1, 19, 64, 64]))


def save(path: Path, nodes: list[Any], weights: list[Any], side: int, output: tuple[str, list[int]]) -> Path:
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, side, side])
    answer = helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])
    graph = helper.make_graph(nodes, "made", [images], [answer], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9), str(path))
    return path


def as_markdown(rows: list[dict[str, Any]], environment: str) -> str:
    lines = [
        "# Detectors and segmenters of other projects\n",
        "One 480×640 image, processor milliseconds of one thread, medians, interleaved; the machine was busy with "
        f"other work. The last column is (adapter − by hand) / forward, at most {100 * BAR:.0f} %. {environment}\n",
        "| file | forward | by hand: resize, normalise, run, decode | adapter | more than by hand |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        more = (row["adapter"] - row["by hand"]) / row["forward"]
        times = " | ".join(f"{row[name]:.1f}" for name in ("forward", "by hand", "adapter"))
        lines.append(f"| {row['what']} | {times} | {100 * more:+.1f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
