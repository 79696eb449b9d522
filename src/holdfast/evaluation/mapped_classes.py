"""``MappedClasses``: a classifier whose answers are the classes of a `holdfast.data.class_maps.ClassMap`."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.data.class_maps import MAX, MEAN, ClassMap
from holdfast.models.outputs import logits_of
from holdfast.runtime.device import unwrap_model


class MappedClasses(nn.Module):
    """Wrapper that turns the logits of a model's outputs into those of a map's classes.

    The softmax of the new logits is the aggregated probability of every class, renormalised: a mean of probabilities is
    a logsumexp of logits minus log n up to a constant per image, which the softmax removes.
    """

    table: Tensor
    sizes: Tensor

    def __init__(self, model: nn.Module, class_map: ClassMap) -> None:
        super().__init__()
        self.model, self.aggregation = model, class_map.aggregation
        self.pretrained_cfg = getattr(model, "pretrained_cfg", None)
        groups = class_map.groups
        widest = max(map(len, groups))
        table = [[*group, *[class_map.outputs.count] * (widest - len(group))] for group in groups]
        self.register_buffer("table", torch.tensor(table), persistent=False)  # classes × widest, padded
        self.register_buffer("sizes", torch.tensor([len(group) for group in groups]), persistent=False)
        if callable(getattr(unwrap_model(model), "views", None)):
            self.views = self._views
        self.training = model.training

    def forward(self, images: Tensor) -> Tensor:
        """Logits of the map's classes, (images, classes)."""
        return self.mapped(logits_of(self.model(images)))

    def _views(self, images: Tensor) -> Mapping[str, Tensor]:
        inner: Any = unwrap_model(self.model)
        return {view: self.mapped(logits_of(answer)) for view, answer in inner.views(images).items()}

    def mapped(self, logits: Tensor) -> Tensor:
        """Logits of the classes from those of the outputs."""
        if self.table.shape[1] == 1:
            return logits[:, self.table[:, 0]]
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        padded = torch.cat([exact, torch.full_like(exact[:, :1], -torch.inf)], dim=1)
        members = padded[:, self.table]  # B C widest
        if self.aggregation == MAX:
            return members.amax(dim=2)
        total = members.logsumexp(dim=2)
        return total - self.sizes.to(total).log() if self.aggregation == MEAN else total
