"""`Probe`: the model of [0,1] images under analysis, with its clean and corrupted images."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.analysis.token_features import (
    TokenLayout,
    check_reached,
    default_modules,
    known_layouts,
    layouts,
    outputs_of,
)
from holdfast.attacks.occlusion import Occlusion, occlude_images
from holdfast.attacks.patch_selection import fitting_patch
from holdfast.attacks.pixel_model import PixelModel, backbone
from holdfast.attention import AttentionHandle, Seen, can_watch, watch, why_not
from holdfast.corruptions import corrupt_batch
from holdfast.corruptions.severities import check_severity, kind_of
from holdfast.data.source import Source, UnreadableImage
from holdfast.data.subsets import Subset
from holdfast.errors import HoldfastError
from holdfast.evaluation.plan import limit_rows
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.models.corruption_model import Corruptor, load_corruptor
from holdfast.models.tora import ToraViT
from holdfast.tasks import task_of

logger = logging.getLogger(__name__)

OCCLUSION = "occlusion"  # a cell beside those of the corruptions: AFAT's figures
MOST_PIXELS = 2**21  # per forward pass: 32 images of 256 × 256, or two of 1024 × 1024


class NotApplicable(HoldfastError):
    """Raised by an analysis that does not apply to this model or data; the others still run."""


@dataclass(frozen=True, eq=False)
class ProbeBatch:
    """A batch of images before corruption (uint8, H×W×3), with ids and classes."""

    ids: list[str]
    targets: Tensor
    images: list[np.ndarray]

    def right(self, logits: Tensor) -> np.ndarray:
        """Whether each prediction is right; False for label maps, since such an image has no single class."""
        if logits.ndim != 2:
            return np.zeros(len(self.ids), dtype=bool)
        return (logits.argmax(dim=1) == self.targets).cpu().numpy()


@dataclass(frozen=True, eq=False)
class Probe:
    """A model in evaluation mode, and its images.

    Attributes:
        model: a model of [0,1] images.
        source: the images.
        steps: the preprocessing from an image to the model's input.
        seed: seed of corruptions, masks and noise.
        batch_size: images per forward pass, fewer for large images.
        answers: whether the model's classes are those of the data, so that there is an accuracy.
        corruptor: AFAT's corruption model, if there is one.
    """

    model: PixelModel
    source: Source
    steps: Preprocessing
    seed: int = 0
    batch_size: int = 32
    answers: bool = True
    corruptor: Corruptor | None = None

    @property
    def device(self) -> torch.device:
        """The device that the model is on."""
        return self.model.mean.device

    @cached_property
    def inner(self) -> nn.Module:
        """The network without the normalisation and without TORA's adapters."""
        model = backbone(self.model)
        return model.backbone if isinstance(model, ToraViT) else model

    @cached_property
    def has_attention(self) -> bool:
        """Whether `watch` supports the model."""
        return can_watch(self.inner)

    @cached_property
    def blocks(self) -> list[str]:
        """The names of the blocks."""
        return default_modules(self.inner)

    @cached_property
    def token_blocks(self) -> list[str]:
        """The blocks whose outputs are known to be tokens or maps; a user's network may have others."""
        names = self.blocks
        with outputs_of(self.inner, names) as seen:
            self.model(self._one_image())
        reached = {name: seen[name] for name in names if name in seen}
        found = list(known_layouts(self.inner, reached, [], self.steps.fixed_size))
        if not found:
            raise NotApplicable(f"{type(self.inner).__name__} has no blocks whose outputs are tokens or maps")
        return found

    @cached_property
    def token_size(self) -> int | None:
        """The side in pixels of the first layer's tokens; None without readable attention."""
        if not self.has_attention:
            return None
        _, handles = self.look(self._one_image())
        grid, (height, width) = handles[0].image_grid or handles[0].grid, self.steps.fixed_size
        if grid is None or height % grid[0] or height // grid[0] * grid[1] != width:
            return None
        return height // grid[0]

    def layouts(self, names: list[str]) -> dict[str, TokenLayout]:
        """The token layouts of the outputs of modules, inferred from one image."""
        with outputs_of(self.inner, names) as seen:
            if self.has_attention:
                _, handles = self.look(self._one_image())
            else:
                handles = []
                self.model(self._one_image())
        check_reached(seen, names)
        return layouts(self.inner, {name: seen[name] for name in names}, handles, self.steps.fixed_size)

    def _one_image(self) -> Tensor:
        return self.clean(next(self.batches(self.some(1))))

    def batches(self, source: Source | None = None) -> Iterator[ProbeBatch]:
        """The readable images in order; ``source`` is a subset of the images."""
        images = self.source if source is None else source
        height, width = self.steps.fixed_size
        step = max(1, min(self.batch_size, MOST_PIXELS // (height * width)))
        for start in range(0, len(images), step):
            numbers = range(start, min(start + step, len(images)))
            read = [(number, image) for number in numbers if (image := self._image(images, number)) is not None]
            if read:
                targets = torch.as_tensor(_classes(images, [number for number, _ in read]), device=self.device)
                yield ProbeBatch([images.id(number) for number, _ in read], targets, [image for _, image in read])

    def _image(self, images: Source, number: int) -> np.ndarray | None:
        try:
            return self.steps.to_protocol(images.image(number))
        except UnreadableImage as error:
            logger.warning("%s; it is left out", error)
            return None

    def some(self, count: int) -> Source:
        """A few images for figures, spread over the classes."""
        ids = [self.source.id(number) for number in range(len(self.source))]
        return Subset(
            self.source, limit_rows(ids, task_of(self.source).evaluation.strata(self.source), min(count, len(ids)))
        )

    def clean(self, batch: ProbeBatch) -> Tensor:
        """The preprocessed images in [0,1], (B, 3, H, W)."""
        return self._pixels([self.steps.to_model(image, corrupted=False) for image in batch.images])

    def corrupted(self, batch: ProbeBatch, cell: str) -> Tensor:
        """The same images under a corruption cell such as ``fog/3``, or ``occlusion/10``."""
        kind, severity = parse_cell(cell)
        if kind == OCCLUSION:
            return self._occluded(batch, severity / 100)
        options: dict[str, Any] = {"severity": severity, "preset": self.steps.preset, "seed": self.seed}
        images = corrupt_batch(batch.images, kind, ids=batch.ids, **options)
        return self._pixels([self.steps.to_model(image, corrupted=True) for image in images])

    def _occluded(self, batch: ProbeBatch, ratio: float) -> Tensor:
        """The images with one random mask each, of patches as large as tokens, covered with noise (AFAT)."""
        side = self.token_size or fitting_patch(self.steps.fixed_size)
        attack = Occlusion(ratio, side, masks=1)
        options: dict[str, Any] = {"seed": self.seed, "names": list(batch.ids)}
        (covered,) = occlude_images(attack, self.model, self.clean(batch), **options)
        return covered

    def _pixels(self, images: list[np.ndarray]) -> Tensor:
        stacked = torch.from_numpy(np.stack(images)).to(self.device)
        return stacked.permute(0, 3, 1, 2).float() / 255

    @contextmanager
    def watch_inner(self) -> Iterator[Seen]:
        """`watch` on the network itself; raises `NotApplicable` if it is not supported."""
        if not self.has_attention:
            raise NotApplicable(why_not(self.inner))
        with watch(self.inner) as seen:
            yield seen

    def look(self, pixels: Tensor) -> tuple[Tensor, list[AttentionHandle]]:
        """Logits and the attention of every block."""
        with self.watch_inner() as seen:
            logits = self.model(pixels)
        return logits, seen.attention


def _classes(images: Source, numbers: list[int]) -> list[int]:
    """The class of each image; −1 for images with label maps or objects instead."""
    known = task_of(images).scoring.one_class
    return [int(images.targets[number]) if known else -1 for number in numbers]


def parse_cell(cell: str) -> tuple[str, int]:
    """Split ``fog/3`` into kind and severity, ``occlusion/10`` into occlusion and the percentage of patches."""
    kind, _, severity = str(cell).partition("/")
    if kind == OCCLUSION:
        if not severity.isdigit() or not 1 <= int(severity) <= 100:
            raise HoldfastError(
                f"occlusion must have a percentage of patches from 1 to 100, as occlusion/10, got {cell!r}"
            )
        return kind, int(severity)
    kind_of(kind)
    if not severity.isdigit():
        raise HoldfastError(f"cells must be named KIND/SEVERITY, such as fog/3, got {cell!r}")
    return kind, check_severity(int(severity))


def as_bytes(pixels: Tensor) -> np.ndarray:
    """[0,1] images as uint8, (B, H, W, 3)."""
    return (pixels.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def find_corruptor(path: Path | None, folder: Path | None) -> Corruptor | None:
    """The corruption model of a file, else of the run, else none."""
    if path is None:
        path = folder / "corruptor.safetensors" if folder is not None else None
        if path is None or not path.is_file():
            return None
    if not path.is_file():
        raise HoldfastError(f"corruptor must be a file of an AFAT run (corruptor.safetensors), got {str(path)!r}")
    return load_corruptor(path)
