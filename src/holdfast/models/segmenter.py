"""``holdfast.segmenter``: semantic segmentation models of an encoder and a head.

FAN-Hybrid and TAP-FAN with SegFormer's head are the published models (FAN Table 9, TAP+ADL Table 4), with the same
keys, results and sizes. Any other encoder of ours or of timm can have the same heads.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import HoldfastError
from holdfast.models import model_names
from holdfast.models.backbone import imagenet_cfg
from holdfast.models.encoders import Maps, choose_maps, create_encoder, forward_maps, prune_encoder
from holdfast.models.fan import FAN, SIZES
from holdfast.models.heads import segmentation_head
from holdfast.models.sliding_window import Windowed, checked_window, slide
from holdfast.models.tap import add_tap

# as released: 768 for every FAN, 256 for SETR; ours: 128 for the narrow maps of the small encoder
_WIDTHS = {"segformer": 768, "setr": 256}
_SMALL_WIDTH = {"fan_mini_4_p4_hybrid": 128}
_DROPOUT = {"segformer": 0.1, "setr": 0.0}


class Segmenter(nn.Module):
    """A segmentation model: images → logits of every pixel."""

    task = "segmentation"

    def __init__(
        self,
        backbone: nn.Module,
        decode_head: nn.Module,
        *,
        maps: Maps,
        num_classes: int,
        sizes: str = "pad",
        window: tuple[int, int] | None = None,
        stride: int = 0,
        seen_at: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.window, self.stride, self.seen_at = window, stride, seen_at
        self.backbone, self.decode_head = backbone, decode_head
        self.maps, self.num_classes, self.sizes = maps, num_classes, sizes
        self.describe()

    def describe(self) -> None:
        """Set timm's configuration: the encoder's preprocessing, the head's classifier."""
        encoder: Any = getattr(self.backbone, "pretrained_cfg", None) or {}
        self.pretrained_cfg = self.default_cfg = {
            **imagenet_cfg(),
            **(encoder if isinstance(encoder, dict) else encoder.to_dict()),
            "architecture": "segmenter",
            "fixed_input_size": False,  # otherwise timm would build the encoder of a loaded run for one size
            "classifier": f"decode_head.{self.decode_head.classifier}",
            "num_classes": self.num_classes,
        }

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W) of any size → logits (B, classes, H, W); windows are for evaluation only."""
        if self.window is None or self.training:
            return self.whole(images)
        return slide(self.whole, images, window=self.window, stride=self.stride)

    def whole(self, images: Tensor) -> Tensor:
        """The logits of whole images, without windows."""
        if self.seen_at is None or images.shape[-2:] == self.seen_at:
            return self._logits_at_size(images)
        seen = F.interpolate(images, size=self.seen_at, mode="bilinear", antialias=True)
        return F.interpolate(self._logits_at_size(seen), size=images.shape[-2:], mode="bilinear", align_corners=False)

    def _logits_at_size(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if self.sizes == "pad":
            images = self._pad_images(images)
        logits = self.decode_head(self.features(images))
        size = images.shape[-2:]
        if logits.shape[-2:] != size:
            logits = F.interpolate(logits, size=size, mode="bilinear", align_corners=False)
        return logits[..., :height, :width]

    def features(self, images: Tensor) -> list[Tensor]:
        """The encoder's feature maps, fine to coarse."""
        return forward_maps(self.backbone, images, self.maps)

    def _pad_images(self, images: Tensor) -> Tensor:
        """Pad to the next multiple of the coarsest stride, right and below, with the mean colour as in training."""
        stride = max(self.maps.strides)
        missing = [-side % stride for side in images.shape[-2:]]
        return F.pad(images, (0, missing[1], 0, missing[0])) if any(missing) else images

    @property
    def num_features(self) -> int:
        """The number of channels before the classifier."""
        classifier: Any = self.get_classifier()
        return classifier.in_channels

    def get_classifier(self) -> nn.Module:
        """The last convolution of the head."""
        return self.decode_head.get_submodule(str(self.decode_head.classifier))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last convolution of the head."""
        old: Any = self.get_classifier()
        new = nn.Conv2d(old.in_channels, num_classes, 1).to(old.weight.device, old.weight.dtype)
        setattr(self.decode_head, str(self.decode_head.classifier), new)
        self.num_classes = num_classes

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the encoder's activations in the backward pass instead of storing them."""
        self.backbone.set_grad_checkpointing(enable)

    def no_weight_decay(self) -> set[str]:
        """The encoder's parameters without weight decay."""
        own: set[str] = getattr(self.backbone, "no_weight_decay", set)()
        return {f"backbone.{name}" for name in own}


