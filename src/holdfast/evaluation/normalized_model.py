"""``NormalizedModel``: normalisation, device, precision and views around a model; uint8 or [0,1] images in."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from holdfast._deprecated import renamed_method
from holdfast.attacks.pixel_model import PixelModel
from holdfast.errors import HoldfastError, first_line
from holdfast.evaluation.preprocessing import Preprocessing
from holdfast.models.fingerprint import model_fingerprint
from holdfast.models.output_probe import depends_on_batch, probe_answers, tolerance_of
from holdfast.models.outputs import logits_of
from holdfast.runtime.device import unwrap_model

PROBE = (224, 224)  # size of the probe image if every image keeps its own size


class NormalizedModel:
    """A model in evaluation mode on its device that normalises its input and predicts all its views."""

    def __init__(self, model: nn.Module, *, steps: Preprocessing, device: torch.device, amp: str) -> None:
        self.pixels = PixelModel(model, mean=steps.mean, std=steps.std).to(device).eval()
        self.device, self.size = device, steps.size or PROBE
        self.tolerance, self.by_batch = tolerance_of(model, amp=amp), depends_on_batch(model)
        self.amp = amp
        self._amp = None if amp == "no" else getattr(torch, amp)
        self.probe = self._probe()
        self.views = tuple(self.probe)

    @torch.inference_mode()
    def predict_bytes(self, images: Tensor) -> Mapping[str, Any]:
        """Predict every view of uint8 images (n, 3, H, W)."""
        with self._autocast():
            pixels = self.on_device(images)  # a fresh tensor, so it can be normalised in place
            answers = self._forward(pixels.sub_(self.pixels.mean).div_(self.pixels.std))
        for answer in answers.values():
            if isinstance(answer, Tensor | list | tuple) and len(answer) != len(images):
                raise HoldfastError(f"the model must return one output per image, got {len(answer)} for {len(images)}")
        return answers

    def predict_bytes_padded(self, images: Tensor) -> Mapping[str, Any]:
        """Predict uint8 images, padding a batch of one to two.

        Libraries use other kernels (matrix-vector products) for a batch of one, which round differently: the last batch
        of a shard would then depend on the batch size.
        """
        if len(images) > 1 or not self._takes_two:
            return self.predict_bytes(images)
        return {view: answers[:1] for view, answers in self.predict_bytes(images.repeat(2, 1, 1, 1)).items()}

    @cached_property
    def _takes_two(self) -> bool:
        """Whether a batch can be padded: not for int8 models, nor for models with a fixed batch size of one."""
        if self.by_batch:
            return False
        try:
            self.predict_bytes(torch.full((2, 3, *self.size), 128, dtype=torch.uint8))
        except Exception:  # any model may fail in its own way
            return False
        return True

    def identify(self, model: nn.Module, *, batch_size: int = 2) -> tuple[str, dict[str, Any]]:
        """Fingerprint of the loaded model, and its predictions of the probe images."""
        answers: dict[str, Any] = {}

        def exercise() -> None:
            answers.update(
                probe_answers(
                    self.predict_bytes, self.size, device=self.device, tolerance=self.tolerance, batch_size=batch_size
                )
            )

        return model_fingerprint(model, self.views, exercise=exercise), answers

    def on_device(self, images: Tensor) -> Tensor:
        """Convert uint8 images to [0,1] pixels on the model's device."""
        return images.to(self.device, non_blocking=True).float().div_(255)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Mapping[str, Any]:
        """Predict every view of [0,1] images; models without views have the single view ``""``."""
        return self._forward(self.pixels.normalise(images))

    look = renamed_method("look", "predict_bytes")
    answers = renamed_method("answers", "predict")

    def _forward(self, normalised: Tensor) -> Mapping[str, Any]:
        inner: Any = unwrap_model(self.pixels.model)
        answers = inner.views(normalised) if has_views(inner) else {"": inner(normalised)}
        return {view: logits_of(answer) for view, answer in answers.items()}

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self._amp) if self._amp is not None else nullcontext()

    def _probe(self) -> Mapping[str, Any]:
        """Predict one grey image, to check the output's shape before anything is measured."""
        grey = torch.full((1, 3, *self.size), 0.5, device=self.device)
        try:
            return dict(self.predict(grey))
        except HoldfastError:
            raise
        except Exception as error:  # any model may fail in its own way
            reason = first_line(error)
            if (channels := self._other_channels()) is not None:
                raise HoldfastError(
                    f"the model must take images of 3 channels (RGB), but takes {channels}: put a layer in front of it "
                    "that converts them, such as the mean of the channels for grey images"
                ) from error
            raise HoldfastError(
                f"the model fails on images of {self.size[0]}×{self.size[1]} ({reason}): set size"
            ) from error

    def _other_channels(self) -> int | None:
        """How many channels the model takes, if it is another usual number than three."""
        inner = unwrap_model(self.pixels.model)
        for channels in (1, 4, 2):
            with suppress(Exception):  # any model may fail in its own way
                inner(torch.zeros(1, channels, *self.size, device=self.device))
                return channels
        return None


def has_views(model: nn.Module) -> bool:
    """Whether a model has several predictions, by a method ``views(images) -> {name: outputs}``."""
    return callable(getattr(model, "views", None))
