"""Classifiers as encoders: the feature maps that dense tasks use, at any image size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models import create_model
from holdfast.models.backbone import Backbone
from holdfast.models.fan import FAN

# arguments with which timm's model families accept images of any size
_ANY_SIZE: tuple[dict[str, Any], ...] = (
    {"strict_img_size": False, "dynamic_mask": True},  # Swin
    {"strict_img_size": False},  # Swin V2
    {"dynamic_img_size": True},  # ViT and its kin
)


@dataclass(frozen=True)
class Maps:
    """The feature maps of an encoder, fine to coarse.

    Attributes:
        taps: indices of timm's ``feature_info``, or module names of our models.
        channels: number of channels of each map.
        strides: stride of each map in image pixels.
    """

    taps: tuple[int | str, ...]
    channels: tuple[int, ...]
    strides: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.taps)


def create_encoder(name: str, **options: Any) -> nn.Module:
    """A classifier by name, for any image size that its family supports; ``options`` override its defaults."""
    for attempt in () if "img_size" in options else _ANY_SIZE:
        try:
            return create_model(name, **{**attempt, **options})
        except TypeError:  # not an argument of this family
            continue
    try:
        return create_model(name, **options)
    except TypeError as error:
        raise HoldfastError(f"the options of encoder {name!r} must be its own arguments ({error})") from error


def choose_maps(model: nn.Module, indices: Sequence[int] | None = None) -> Maps:
    """The feature maps for a dense head, four if the model has them.

    FAN: those of the released segmentation backbones. Others: the last four stages, or four evenly spaced blocks of a
    model with a single scale; ``indices`` of timm's ``feature_info`` override them.
    """
    if isinstance(model, FAN) and indices is None:
        features = model.dense_features()
        taps: tuple[int | str, ...] = tuple(feature["module"] for feature in features)
    else:
        known = _known_features(model)
        if indices is not None and not all(-len(known) <= index < len(known) for index in indices):
            raise HoldfastError(f"maps must be indices of the model's {len(known)} features, got {list(indices)}")
        taps = tuple(index % len(known) for index in indices) if indices is not None else _spread_layers(known)
        features = [known[int(tap)] for tap in taps]
    strides = tuple(int(feature["reduction"]) for feature in features)
    return Maps(taps, tuple(int(feature["num_chs"]) for feature in features), strides)


def forward_maps(model: Any, images: Tensor, maps: Maps) -> list[Tensor]:
    """The feature maps of normalised images, each (B, C, H, W), without norms."""
    if isinstance(model, Backbone) and isinstance(maps.taps[0], str):
        return model.features_of(images, [str(tap) for tap in maps.taps])
    return model.forward_intermediates(images, indices=list(maps.taps), intermediates_only=True)


def prune_encoder(model: Any, maps: Maps) -> None:
    """Remove the head, final norm and later blocks that the maps do not need, so that every weight gets a gradient."""
    if isinstance(model, FAN) and isinstance(maps.taps[0], str):
        model.norm = nn.Identity()
        model.reset_classifier(0)
    else:
        model.prune_intermediate_layers([int(tap) for tap in maps.taps], prune_norm=True, prune_head=True)
        cfg: Any = getattr(model, "pretrained_cfg", None) or {}
        classifier = cfg.get("classifier") or ""
        for name in (classifier,) if isinstance(classifier, str) else classifier:
            if "." in name:  # a norm inside the head, as in ConvNeXt
                setattr(model, name.partition(".")[0], nn.Identity())


def _known_features(model: Any) -> list[dict[str, Any]]:
    features = getattr(model, "feature_info", None)
    if not features or not hasattr(model, "forward_intermediates"):
        raise HoldfastError(
            f"encoder must be a model with feature maps (forward_intermediates), got {type(model).__name__}"
        )
    return list(features)


def _spread_layers(features: list[dict[str, Any]]) -> tuple[int, ...]:
    """The last feature of each stage of a pyramid, or every quarter of equal blocks."""
    last_of_stage = {int(feature["reduction"]): index for index, feature in enumerate(features)}
    if len(features) <= 5:
        return tuple(range(len(features))[-4:])
    if len(last_of_stage) >= 4:
        return tuple(sorted(last_of_stage.values())[-4:])
    return tuple(round((quarter + 1) * len(features) / 4) - 1 for quarter in range(4))
