"""ONNX files from strangers: what must be true of one before a runtime may open it, and what ours say of themselves.

An ONNX file is data, not code, but it may name other files (external data) and may be damaged, huge or not ours.
"""

import ast
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

METADATA = "holdfast"  # the key of what we write into a file
LARGEST = 2**31  # bytes; protobuf reads no more
OUTPUTS = ("logits", "probabilities")


@dataclass(frozen=True)
class OnnxDescription:
    """What a file says of the model in it.

    Attributes:
        task: what it was trained for.
        size: height and width of its images; None where the file leaves them open and nobody says.
        mean: subtracted from [0,1] pixels.
        std: divides them then.
        interpolation: brings images to that size.
        output: ``logits`` or ``probabilities``.
        classes: the names of the classes, where they are known.
        architecture: what it was made from.
        stride: pixels from one window to the next, of models of label maps.
        crop_pct: share of the resized image that the centre crop keeps, of classifiers; None where nobody says.
        crop_mode: as timm names it.
    """

    task: str = "classification"
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str = "bilinear"
    output: str = "logits"
    classes: tuple[str, ...] | None = None
    architecture: str = "onnx"
    stride: int | None = None
    crop_pct: float | None = None
    crop_mode: str = "center"

    def text(self) -> str:
        """As it is written into a file."""
        return json.dumps(asdict(self), sort_keys=True)


def read_onnx(path: Path) -> Any:
    """The file as onnx reads it, without tensors beside it; refused if damaged, too large or pointing elsewhere."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size >= LARGEST:
            raise HoldfastError(f"an ONNX file must be smaller than 2 GB (weights beside it may be larger), got {path}")
        if not path.is_file():
            raise HoldfastError(f"model onnx:{path} must be a file")
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise HoldfastError(f"model onnx:{path} cannot be read ({error.strerror or error})") from error
    except (DecodeError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, HoldfastError):
            raise
        raise HoldfastError(f"{path} is damaged, or not an ONNX file") from error
    if not model.HasField("graph") or not model.graph.output:
        raise HoldfastError(f"{path} is damaged, or not an ONNX file: it holds no graph")
    for tensor in _tensors(model):
        _check_place(tensor, path)
    return model


def file_digest(path: Path, model: Any) -> str:
    """A digest of the file and of the tensors beside it."""
    digest = hashlib.blake2b(digest_size=16)
    beside = {_location(tensor) for tensor in _tensors(model)} - {None}
    for file in [path, *(path.parent / str(name) for name in sorted(map(str, beside)))]:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def operators(model: Any) -> frozenset[str]:
    """What the graph and its functions compute with, by the names of ONNX."""
    return frozenset(node.op_type for part in (model.graph, *model.functions) for node in part.node)


def describe_onnx(model: Any, *, path: Path) -> OnnxDescription:
    """What our exporter wrote into the file; of other files nothing is known."""
    texts = [entry.value for entry in model.metadata_props if entry.key == METADATA]
    if not texts:
        return OnnxDescription()
    try:
        return _read_description(json.loads(texts[0]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HoldfastError(f"what {path} says of itself must be what `holdfast export` writes, but is not") from error


def class_names(model: Any) -> tuple[str, ...] | None:
    """The names of the classes as YOLO's exporter writes them, ``{0: 'person', …}``; None where it did not."""
    texts = [entry.value for entry in model.metadata_props if entry.key == "names"]
    try:
        named = ast.literal_eval(texts[0]) if texts else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(named, dict) or sorted(named, key=str) != sorted(range(len(named)), key=str) or not named:
        return None
    return tuple(str(named[number]) for number in range(len(named)))


def _read_description(told: Mapping[str, Any]) -> OnnxDescription:
    size, names = told["size"], told["classes"]
    values = OnnxDescription(
        str(told["task"]),
        None if size is None else (int(size[0]), int(size[1])),
        _three(told["mean"]),
        _three(told["std"]),
        str(told["interpolation"]),
        str(told["output"]),
        None if names is None else tuple(map(str, names)),
        str(told["architecture"]),
        None if told["stride"] is None else int(told["stride"]),
        None if told.get("crop_pct") is None else float(told["crop_pct"]),  # files of before do not say it
        str(told.get("crop_mode", "center")),
    )
    if values.output not in OUTPUTS or (values.std is not None and min(values.std) <= 0):
        raise ValueError("output or std")
    if values.crop_pct is not None and not 0 < values.crop_pct <= 1:
        raise ValueError("crop_pct")
    return values


def _three(values: Sequence[Any] | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    three = tuple(map(float, values))
    if len(three) != 3 or not all(map(isfinite, three)):
        raise ValueError("mean and std are three numbers")
    return three


def _check_place(tensor: Any, path: Path) -> None:
    """Refuse tensors that are kept in files outside of the model's own folder."""
    location = _location(tensor)
    if location is None:
        return
    folder, place = path.absolute().parent.resolve(), Path(location)
    whole = (folder / place).resolve()
    if place.is_absolute() or ".." in place.parts or not whole.is_relative_to(folder):
        raise HoldfastError(f"{path} must keep its weights in its own folder, but points to {location!r}")
    if not whole.is_file():
        raise HoldfastError(f"{path} keeps weights in {location!r}, which is missing beside it")


def _location(tensor: Any) -> str | None:
    from onnx import TensorProto

    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors of a model: weights, and constants within nodes, of all graphs and functions in it."""
    graphs, nodes = [model.graph], [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            yield from (part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices))
            nodes.extend(graph.node)
            continue
        for attribute in nodes.pop().attribute:
            graphs.extend([attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs)
            yield from ([attribute.t, *attribute.tensors] if attribute.HasField("t") else attribute.tensors)
            sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            yield from (part for one in (*sparse, *attribute.sparse_tensors) for part in (one.values, one.indices))
