"""Models and their heads. Importing this package registers every model with timm."""

from typing import Any

import timm
from torch import nn

from holdfast.errors import HoldfastError, nearest
from holdfast.models import fan, fan_swin, rvt, tap, vit_nano

_FAMILIES = (fan, fan_swin, rvt, vit_nano, tap)

__all__ = ["create_model", "model_names"]


def model_names() -> list[str]:
    """The names of Holdfast's models, in the order of their files."""
    return [name for family in _FAMILIES for name in family.default_cfgs]


def create_model(name: str, **kwargs: Any) -> nn.Module:
    """``timm.create_model`` whose error for an unknown name suggests the nearest known ones."""
    plain = name.split(".", maxsplit=1)[0]
    if ":" not in name and not timm.is_model(plain):
        raise HoldfastError(f"unknown model {name!r}{nearest(plain, [*model_names(), *timm.list_models()])}")
    return timm.create_model(name, **kwargs)


from holdfast.models import detector as _detector  # noqa: E402, F401 - builds its encoder with create_model
from holdfast.models import segmenter as _segmenter  # noqa: E402, F401 - builds its encoder with create_model
