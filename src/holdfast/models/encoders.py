"""Any classifier as an encoder of maps: which of its features a dense task takes, at any image size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.models import create_model
from holdfast.models.backbone import Backbone
from holdfast.models.fan import FAN

# arguments by which timm's families accept images of other sizes than they were built for
_ANY_SIZE: tuple[dict[str, Any], ...] = (
    {"strict_img_size": False, "dynamic_mask": True},  # Swin
    {"strict_img_size": False},  # Swin V2
    {"dynamic_img_size": True},  # ViT and its kin
)


@dataclass(frozen=True)
class Maps:
    """Which maps an encoder gives, fine to coarse.

    Attributes:
        taps: numbers in timm's ``feature_info``, or names of modules of ours.
        channels: of every map.
        strides: image pixels per pixel of every map.
    """

    taps: tuple[int | str, ...]
    channels: tuple[int, ...]
    strides: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.taps)


def create_encoder(name: str, **options: Any) -> nn.Module:
    """A classifier by name that takes any image size its family can; ``options`` are the model's own and win."""
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
    """The maps that a dense head gets, four where the model has them.

    FAN: those of the released segmentation backbones. Others: the last four stages, or four blocks evenly spread over a
    model of one scale; ``indices`` of timm's ``feature_info`` override it.
    """
    if isinstance(model, FAN) and indices is None:
        features = model.dense_features()
        taps: tuple[int | str, ...] = tuple(feature["module"] for feature in features)
    else:
        known = _known_features(model)
        if indices is not None and not all(-len(known) <= index < len(known) for index in indices):
            raise HoldfastError(f"maps must be numbers of the model's {len(known)} features, got {list(indices)}")
        taps = tuple(index % len(known) for index in indices) if indices is not None else _spread_layers(known)
        features = [known[int(tap)] for tap in taps]
    strides = tuple(int(feature["reduction"]) for feature in features)
    return Maps(taps, tuple(int(feature["num_chs"]) for feature in features), strides)


def forward_maps(model: Any, images: Tensor, maps: Maps) -> list[Tensor]:
    """The maps of normalised images, each (B, C, H, W), without norms."""
    if isinstance(model, Backbone) and isinstance(maps.taps[0], str):
        return model.features_of(images, [str(tap) for tap in maps.taps])
    return model.forward_intermediates(images, indices=list(maps.taps), intermediates_only=True)


def prune_encoder(model: Any, maps: Maps) -> None:
    """Take away what the maps do not need: head, final norm and later blocks, so that every weight learns."""
    if isinstance(model, FAN) and isinstance(maps.taps[0], str):
        model.norm = nn.Identity()
        model.reset_classifier(0)
    else:
        model.prune_intermediate_layers([int(tap) for tap in maps.taps], prune_norm=True, prune_head=True)
        cfg: Any = getattr(model, "pretrained_cfg", None) or {}
        classifier = cfg.get("classifier") or ""
        for name in (classifier,) if isinstance(classifier, str) else classifier:
            if "." in name:  # a head with a norm of its own, as in ConvNeXt
                setattr(model, name.partition(".")[0], nn.Identity())


def _known_features(model: Any) -> list[dict[str, Any]]:
    features = getattr(model, "feature_info", None)
    if not features or not hasattr(model, "forward_intermediates"):
        raise HoldfastError(
            f"encoder must be a model with feature maps (forward_intermediates), got {type(model).__name__}"
        )
    return list(features)


def _spread_layers(features: list[dict[str, Any]]) -> tuple[int, ...]:
    """Of a pyramid the last of each stage, of equal blocks every quarter."""
    last_of_stage = {int(feature["reduction"]): index for index, feature in enumerate(features)}
    if len(features) <= 5:
        return tuple(range(len(features))[-4:])
    if len(last_of_stage) >= 4:
        return tuple(sorted(last_of_stage.values())[-4:])
    return tuple(round((quarter + 1) * len(features) / 4) - 1 for quarter in range(4))
