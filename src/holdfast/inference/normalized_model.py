"""The model as an evaluation asks it: byte images in, the answers of all its views out."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.attacks.pixel_model import PixelModel
from holdfast.errors import HoldfastError
from holdfast.evaluation.preprocessing import PreprocessingSteps
from holdfast.models.fingerprint import model_fingerprint
from holdfast.models.output_probe import depends_on_batch, probe_answers, tolerance_of
from holdfast.models.outputs import logits_of
from holdfast.runtime.device import unwrap_model

PROBE = (224, 224)  # a size to try where every image keeps its own


class NormalizedModel:
    """A model of byte images, in evaluation mode, on its device, with all the predictions it gives."""

    def __init__(self, model: nn.Module, *, steps: PreprocessingSteps, device: torch.device, amp: str) -> None:
        self.pixels = PixelModel(model, mean=steps.mean, std=steps.std).to(device).eval()
        self.device, self.size = device, steps.size or PROBE
        self.tolerance, self.by_batch = tolerance_of(model, amp=amp), depends_on_batch(model)
        self._amp = None if amp == "no" else getattr(torch, amp)
        self.probe = self._probe()
        self.views = tuple(self.probe)

    @torch.inference_mode()
    def look(self, images: Tensor) -> Mapping[str, Any]:
        """The answers of every view for byte images (n, 3, H, W)."""
        with self._autocast():
            pixels = self.on_device(images)  # ours alone, so it is normalised in place
            answers = self._seen(pixels.sub_(self.pixels.mean).div_(self.pixels.std))
        for answer in answers.values():
            if isinstance(answer, Tensor | list | tuple) and len(answer) != len(images):
                raise HoldfastError(f"the model must answer every image, got {len(answer)} answers to {len(images)}")
        return answers

    def look_padded(self, images: Tensor) -> Mapping[str, Any]:
        """The same, but one image goes in twice: a batch of one is computed by other kernels, which round otherwise."""
        if len(images) > 1 or not self._takes_two:
            return self.look(images)
        return {view: answers[:1] for view, answers in self.look(images.repeat(2, 1, 1, 1)).items()}

    @cached_property
    def _takes_two(self) -> bool:
        """Whether a second image changes nothing: not in an int8 model, nor in one that was made for one image."""
        if self.by_batch:
            return False
        try:
            self.look(torch.full((2, 3, *self.size), 128, dtype=torch.uint8))
        except Exception:  # whatever a foreign model raises when it is given two
            return False
        return True

    def identify(self, model: nn.Module, *, batch_size: int = 2) -> tuple[str, dict[str, Any]]:
        """The fingerprint of the model as it was loaded, and its answers to the probe images."""
        answers: dict[str, Any] = {}

        def ask() -> None:
            answers.update(
                probe_answers(self.look, self.size, device=self.device, tolerance=self.tolerance, batch_size=batch_size)
            )

        return model_fingerprint(model, self.views, exercise=ask), answers

    def on_device(self, images: Tensor) -> Tensor:
        """Byte images as [0,1] pixels on the model's device."""
        return images.to(self.device, non_blocking=True).float().div_(255)

    @torch.no_grad()
    def answers(self, images: Tensor) -> Mapping[str, Any]:
        """The answers of every view for [0,1] images; plain models have the single view ``""``."""
        return self._seen(self.pixels.normalise(images))

    def _seen(self, normalised: Tensor) -> Mapping[str, Any]:
        inner: Any = unwrap_model(self.pixels.model)
        answers = inner.views(normalised) if has_views(inner) else {"": inner(normalised)}
        return {view: logits_of(answer) for view, answer in answers.items()}

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self._amp) if self._amp is not None else nullcontext()

    def _probe(self) -> Mapping[str, Any]:
        """What the model answers to one grey image; its task says whether that will do."""
        grey = torch.full((1, 3, *self.size), 0.5, device=self.device)
        try:
            return dict(self.answers(grey))
        except HoldfastError:
            raise
        except Exception as error:  # whatever a foreign model raises when its input does not suit it
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise HoldfastError(
                f"the model cannot look at images of {self.size[0]}×{self.size[1]} ({reason}); set size"
            ) from error


def has_views(model: nn.Module) -> bool:
    """Whether a model gives several predictions, by a method ``views(images) -> {name: answers}``."""
    return callable(getattr(model, "views", None))
