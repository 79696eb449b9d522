"""AugMix and its Jensen-Shannon term (Hendrycks et al., ICLR 2020).

Two mixtures of randomly changed copies are shown beside every image; cross-entropy is taken on the clean image alone,
and the three predictions are drawn together. The operations are ``augmix_operations.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import HoldfastError
from holdfast.methods.augmix_operations import LEVELS, OPERATIONS
from holdfast.methods.loss_terms import Context, ForwardPass, Term, Views, from_options
from holdfast.methods.objective import Loss

LEAST = 1e-7  # the mean prediction is clamped to this before its logarithm
WEAKEST = 0.1  # the lowest level


@dataclass(frozen=True)
class AugMix(Term):
    """Two AugMix views of every image and the Jensen-Shannon divergence of the three predictions.

    Attributes:
        weight: of the divergence.
        severity: levels of the operations are drawn from 0.1 to this, 10 at most; published are 3 (CIFAR) and 1
            (ImageNet).
        width: chains that are mixed.
        depth: operations of a chain; null draws 1, 2 or 3.
        alpha: of the Dirichlet and Beta distributions of the mixture.
        jsd: False trains on one mixed view of every image instead, by cross-entropy alone.
    """

    weight: float = 12.0
    severity: float = 3.0
    width: int = 3
    depth: int | None = None
    alpha: float = 1.0
    jsd: bool = True

    def __post_init__(self) -> None:
        if not WEAKEST <= self.severity <= LEVELS:
            raise HoldfastError(f"severity of augmix must lie between {WEAKEST} and {LEVELS}, got {self.severity}")
        if self.width < 1 or (self.depth is not None and self.depth < 1) or self.alpha <= 0:
            raise HoldfastError(
                "width and depth of augmix must be at least 1 and alpha above 0, "
                f"got {self.width}, {self.depth} and {self.alpha}"
            )

    def prepare(self, images: Tensor, forward: ForwardPass) -> Views:
        """Two mixed views before the clean images; without the divergence one mixed view in their place."""
        mean, std = forward.setting.mean.to(images), forward.setting.std.to(images)
        copies = torch.cat([images, images]) if self.jsd else images
        with torch.no_grad():
            pixels = (copies * std + mean) * 255
            chains, share = self._chains(pixels.round().clamp(0, 255))
            mixed = (1 - share) * copies + share * (chains / 255 - mean) / std
        return (*mixed.chunk(2), images) if self.jsd else (mixed,)

    def _chains(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sum of the changed copies, and its share of the mixture, (B, 1, 1, 1)."""
        count = len(pixels)
        weights = torch.distributions.Dirichlet(torch.full((self.width,), self.alpha)).sample((count,)).to(pixels)
        share = torch.distributions.Beta(self.alpha, self.alpha).sample((count,)).to(pixels)
        total = torch.zeros_like(pixels)
        for chain in range(self.width):
            total += weights[:, chain].view(-1, 1, 1, 1) * self._chain(pixels)
        return total, share.view(-1, 1, 1, 1)

    def _chain(self, pixels: Tensor) -> Tensor:
        """Copies with some operations, drawn with replacement, one after the other."""
        count, pixels = len(pixels), pixels.clone()
        depths = torch.randint(1, 4, (count,)) if self.depth is None else torch.full((count,), self.depth)
        for step in range(int(depths.max())):
            drawn = torch.randint(len(OPERATIONS), (count,))
            levels = torch.empty(count).uniform_(WEAKEST, self.severity)
            for number, operation in enumerate(OPERATIONS):
                chosen = ((drawn == number) & (depths > step)).nonzero().flatten()
                if len(chosen):
                    on_device = chosen.to(pixels.device)
                    pixels[on_device] = operation(pixels[on_device], levels[chosen].to(pixels))
        return pixels

    def loss(self, forward: ForwardPass) -> Loss | None:
        """The weighted divergence of the predictions for the clean image and its two views."""
        if not self.jsd:
            return None
        views = (forward.outputs, *forward.all_outputs_of(self, 2))
        if not all(isinstance(view, Tensor) and view.ndim == 2 for view in views):
            raise HoldfastError("augmix compares one answer per image; a segmenter's views do not show the same places")
        divergence = jensen_shannon(views)
        return Loss(self.weight * divergence, {"jensen_shannon": divergence.detach()})


def jensen_shannon(logits: Sequence[Tensor]) -> Tensor:
    """The mean over views of KL(p_v ‖ M), M the mean prediction; mean over the batch, in nats: at most log(views)."""
    predictions = torch.stack([view.float() if view.dtype.itemsize < 4 else view for view in logits]).log_softmax(-1)
    middle = predictions.exp().mean(dim=0).clamp(LEAST, 1).log()
    return (predictions.exp() * (predictions - middle)).sum(dim=-1).mean()


def augmix_term(options: Any, context: Context) -> AugMix:
    """From a recipe's option ``augmix``."""
    return from_options(AugMix, "augmix", options)
