"""``holdfast.predict``: predictions for single images, preprocessed as in an evaluation."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from holdfast.corruptions.corrupt_folder import find_images
from holdfast.data.source import UnreadableImage
from holdfast.data.torch_datasets import as_source
from holdfast.errors import HoldfastError
from holdfast.evaluation.config import EvalProtocol
from holdfast.evaluation.data import EvaluationData
from holdfast.evaluation.predictor import Predictor, configure_model, given_normalisation
from holdfast.inference.overlays import check_film, film_frame, overlay_paths, write_film, write_overlay
from holdfast.io.images import UnreadableFile, decode
from holdfast.models.factory import LoadedModel, load_model
from holdfast.records.header import CLASSIFICATION
from holdfast.runtime.device import unwrap_model
from holdfast.tasks import Task, task_named

logger = logging.getLogger(__name__)

DETECTION = "detection"
_OF_TORCHVISION = {"torchvision.models.detection": DETECTION, "torchvision.models.segmentation": "segmentation"}


@dataclass(frozen=True)
class Prediction:
    """Prediction for one image: rows, best first, with the columns of the model's task."""

    image: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class ImageFiles:
    """Image files as a data source without targets."""

    task: str
    paths: tuple[Path, ...]
    exif: str
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def id(self, index: int) -> str:
        """The path of one file."""
        return str(self.paths[index])

    def image(self, index: int) -> Image.Image:
        """Decode one file; raises `UnreadableImage`."""
        try:
            return decode(self.paths[index], exif=self.exif).image
        except UnreadableFile as error:
            raise UnreadableImage(str(self.paths[index]), str(error)) from error


class _Tensors:
    """A batch of images as a data source without targets; images of the model's size are not resized."""

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
    skip_bad: bool = False,
) -> list[Prediction]:
    """Predict image files, all images of a folder, or a tensor of images.

    The model's attribute ``task`` names its task; without one it is a classifier. The task's ``answer(output, classes,
    top)`` makes rows of the model's output for one image.

    Args:
        model: as in ``holdfast.evaluate``.
        images: files or folders; or a tensor (3, H, W) or (n, 3, H, W), uint8 or from 0 to 1, or normalised by the
            ``mean`` and ``std`` of the protocol.
        top: number of predictions to list.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        protocol: size, normalisation, preset, as in ``holdfast.evaluate``.
        overlays: folder for PNG files of every image with the prediction drawn over it: label maps of segmenters, boxes
            and masks of detectors.
        film: WebP file that shows all images beside their overlays, sorted by name.
        fps: frames per second of the film.
        class_names: names of the model's classes, if its files have none.
        skip_bad: leave out images that cannot be read, with a warning that names them.
    """
    if top < 1:
        raise HoldfastError(f"top must be at least 1, got {top}")
    if not 0 < fps <= 100:
        raise HoldfastError(f"fps must be above 0 and at most 100 frames per second, got {fps}")
    protocol = protocol or EvalProtocol(exif="apply")
    folder, moving = (Path(path).expanduser() if path is not None else None for path in (overlays, film))
    given = [] if isinstance(images, Tensor) else [images] if isinstance(images, str | Path) else list(images)
    paths = () if isinstance(images, Tensor) else _files(given)
    if skip_bad:
        paths = _readable(paths, exif=protocol.exif)
    targets = overlay_paths(paths, given, folder) if folder is not None else None
    if moving is not None:
        check_film(moving)
    loaded = load_model(model)
    if class_names is not None:
        loaded = replace(loaded, classes=tuple(class_names))
    loaded = replace(loaded, model=configure_model(loaded.model, protocol, None)[0])
    task = model_task(loaded, drawn=folder is not None or moving is not None)
    source: Any = ImageFiles(task.name, paths, protocol.exif)
    if isinstance(images, Tensor):
        source = _Tensors(task.name, images, protocol)
        targets = [folder / f"{source.id(index)}.png" for index in range(len(source))] if folder is not None else None
    with Predictor.open(loaded, EvaluationData("images", "images", source), protocol, device=device) as predictor:
        return _predictions(predictor, task, source, top=top, targets=targets, film=moving, fps=fps)


def _predictions(
    predictor: Predictor,
    task: Any,  # a task with ``answer``, and ``overlay`` if something is drawn: checked by model_task
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
        found.append(Prediction(source.id(index), tuple(task.evaluation.answer(output, classes=classes, top=top))))
        if targets is None and film is None:
            continue
        overlay = task.evaluation.overlay(picture, output, classes=classes)
        if targets is not None:
            write_overlay(targets[index], overlay)
        if film is not None:
            frames.append(film_frame(picture, overlay))
    if film is not None:
        write_film(film, frames, fps=fps)
    return found


def model_task(loaded: LoadedModel, *, drawn: bool = False) -> Task:
    """The model's task, by its attribute ``task``; torchvision's detectors are recognised by their class."""
    model: Any = unwrap_model(loaded.model)
    config = getattr(model, "pretrained_cfg", None)  # of exported files
    known = config.get("task", CLASSIFICATION) if isinstance(config, dict) else CLASSIFICATION
    of_torchvision = _OF_TORCHVISION.get(".".join(type(model).__module__.split(".")[:3]), known)
    detects = isinstance(model, GeneralizedRCNN)
    task = task_named(str(getattr(model, "task", DETECTION if detects else of_torchvision)))
    if not task.evaluation.lists_answers:
        raise HoldfastError(f"predict cannot list predictions of {task.name} models: their task needs a method answer")
    if drawn and not task.evaluation.draws_overlays:
        raise HoldfastError(f"overlays and film need a segmenter or a detector, got a model of {task.name}")
    return task


def _readable(paths: tuple[Path, ...], *, exif: str) -> tuple[Path, ...]:
    """The images that can be decoded; a warning names the others."""
    found, bad = [], []
    files = ImageFiles("", paths, exif)
    for index, path in enumerate(paths):
        try:
            files.image(index)
            found.append(path)
        except UnreadableImage:
            bad.append(str(path))
    if bad:
        examples = ", ".join(bad[:5]) + (" …" if len(bad) > 5 else "")
        logger.warning("unreadable images, left out: %d (%s)", len(bad), examples)
    if not found and paths:
        raise HoldfastError(f"images must hold at least one that can be read, got {len(bad)} unreadable ones")
    return tuple(found)


def _files(given: Sequence[str | Path]) -> tuple[Path, ...]:
    paths: list[Path] = []
    for each in given:
        path = Path(each).expanduser()
        if not path.exists():
            raise HoldfastError(f"images must be files or folders, but {str(path)!r} does not exist")
        paths += [path / name for name in find_images(path)] if path.is_dir() else [path]
    if not paths:
        raise HoldfastError("images must name at least one file or folder, got none")
    return tuple(paths)
