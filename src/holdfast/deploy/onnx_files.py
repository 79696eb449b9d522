"""Safety checks and metadata of ONNX files.

An ONNX file is data, not code, but it may refer to other files (external data) and may be damaged, huge or foreign.
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

METADATA = "holdfast"  # key of our metadata in a file
LARGEST = 2**31  # bytes; protobuf's limit
OUTPUTS = ("logits", "probabilities")


@dataclass(frozen=True)
class OnnxDescription:
    """Metadata of the model in an ONNX file.

    Attributes:
        task: classification or segmentation.
        size: height and width of the input; None if dynamic and unknown.
        mean: per-channel mean for pixels in [0, 1].
        std: per-channel standard deviation.
        interpolation: interpolation of the resize.
        output: ``logits`` or ``probabilities``.
        classes: the class names, if known.
        architecture: name of the exported architecture.
        stride: stride of sliding windows, for segmenters.
        crop_pct: ratio of crop size to resized size, for classifiers; None if unknown.
        crop_mode: timm's crop mode.
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
        """Serialise the metadata to JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def read_onnx(path: Path) -> Any:
    """Read a file without its external data; refused if damaged, too large or referring to other folders."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size >= LARGEST:
            raise HoldfastError(f"an ONNX file must be smaller than 2 GB (external weights may be larger), got {path}")
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
    """Digest of the file and its external data."""
    digest = hashlib.blake2b(digest_size=16)
    beside = {_location(tensor) for tensor in _tensors(model)} - {None}
    for file in [path, *(path.parent / str(name) for name in sorted(map(str, beside)))]:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def operators(model: Any) -> frozenset[str]:
    """The ONNX operators of the graph and its functions."""
    return frozenset(node.op_type for part in (model.graph, *model.functions) for node in part.node)


def describe_onnx(model: Any, *, path: Path) -> OnnxDescription:
    """Read the metadata that ``holdfast export`` stored in the file; defaults for other files."""
    texts = [entry.value for entry in model.metadata_props if entry.key == METADATA]
    if not texts:
        return OnnxDescription()
    try:
        return _read_description(json.loads(texts[0]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HoldfastError(
            f"the Holdfast metadata in {path} must be as `holdfast export` writes them, but cannot be read"
        ) from error


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


def _read_description(values: Mapping[str, Any]) -> OnnxDescription:
    size, names = values["size"], values["classes"]
    found = OnnxDescription(
        str(values["task"]),
        None if size is None else (int(size[0]), int(size[1])),
        _three(values["mean"]),
        _three(values["std"]),
        str(values["interpolation"]),
        str(values["output"]),
        None if names is None else tuple(map(str, names)),
        str(values["architecture"]),
        None if values["stride"] is None else int(values["stride"]),
        None if values.get("crop_pct") is None else float(values["crop_pct"]),  # missing in files of earlier versions
        str(values.get("crop_mode", "center")),
    )
    if found.output not in OUTPUTS or (found.std is not None and min(found.std) <= 0):
        raise ValueError("output or std")
    if found.crop_pct is not None and not 0 < found.crop_pct <= 1:
        raise ValueError("crop_pct")
    return found


def _three(values: Sequence[Any] | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    three = tuple(map(float, values))
    if len(three) != 3 or not all(map(isfinite, three)):
        raise ValueError("mean and std are three numbers")
    return three


def _check_place(tensor: Any, path: Path) -> None:
    """Refuse external data outside of the model's folder: a path such as ``../../etc/passwd`` would be read."""
    location = _location(tensor)
    if location is None:
        return
    folder, place = path.absolute().parent.resolve(), Path(location)
    whole = (folder / place).resolve()
    if place.is_absolute() or ".." in place.parts or not whole.is_relative_to(folder):
        raise HoldfastError(f"{path} must keep its weights in its own folder, but refers to {location!r}")
    if not whole.is_file():
        raise HoldfastError(f"{path} keeps weights in {location!r}, which does not exist")


def _location(tensor: Any) -> str | None:
    from onnx import TensorProto

    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(model: Any) -> Iterator[Any]:
    """Iterate over all tensors of a model: weights and constants of all graphs, subgraphs and functions."""
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
