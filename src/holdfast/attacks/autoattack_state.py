"""Where an AutoAttack run is, in a file that a killed run continues from."""

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
    """Progress of a run: the member and batch to do next, and what has fallen so far.

    ``standing`` is as of the current member's beginning, since that is what its batches are cut from.
    """

    key: str
    classes: int
    path: Path | None
    standing: Tensor  # N
    fallen: dict[int, Tensor] = field(default_factory=dict)
    member: int = 0
    batch: int = 0
    accuracy: dict[str, float] = field(default_factory=dict)

    @classmethod
    def new(cls, standing: Tensor, *, key: str, path: Path | None, classes: int) -> "State":
        """A run that is about to begin."""
        return cls(key, classes, path, standing, accuracy={"clean": _share(standing)})

    @classmethod
    def read(cls, path: Path, *, key: str, classes: int) -> "State":
        """A run to be continued; refuses the state of another one."""
        try:
            with safe_open(path, framework="pt") as file:
                progress = json.loads(file.metadata()["progress"])
                rows, images, standing = (file.get_tensor(name) for name in ("rows", "images", "standing"))
        except Exception as error:
            raise HoldfastError(f"state {path} must be a file that AutoAttack wrote, and it cannot be read") from error
        if progress["key"] != key:
            raise HoldfastError(
                f"state {path} belongs to another run: expected one with this model, these images and settings; "
                "name another file or delete it"
            )
        fallen = dict(zip(rows.tolist(), images, strict=True))
        return cls(key, classes, path, standing, fallen, progress["member"], progress["batch"], progress["accuracy"])

    def note(self, rows: Tensor, images: Tensor, *, batch: int) -> None:
        """Remember what a batch brought down."""
        self.fallen.update(zip(rows.tolist(), images.detach().cpu(), strict=True))
        self.batch = batch
        self._write()

    def finish(self, member: str) -> None:
        """A member is through."""
        self.standing = self.standing.clone()
        self.standing[list(self.fallen)] = False
        self.member, self.batch = self.member + 1, 0
        self.accuracy[member] = _share(self.standing)
        self._write()

    def images_after(self, images: Tensor) -> Tensor:
        """The images, those that fell replaced by what brought them down."""
        after = images.clone()
        for row, image in self.fallen.items():
            after[row] = image.to(after)
        return after

    def _write(self) -> None:
        if self.path is None:
            return
        names = ("key", "member", "batch", "accuracy")
        progress = json.dumps({name: getattr(self, name) for name in names})
        tensors = {
            "rows": torch.tensor(list(self.fallen), dtype=torch.int64),
            "images": torch.stack(list(self.fallen.values())) if self.fallen else torch.empty(0),
            "standing": self.standing.cpu(),
        }
        unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        save_file(tensors, unfinished, metadata={"progress": progress})
        unfinished.replace(self.path)


def fingerprint(settings: Mapping[str, Any], seed: int, model: nn.Module, images: Tensor, labels: Tensor) -> str:
    """A digest of everything that the result depends on."""
    tensors = {"images": images, "labels": labels}
    told = [dict(settings), seed, {name: [str(value.dtype), list(value.shape)] for name, value in tensors.items()}]
    weights = weights_fingerprint(model.state_dict(), tensors)
    return hashlib.blake2b(json.dumps([told, weights], sort_keys=True).encode(), digest_size=16).hexdigest()


def _share(standing: Tensor) -> float:
    return float(standing.double().mean())