def segmenter(
    encoder: str | nn.Module,
    head: str = "segformer",
    num_classes: int = 19,
    *,
    width: int | None = None,
    dropout: float | None = None,
    sizes: Literal["pad", "floor"] = "pad",
    maps: Sequence[int] | None = None,
    window: int | Sequence[int] | None = None,
    stride: int | None = None,
    seen_at: Sequence[int] | None = None,
    **options: Any,
) -> Segmenter:
    """Build a segmenter.

    Args:
        encoder: name of a model of Holdfast or timm, or a module, which becomes part of the segmenter without its
            classifier.
        head: ``segformer`` (Xie et al. 2021), or ``setr`` (Zheng et al. 2021), which FAN's paper uses with FAN-ViT.
        num_classes: number of classes.
        width: width of the head; 768 (SegFormer) or 256 (SETR) as released, 128 for our small encoder.
        dropout: probability of dropping a channel of the head in training.
        sizes: handling of sizes that the strides do not divide: ``pad`` the image and crop the logits, or ``floor`` the
            maps as the released FAN-Hybrid, which ignores the remaining pixels.
        maps: indices of the encoder's features for the head, fine to coarse.
        window: height and width of the sliding window in evaluation; None for whole images.
        stride: stride of the sliding window in pixels; by default three quarters of the window.
        seen_at: height and width that images are resized to inside; the logits have the images' original size. None
            for no resizing.
        **options: arguments of the encoder, such as ``pretrained``, ``drop_path_rate``, ``img_size``. FAN gets the
            un-floored positional encoding of the released backbones; set ``pos_floor=True`` for its ImageNet weights.
    """
    if num_classes < 1:
        raise HoldfastError(f"num_classes must be at least 1, got {num_classes}")
    if sizes not in ("pad", "floor"):
        raise HoldfastError(f"sizes must be 'pad' or 'floor', got {sizes!r}")
    backbone, small = _encoder(encoder, options)
    chosen = choose_maps(backbone, maps)
    prune_encoder(backbone, chosen)
    if sizes == "floor":
        if not isinstance(backbone, FAN):
            raise HoldfastError(f"sizes must be 'pad' for {type(backbone).__name__}; only FAN supports 'floor'")
        backbone.any_size = True
    decode_head = segmentation_head(
        head,
        chosen.channels,
        num_classes,
        width=width or small or _WIDTHS.get(head, 0),
        dropout=_DROPOUT.get(head, 0.0) if dropout is None else dropout,
    )
    frame, step = (None, 0) if window is None else checked_window(window, stride)
    inside = None if seen_at is None else (int(seen_at[0]), int(seen_at[1]))
    return Segmenter(
        backbone,
        decode_head,
        maps=chosen,
        num_classes=num_classes,
        sizes=sizes,
        window=frame,
        stride=step,
        seen_at=inside,
    )


def with_sliding_window(model: nn.Module, window: int | Sequence[int], stride: int | None = None) -> nn.Module:
    """The model with sliding-window inference; replaces a segmenter's own windows."""
    if not isinstance(model, Segmenter):
        return Windowed(model, window, stride)
    other = copy.copy(model)
    other.window, other.stride = checked_window(window, stride)
    return other


def _encoder(encoder: str | nn.Module, options: dict[str, Any]) -> tuple[nn.Module, int | None]:
    if isinstance(encoder, nn.Module):
        if options:
            raise HoldfastError(f"options are for an encoder given by name, got {', '.join(options)} with a module")
        return encoder, None
    name = encoder.removeprefix("tap_")
    positions = {"pos_floor": False} if name in SIZES else {}
    if encoder in model_names():
        return create_encoder(encoder, **{**positions, **options}), _SMALL_WIDTH.get(name)
    pooling = {
        key: options.pop(key) for key in ("tap", "tap_branches") if key in options
    }  # timm's models have no such arguments
    model = create_encoder(encoder, **options)
    if pooling.get("tap"):
        add_tap(model, pooling.get("tap_branches", 4), kind=pooling["tap"])
    return model, None


# ---------------------------------------------------------------------- entry point

default_cfgs = generate_default_cfgs({"segmenter": imagenet_cfg(num_classes=19, classifier="decode_head.linear_pred")})


def _from_timm(encoder: str, *, in_chans: int = 3, **rest: Any) -> Segmenter:
    if in_chans != 3:
        rest["in_chans"] = in_chans
    return segmenter(encoder, **rest)


def _entry_point(pretrained: bool = False, **kwargs: Any) -> Segmenter:
    """Entry point of ``timm.create_model``, which loads finished runs; arguments as in `segmenter`."""
    model = build_model_with_cfg(_from_timm, "segmenter", pretrained, **kwargs)
    if not pretrained:
        model.describe()
    return model


_entry_point.__name__ = _entry_point.__qualname__ = "segmenter"
register_model(_entry_point)
