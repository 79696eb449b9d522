"""Sources from torch Datasets, DataLoaders or tensors ``(x, y)``.

Corruptions need uint8 pixels, so normalised values are denormalised with the mean and std that produced them.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, default_collate

from holdfast.data.source import Source
from holdfast.data.subsets import Subset
from holdfast.errors import HoldfastError

ROUNDING = 1e-4  # tolerance beyond [0, 1]: denormalised float32 pixels miss 0 and 1 by rounding errors
BYTES_FROM = 16  # non-negative floats with a maximum from here are pixels from 0 to 255: no usual std divides so much
Triple = Sequence[float]


class OutOfRange(HoldfastError):
    """Values outside [0, 1] without a known normalisation."""


def is_torch_data(data: Any) -> bool:
    """Whether ``data`` is a Dataset, a DataLoader or a pair of arrays."""
    return isinstance(data, Dataset | DataLoader) or _is_pair(data)


def from_torch(
    data: Any,
    *,
    mean: Triple | None = None,
    std: Triple | None = None,
    classes: int | Sequence[str] | None = None,
    name: str | None = None,
) -> Source:
    """Wrap a Dataset, DataLoader or tensors as a source; an image's id is its index.

    Args:
        data: a map-style Dataset of (image, class), a DataLoader over one in order, or a pair of tensors or arrays:
            images as uint8 or as floats, (N, 3, H, W), and N class numbers. Images of a Dataset may be PIL images.
        mean: per-channel mean for pixels in [0, 1], if the values are normalised.
        std: per-channel standard deviation.
        classes: class names or their number; by default the Dataset's, else inferred from the labels.
        name: the data's name in records.
    """
    if (mean is None) != (std is None):
        raise HoldfastError("mean and std must be given together, or neither")
    scale = None if mean is None or std is None else (_triple(mean, "mean"), _triple(std, "std"))
    inner = _dataset(data)
    label = name or ("tensors" if _is_pair(data) else type(inner).__name__)
    return TensorSource(inner, scale=scale, classes=classes, name=label)


class TensorSource:
    """Images of a Dataset, read once for classes, value range and a digest of each."""

    def __init__(
        self,
        dataset: Any,
        *,
        scale: tuple[np.ndarray, np.ndarray] | None,
        classes: int | Sequence[str] | None,
        name: str,
    ) -> None:
        self.dataset, self.name, self._scale = dataset, name, scale
        count = len(dataset)
        if not count:
            raise HoldfastError(f"data {name!r} must hold at least one image, got none")
        raw = [self._read_item(index) for index in range(count)]
        labels, low, high, digests, sizes = zip(*raw, strict=True)
        self.targets = np.array(labels, dtype=np.int64)
        self._check_range(min(low), max(high))
        self._digests = digests
        self.prepared = sizes[0] if len(set(sizes)) == 1 else None  # height and width, where all images share it
        self.counted = classes is None and getattr(dataset, "classes", None) is None
        self.classes = _class_names(classes, getattr(dataset, "classes", None), self.targets, name=name)

    def __len__(self) -> int:
        return len(self.targets)

    def id(self, index: int) -> str:
        """The index, padded to six digits."""
        return f"{index:06d}"

    def content(self, index: int) -> str:
        """Digest of the image, part of the data fingerprint."""
        return self._digests[index]

    def image(self, index: int) -> Image.Image:
        """One image as uint8 RGB."""
        values, _ = self._item(index)
        if _digest(values) != self._digests[index]:
            raise HoldfastError(
                f"data {self.name!r} must return the same image every time, but number {index} has changed: "
                "remove random augmentation"
            )
        if values.dtype != np.uint8:
            values = values if self._scale is None else values * self._scale[1] + self._scale[0]
            values = (values.clip(0, 1) * 255).round().astype(np.uint8)
        return Image.fromarray(np.ascontiguousarray(values))

    def _read_item(self, index: int) -> tuple[int, float, float, str, tuple[int, ...]]:
        values, label = self._item(index)
        if values.dtype == np.uint8:
            low, high = 0.0, 1.0
        else:
            back = values if self._scale is None else values * self._scale[1] + self._scale[0]
            low, high = float(back.min()), float(back.max())
        return label, low, high, _digest(values), values.shape[:2]

    def _item(self, index: int) -> tuple[np.ndarray, int]:
        item = self.dataset[index]
        if isinstance(item, Mapping) or not isinstance(item, Sequence) or len(item) < 2:
            raise HoldfastError(f"data {self.name!r} must return (image, class), got {type(item).__name__}")
        return _pixels(item[0], name=self.name), _label(item[1], name=self.name)

    def _check_range(self, low: float, high: float) -> None:
        if low >= -ROUNDING and high <= 1 + ROUNDING:
            return
        found = f"got {low:.3g} to {high:.3g}"
        if self._scale is None and low >= 0 and BYTES_FROM <= high <= 255:
            raise HoldfastError(
                f"values of {self.name!r} must be uint8 or lie in [0, 1], {found}: they look like pixels from 0 to "
                "255; pass them as uint8 or divide them by 255"
            )
        if self._scale is not None:
            raise HoldfastError(f"mean and std must bring the values of {self.name!r} back to [0, 1], {found}")
        raise OutOfRange(
            f"values of {self.name!r} must be uint8 or lie in [0, 1], {found}: if they are normalised, pass mean "
            "and std to holdfast.data.from_torch(data, mean=…, std=…)"
        )


def _dataset(data: Any) -> Any:
    """Return the indexed dataset; raises an error if its order is not fixed."""
    if isinstance(data, DataLoader):
        if not isinstance(data.dataset, IterableDataset) and not isinstance(data.sampler, SequentialSampler):
            raise HoldfastError("a DataLoader must read its data in order, got one that shuffles or samples")
        if data.collate_fn is not default_collate and data.collate_fn.__module__.partition(".")[0] != "torch":
            raise HoldfastError(
                "a DataLoader must use torch's default_collate; pass its dataset, with (image, class) items"
            )
        return _dataset(data.dataset)
    if isinstance(data, IterableDataset):
        raise HoldfastError("data must be a map-style Dataset, got an IterableDataset")
    if _is_pair(data):
        images, labels = data
        if len(images) != len(labels):
            raise HoldfastError(f"x and y must have the same length, got {len(images)} and {len(labels)}")
        return list(zip(images, labels, strict=True))
    if not isinstance(data, Dataset) or not hasattr(data, "__len__"):
        raise HoldfastError(f"data must be a Dataset with a length, a DataLoader or (x, y), got {type(data).__name__}")
    return data


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(d, Tensor | np.ndarray) for d in data)


def _pixels(image: Any, *, name: str) -> np.ndarray:
    """Convert an image to (H, W, 3), uint8 or float32."""
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))
    if not isinstance(image, Tensor | np.ndarray):
        raise HoldfastError(f"images of {name!r} must be tensors, arrays or PIL images, got {type(image).__name__}")
    values = image.detach().cpu().numpy() if isinstance(image, Tensor) else image
    if values.ndim == 2:
        values = values[None]
    if values.ndim == 3 and values.shape[0] in (1, 3):
        values = np.moveaxis(values, 0, -1)
    if values.ndim != 3 or values.shape[-1] not in (1, 3):
        raise HoldfastError(f"images of {name!r} must have the shape (3, H, W), got {tuple(image.shape)}")
    if values.dtype != np.uint8 and values.dtype.kind != "f":
        raise HoldfastError(f"images of {name!r} must be uint8 or floats, got {values.dtype}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise HoldfastError(f"images of {name!r} must be finite, got NaN or infinity")
    values = np.repeat(values, 3, axis=-1) if values.shape[-1] == 1 else values
    return values if values.dtype == np.uint8 else values.astype(np.float32)


def _label(label: Any, *, name: str) -> int:
    single = isinstance(label, Tensor | np.ndarray | np.generic) and math.prod(label.shape) == 1
    value = label.item() if single else label
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise HoldfastError(f"classes of {name!r} must be whole numbers from 0, got {value!r}")
    return value


def _class_names(
    requested: int | Sequence[str] | None, own: Sequence[str] | None, targets: np.ndarray, *, name: str
) -> tuple[str, ...]:
    given = requested if requested is not None else own
    if given is None:
        given = int(targets.max()) + 1
    names = tuple(map(str, range(given))) if isinstance(given, int) else tuple(map(str, given))
    if int(targets.max()) >= len(names):
        raise HoldfastError(f"classes of {name!r} must be below {len(names)}, got {int(targets.max())}")
    return names


def check_counted(source: Any, answers: Mapping[str, Any]) -> None:
    """Refuse data with fewer classes, inferred from labels, than the model: the last ones may be absent.

    ``answers`` are the model's outputs for one image, by view.
    """
    inner = source.source if isinstance(source, Subset) else source
    logits = next(iter(answers.values()))
    outputs = logits.shape[1] if getattr(logits, "ndim", 0) == 2 else 0
    if isinstance(inner, TensorSource) and inner.counted and len(inner.classes) < outputs:
        raise HoldfastError(
            f"the labels of {inner.name!r} end at {len(inner.classes) - 1}, but the model has {outputs} classes; if "
            f"the others have no images, use holdfast.data.from_torch(data, classes={outputs})"
        )


def _triple(values: Triple, name: str) -> np.ndarray:
    found = np.asarray(values, dtype=np.float32).reshape(-1)
    if len(found) not in (1, 3) or (name == "std" and found.min() <= 0):
        raise HoldfastError(f"{name} must be one value or three{', positive' if name == 'std' else ''}, got {values}")
    return np.broadcast_to(found, 3).copy()


def _digest(values: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


def as_source(data: Any, *, mean: Triple | None = None, std: Triple | None = None) -> Source:
    """Convert a Python object to a source; raises an error unless it is a source or torch data.

    ``mean`` and ``std`` are the model's: they undo the normalisation of data outside [0, 1].
    """
    if is_torch_data(data):
        try:
            return from_torch(data)
        except OutOfRange:
            if mean is None or std is None:
                raise
            return from_torch(data, mean=mean, std=std)
    missing = [part for part in ("classes", "id", "image", "__len__") if not hasattr(data, part)]
    if missing:
        raise HoldfastError(
            "data must be a spec such as 'folder:DIR', a source, a torch Dataset or DataLoader, or tensors (x, y), "
            f"got {type(data).__name__}"
        )
    return data
