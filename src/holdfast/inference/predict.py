"""``holdfast.predict``: what a model sees in single images, prepared as an evaluation prepares them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from holdfast.corruptions.corrupt_folder import find_images
from holdfast.data.torch_datasets import as_source
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData
from holdfast.inference.overlays import check_film, film_frame, overlay_paths, write_film, write_overlay
from holdfast.inference.predictor import Predictor, configure_model, given_normalisation
from holdfast.io.images import UnreadableFile, decode
from holdfast.models.factory import LoadedModel, load_model
from holdfast.models.unwrap import unwrap_model
from holdfast.records.header import CLASSIFICATION
from holdfast.tasks import Task, task_named

DETECTION = "detection"
_OF_TORCHVISION = {"torchvision.models.detection": DETECTION, "torchvision.models.segmentation": "segmentation"}


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image: rows, best first, each with what its task says of an answer."""

    image: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class _Files:
    """Files as a source without targets."""

    task: str
    paths: tuple[Path, ...]
    exif: str
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def id(self, index: int) -> str:
        return str(self.paths[index])

    def image(self, index: int) -> Image.Image:
        try:
            return decode(self.paths[index], exif=self.exif).image
        except UnreadableFile as error:
            raise HoldfastError(f"image {str(self.paths[index])!r} cannot be read ({error})") from error


class _Tensors:
    """A batch of images as a source without targets, which stay as they are where they have the model's size."""

    def __init__(self, task: str, images: Tensor, protocol: EvalProtocol) -> None:
        batch = images if images.ndim == 4 else images[None]
        if batch.ndim != 4 or not len(batch):
            raise HoldfastError(f"images must be (3, H, W) or (n, 3, H, W), got {tuple(images.shape)}")
        unlabelled = (batch, torch.zeros(len(batch), dtype=torch.int64))
        self._source: Any = as_source(unlabelled, **given_normalisation(protocol))
        self.task, self.prepared, self.classes = task, getattr(self._source, "prepared", None), ()

    def __len__(self) -> int:
        return len(self._source)

    def id(self, index: int) -> str:
        return self._source.id(index)

    def image(self, index: int) -> Image.Image:
        return self._source.image(index)


def predict(
    model: nn.Module | str | Path,
    images: str | Path | Sequence[str | Path] | Tensor,
    *,
    top: int = 5,
    device: str = "auto",
    protocol: EvalProtocol | None = None,
    overlays: str | Path | None = None,
    film: str | Path | None = None,
    fps: float = 8.0,
    class_names: Sequence[str] | None = None,
) -> list[Prediction]:
    """What a model answers to some image files, to all in a folder, or to a tensor of images.

    A model says its task by an attribute ``task``; without one it is a classifier. The task's ``answer(output, classes,
    top)`` makes rows of what the model returned for one image.

    Args:
        model: as in ``holdfast.evaluate``.
        images: files, or folders; or a tensor (3, H, W) or (n, 3, H, W), uint8 or from 0 to 1, or normalised by the
            ``mean`` and ``std`` of the protocol.
        top: how many answers to list.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        protocol: size, normalisation, preset, as in ``holdfast.evaluate``.
        overlays: a folder for every image with the answer drawn over it, as PNG: label maps of segmenters, boxes and
            masks of detectors.
        film: a WebP file that shows all images, beside their overlays, one after the other in the order of their names.
        fps: its frames per second.
        class_names: what the model's classes are called, where its files do not tell.
    """
    if top < 1:
        raise HoldfastError(f"top must be at least 1, got {top}")
    if not 0 < fps <= 100:
        raise HoldfastError(f"fps must be above 0 and at most 100 frames per second, got {fps}")
    protocol = protocol or EvalProtocol(exif="apply")
    folder, moving = (Path(path).expanduser() if path is not None else None for path in (overlays, film))
    given = [] if isinstance(images, Tensor) else [images] if isinstance(images, str | Path) else list(images)
    paths = () if isinstance(images, Tensor) else _files(given)
    targets = overlay_paths(paths, given, folder) if folder is not None else None
    if moving is not None:
        check_film(moving)
    loaded = load_model(model)
    if class_names is not None:
        loaded = replace(loaded, classes=tuple(class_names))
    loaded = replace(loaded, model=configure_model(loaded.model, protocol, None)[0])
    task = _task(loaded, drawn=folder is not None or moving is not None)
    source: Any = _Files(task.name, paths, protocol.exif)
    if isinstance(images, Tensor):
        source = _Tensors(task.name, images, protocol)
        targets = [folder / f"{source.id(index)}.png" for index in range(len(source))] if folder is not None else None
    with Predictor.open(loaded, EvaluationData("images", "images", source), protocol, device=device) as predictor:
        return _predictions(predictor, task, source, top=top, targets=targets, film=moving, fps=fps)


def _predictions(
    predictor: Predictor,
    task: Any,  # a task with ``answer``, and ``overlay`` where something is drawn: _task has looked
    source: Any,
    *,
    top: int,
    targets: Sequence[Path] | None,
    film: Path | None,
    fps: float,
) -> list[Prediction]:
    found, frames, classes = [], [], predictor.loaded.classes
    for index in range(len(source)):
        picture = source.image(index).convert("RGB")
        output = predictor.predict(picture)
        found.append(Prediction(source.id(index), tuple(task.answer(output, classes=classes, top=top))))
        if targets is None and film is None:
            continue
        overlay = task.overlay(picture, output, classes=classes)
        if targets is not None:
            write_overlay(targets[index], overlay)
        if film is not None:
            frames.append(film_frame(picture, overlay))
    if film is not None:
        write_film(film, frames, fps=fps)
    return found


def _task(loaded: LoadedModel, *, drawn: bool) -> Task:
    """What the model says it does; torchvision's detectors do not say it."""
    model: Any = unwrap_model(loaded.model)
    told = getattr(model, "pretrained_cfg", None)  # of exported files
    known = told.get("task", CLASSIFICATION) if isinstance(told, dict) else CLASSIFICATION
    of_torchvision = _OF_TORCHVISION.get(".".join(type(model).__module__.split(".")[:3]), known)
    detects = isinstance(model, GeneralizedRCNN)
    task = task_named(str(getattr(model, "task", DETECTION if detects else of_torchvision)))
    if not callable(getattr(task, "answer", None)):
        raise HoldfastError(
            f"predict cannot show the answers of {task.name} models, whose task has no way to tell them"
        )
    if drawn and not callable(getattr(task, "overlay", None)):
        raise HoldfastError(f"overlays and film are of segmenters and detectors, got a model of {task.name}")
    return task


def _files(given: Sequence[str | Path]) -> tuple[Path, ...]:
    paths: list[Path] = []
    for each in given:
        path = Path(each).expanduser()
        if not path.exists():
            raise HoldfastError(f"images must be files or folders, but {str(path)!r} is not there")
        paths += [path / name for name in find_images(path)] if path.is_dir() else [path]
    if not paths:
        raise HoldfastError("images must name at least one file or folder, got none")
    return tuple(paths)
