"""Detectors that others built: torchvision's answer with COCO's gapped category ids, ours with the classes' ranks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.runtime.device import unwrap_model

# where torchvision's detectors know how many classes they have, the background among them
_CLASS_LAYERS = (
    ("roi_heads.box_predictor.cls_score", "out_features"),
    ("head.classification_head", "num_classes"),
    ("head.classification_head", "num_columns"),
)


def ranked_labels(model: nn.Module, category_ids: Sequence[int]) -> nn.Module:
    """The model itself, or, if it answers with category ids, behind their ranks; a model of other classes is refused.

    Torchvision's COCO models have 91 classes, of which 80 exist: a number of classes that is the largest id gives them
    away. Models that do not tell their number are taken as they are.
    """
    known = answered_classes(model)
    if known in (None, len(category_ids)):
        return model
    if known == max(category_ids):
        return RankedLabels(model, category_ids)
    raise HoldfastError(
        f"the detector must have the {len(category_ids)} classes of the data (or answer with their category ids, "
        f"up to {max(category_ids)}), got {known}"
    )


def answered_classes(model: nn.Module) -> int | None:
    """How many classes a detector has beside the background, if it can be told."""
    inner: Any = unwrap_model(model)
    if isinstance(own := getattr(inner, "num_classes", None), int):
        return own
    for path, attribute in _CLASS_LAYERS:
        try:
            found = getattr(inner.get_submodule(path), attribute)
        except AttributeError:
            continue
        return int(found) - 1
    return None


class RankedLabels(nn.Module):
    """A detector whose labels become the ranks, from 1, of its category ids; ids that the data lack are dropped."""

    def __init__(self, model: nn.Module, category_ids: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        ranks = torch.zeros(max(category_ids) + 1, dtype=torch.int64)
        ranks[list(category_ids)] = torch.arange(1, len(category_ids) + 1)
        self.register_buffer("ranks", ranks, persistent=False)

    def forward(self, images: Any) -> list[dict[str, Tensor]]:
        """Images → detections."""
        return [self._ranked(found) for found in self.model(images)]

    def _ranked(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        ranks = self.ranks[found["labels"]]
        kept = ranks > 0
        return {name: values[kept] for name, values in {**found, "labels": ranks}.items()}
