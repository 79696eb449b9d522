"""``holdfast.predict``: what a model sees in single images, prepared as an evaluation prepares them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from holdfast.corruptions.folders import find_images
from holdfast.decoding import UnreadableFile, decode
from holdfast.errors import HoldfastError
from holdfast.evaluation.judge import Judge
from holdfast.evaluation.machine import choose_device
from holdfast.evaluation.options import Protocol
from holdfast.evaluation.overlays import check_film, film_frame, overlay_paths, write_film, write_overlay
from holdfast.evaluation.protocol import model_input
from holdfast.models.specs import LoadedModel, load_model
from holdfast.models.wrappers import without_wrappers
from holdfast.records.header import CLASSIFICATION
from holdfast.tasks import Task, task_named

DETECTION = "detection"


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image: rows, best first, each with what its task says of an answer."""

    image: str
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class _Pictures:
    """Files as a source without targets."""

    paths: tuple[Path, ...]
    classes: tuple[str, ...]
    exif: str

    def __len__(self) -> int:
        return len(self.paths)

    def image(self, index: int) -> Image.Image:
        try:
            return decode(self.paths[index], exif=self.exif).image
        except UnreadableFile as error:
            raise HoldfastError(f"image {str(self.paths[index])!r} cannot be read ({error})") from error


def predict(
    model: nn.Module | str | Path,
    images: str | Path | Sequence[str | Path],
    *,
    top: int = 5,
    device: str = "auto",
    protocol: Protocol | None = None,
    overlays: str | Path | None = None,
    film: str | Path | None = None,
    fps: float = 8.0,
) -> list[Prediction]:
    """What a model answers to some image files, or to all in a folder.

    A model says its task by an attribute ``task``; without one it is a classifier. The task's ``answer(output, classes,
    top)`` makes rows of what the model returned for one image.

    Args:
        model: as in ``holdfast.evaluate``.
        images: files, or folders.
        top: how many answers to list.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``.
        protocol: size, normalisation, preset, as in ``holdfast.evaluate``.
        overlays: a folder for every image with the answer drawn over it, as PNG: label maps of segmenters, boxes and
            masks of detectors.
        film: a WebP file that shows all images, beside their overlays, one after the other in the order of their names.
        fps: its frames per second.
    """
    if top < 1:
        raise HoldfastError(f"top must be at least 1, got {top}")
    protocol = protocol or Protocol(exif="apply")
    given = [images] if isinstance(images, str | Path) else list(images)
    paths = _files(given)
    targets = overlay_paths(paths, given, Path(overlays).expanduser()) if overlays is not None else None
    moving = Path(film).expanduser() if film is not None else None
    if not 0 < fps <= 100:
        raise HoldfastError(f"fps must be above 0 and at most 100 frames per second, got {fps}")
    if moving is not None:
        check_film(moving)
    loaded = load_model(model)
    task = _task(loaded, drawn=targets is not None or moving is not None)
    wanted = model_input(loaded.model, size=protocol.size, mean=protocol.mean, std=protocol.std)
    pictures = _Pictures(paths, loaded.classes or (), protocol.exif)
    steps = task.steps(pictures, wanted, preset=protocol.preset, stored_jpeg=False)
    where = choose_device(device, loaded.model, fixed=not isinstance(model, nn.Module))
    judge = Judge(loaded.model.eval(), steps=steps, device=where, amp="no")
    answer: Any = getattr(task, "answer")  # noqa: B009 - a seam that not every task has; _task has looked
    found, frames = [], []
    for index, path in enumerate(paths):
        picture = pictures.image(index).convert("RGB")
        pixels = steps.after(steps.before(picture), corrupted=False)
        answers = judge.look(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])
        output = next(iter(answers.values()))[0]
        found.append(Prediction(str(path), tuple(answer(output, classes=loaded.classes, top=top))))
        if targets is None and moving is None:
            continue
        overlay = task.overlay(picture, output, classes=loaded.classes)  # type: ignore[attr-defined]  # _task has looked
        if targets is not None:
            write_overlay(targets[index], overlay)
        if moving is not None:
            frames.append(film_frame(picture, overlay))
    if moving is not None:
        write_film(moving, frames, fps=fps)
    return found


def _task(loaded: LoadedModel, *, drawn: bool) -> Task:
    """What the model says it does; torchvision's detectors do not say it."""
    model: Any = without_wrappers(loaded.model)
    told = getattr(model, "pretrained_cfg", None)  # of exported files
    known = told.get("task", CLASSIFICATION) if isinstance(told, dict) else CLASSIFICATION
    task = task_named(str(getattr(model, "task", DETECTION if isinstance(model, GeneralizedRCNN) else known)))
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
