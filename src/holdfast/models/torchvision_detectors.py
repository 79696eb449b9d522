"""Adapter for torchvision's detectors: COCO's category ids, which have gaps, to consecutive class labels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.runtime.device import unwrap_model

# attributes of torchvision's detectors with their number of classes, background included
_CLASS_LAYERS = (
    ("roi_heads.box_predictor.cls_score", "out_features"),
    ("head.classification_head", "num_classes"),
    ("head.classification_head", "num_columns"),
)


def ranked_labels(model: nn.Module, category_ids: Sequence[int]) -> nn.Module:
    """The model, with category ids converted to ranks if it predicts those; raises an error for other classes.

    Torchvision's COCO models have 91 classes, of which 80 exist: a number of classes equal to the largest id identifies
    them. Models of unknown number of classes are used unchanged.
    """
    known = answered_classes(model)
    if known in (None, len(category_ids)):
        return model
    if known == max(category_ids):
        return RankedLabels(model, category_ids)
    raise HoldfastError(
        f"the detector must have the {len(category_ids)} classes of the data (or predict their category ids, "
        f"up to {max(category_ids)}), got {known}"
    )


def answered_classes(model: nn.Module) -> int | None:
    """The number of classes of a detector without the background, if known."""
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
    """Wrapper that maps a detector's category ids to their ranks, from 1, and drops ids that the data lack."""

    def __init__(self, model: nn.Module, category_ids: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        ranks = torch.zeros(max(category_ids) + 1, dtype=torch.int64)
        ranks[list(category_ids)] = torch.arange(1, len(category_ids) + 1)
        self.register_buffer("ranks", ranks, persistent=False)

    def forward(self, images: Any) -> list[dict[str, Tensor]]:
        """Images → detections with ranked labels."""
        return [self._rank_labels(found) for found in self.model(images)]

    def _rank_labels(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        ranks = self.ranks[found["labels"]]
        kept = ranks > 0
        return {name: values[kept] for name, values in {**found, "labels": ranks}.items()}
