"""Which pixels of the chosen patches may change: all of them, or a learned few in Patch-Fool's sparse variant."""

import torch
from torch import Tensor

from holdfast.attacks import draws
from holdfast.errors import HoldfastError


class PatchMask:
    """The pixels that may change: all of the region, or the best so many of it.

    Patch-Fool's sparse variant; the scores are learned straight through the choice of the highest.
    """

    def __init__(self, region: Tensor, *, count: int | None, lr: float, seed: int, names: list[int | str]) -> None:
        self.region, self.count = region, count
        self.pixels = region  # B 1 H W
        if count is None:
            return
        room = int(region[:1].sum())
        if count > room:
            raise HoldfastError(f"pixels must be at most the {room} of the chosen patches, got {count}")
        self.scores = draws.uniform(region.float(), seed=seed, ids=names, purpose="patch mask")
        self.optimiser = torch.optim.Adam([self.scores], lr=lr)
        self._binarise()

    def ascend(self, gain: Tensor) -> None:
        """``gain``, (B, 1, H, W): the gradient of the objective by the mask, which multiplies the content."""
        self.scores.grad = -gain
        self.optimiser.step()
        self._binarise()

    def _binarise(self) -> None:
        scores = self.scores.detach().masked_fill(~self.region, float("-inf"))
        best = scores.flatten(1).topk(self.count or 0, dim=1).indices
        self.pixels = torch.zeros_like(self.region).flatten(1).scatter(1, best, True).view_as(self.region)
