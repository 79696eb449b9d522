"""State file of an AutoAttack run, from which an interrupted run resumes."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models.fingerprint import weights_fingerprint


@dataclass(eq=False)
class State:
    """Progress of a run: the next member and batch, and the adversarial images found so far.

    ``robust`` marks the images classified correctly when the current member began, since its batches are cut from them.
    """

    key: str
    classes: int
    path: Path | None
    robust: Tensor  # N
    found: dict[int, Tensor] = field(default_factory=dict)
    member: int = 0
    batch: int = 0
    accuracy: dict[str, float] = field(default_factory=dict)

    @classmethod
    def new(cls, robust: Tensor, *, key: str, path: Path | None, classes: int) -> "State":
        """The state at the start of a run."""
        return cls(key, classes, path, robust, accuracy={"clean": _fraction(robust)})

    @classmethod
    def read(cls, path: Path, *, key: str, classes: int) -> "State":
        """Load the state to resume from; raises an error if it belongs to another run."""
        try:
            with safe_open(path, framework="pt") as file:
                progress = json.loads(file.metadata()["progress"])
                rows, images, robust = (file.get_tensor(name) for name in ("rows", "images", "standing"))
        except Exception as error:
            raise HoldfastError(f"state {path} cannot be read as an AutoAttack state file: delete it") from error
        if progress["key"] != key:
            raise HoldfastError(
                f"state {path} belongs to another run, with another model, other images or settings: "
                "name another file or delete it"
            )
        found = dict(zip(rows.tolist(), images, strict=True))
        return cls(key, classes, path, robust, found, progress["member"], progress["batch"], progress["accuracy"])

    def record(self, rows: Tensor, images: Tensor, *, batch: int) -> None:
        """Store the adversarial images that a batch found."""
        self.found.update(zip(rows.tolist(), images.detach().cpu(), strict=True))
        self.batch = batch
        self._write()

    def finish(self, member: str) -> None:
        """Mark a member as finished and compute the robust accuracy after it."""
        self.robust = self.robust.clone()
        self.robust[list(self.found)] = False
        self.member, self.batch = self.member + 1, 0
        self.accuracy[member] = _fraction(self.robust)
        self._write()

    def adversarial_images(self, images: Tensor) -> Tensor:
        """The images, replaced by their adversarial versions where one was found."""
        adversarial = images.clone()
        for row, image in self.found.items():
            adversarial[row] = image.to(adversarial)
        return adversarial

    def _write(self) -> None:
        if self.path is None:
            return
        names = ("key", "member", "batch", "accuracy")
        progress = json.dumps({name: getattr(self, name) for name in names})
        tensors = {
            "rows": torch.tensor(list(self.found), dtype=torch.int64),
            "images": torch.stack(list(self.found.values())) if self.found else torch.empty(0),
            "standing": self.robust.cpu(),
        }
        unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        save_file(tensors, unfinished, metadata={"progress": progress})
        unfinished.replace(self.path)


def fingerprint(settings: Mapping[str, Any], seed: int, model: nn.Module, images: Tensor, labels: Tensor) -> str:
    """A hash of everything that the result depends on."""
    tensors = {"images": images, "labels": labels}
    described = [dict(settings), seed, {name: [str(value.dtype), list(value.shape)] for name, value in tensors.items()}]
    weights = weights_fingerprint(model.state_dict(), tensors)
    return hashlib.blake2b(json.dumps([described, weights], sort_keys=True).encode(), digest_size=16).hexdigest()


def _fraction(robust: Tensor) -> float:
    return float(robust.double().mean())
