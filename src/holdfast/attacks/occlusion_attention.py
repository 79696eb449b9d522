"""``occlusion-attention``: cover the patches that receive the most attention. Ours, no paper's.

AFAT's learned occlusion looks for the patches that hurt most. Those that a transformer attends to move its features
several times as far as random ones (docs/afat.md), and nothing has to be fitted.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from holdfast.attacks import draws
from holdfast.attacks.occlusion import FILLS, Fill, cover_of, cover_patches
from holdfast.attacks.patches import without_most_attended
from holdfast.attacks.pixels import check_images
from holdfast.attacks.result import AttackResult
from holdfast.attacks.undisturbed import predict, undisturbed
from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class AttentionOcclusion:
    """Its settings. Patches are the model's tokens.

    Attributes:
        ratio: share of the patches that are covered; how many that is, `select_lowest` says.
        fill: what covers a patch; see `Occlusion`.
    """

    ratio: float = 0.1
    fill: Fill = "normalised"

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise HoldfastError(f"ratio must lie in [0, 1], got {self.ratio}")
        if self.fill not in FILLS:
            raise HoldfastError(f"fill must be one of {', '.join(FILLS)}, got {self.fill!r}")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, seed: int = 0, ids: draws.Ids | None = None
    ) -> AttackResult:
        """Cover the patches of every image and score the model."""
        check_images(images)
        names = draws.image_ids(ids, len(images))
        with undisturbed(model) as quiet, torch.no_grad():
            keep = without_most_attended(quiet, images, self.ratio)
            covered = cover_patches(
                images, keep, cover_of(self.fill, quiet, images, seed=seed, names=names, purpose="cover/0")
            )
            predictions = predict(quiet, covered, labels)
        record = {"attack": "occlusion", "patches_by": "attention", **asdict(self), "seed": seed}
        return AttackResult(covered, predictions, predictions != labels, record)
