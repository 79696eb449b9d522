"""A small network that can really read digits: attacks on untrained networks show nothing."""

from dataclasses import dataclass

import pytest
import timm
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import holdfast  # noqa: F401 - registers fan_nano
from holdfast.attacks import PixelModel, from_pixels


@dataclass(frozen=True)
class Digits:
    """32×32 RGB digits in [0,1]."""

    images: Tensor
    labels: Tensor

    def __getitem__(self, rows: slice) -> "Digits":
        return Digits(self.images[rows], self.labels[rows])


def load() -> Digits:
    data = load_digits()
    small = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    return Digits(
        nn.functional.interpolate(small, size=32, mode="bilinear").repeat(1, 3, 1, 1), torch.tensor(data.target)
    )


def train(model: PixelModel, data: Digits, *, epochs: int, lr: float) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [part for _ in range(epochs) for part in torch.randperm(len(data.labels), generator=generator).split(50)]
    optimiser = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=len(batches))
    for batch in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data.images[batch]), data.labels[batch]).backward()
        optimiser.step()
        schedule.step()


@pytest.fixture(scope="session")
def digits() -> Digits:
    """What the network was not trained on."""
    return load()[1400:]


@pytest.fixture(scope="session")
def reader() -> PixelModel:
    """A FAN with 4×4 tokens of 8×8 pixels and 6 blocks, trained for seconds, about 97 % right."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = from_pixels(timm.create_model("fan_nano", patch_size=8, embed_dim=32, num_heads=2).train())
    train(model, load()[:1400], epochs=6, lr=5e-3)
    torch.set_num_threads(threads)
    return model.eval().requires_grad_(False)
