"""`Backbone`: the timm interface that our models share, so that each model file holds only its architecture."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, checkpoint
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from holdfast.errors import HoldfastError


class Wanted:
    """The requested intermediate features, collected during a forward pass."""

    def __init__(self, names: Sequence[str] = (), *, stop_early: bool = False) -> None:
        self.features: dict[str, Tensor | None] = dict.fromkeys(names)
        self.stop_early = stop_early

    def note(self, name: str, feature: Tensor, grid: tuple[int, int] | None = None) -> None:
        """Store a module's output if requested, as a map (B, C, H, W); ``grid`` is that of tokens (B, N, C)."""
        if name in self.features:
            self.features[name] = feature if grid is None else feature.transpose(1, 2).unflatten(2, grid)

    @property
    def complete(self) -> bool:
        """Whether all features are collected and the rest of the network need not run."""
        return self.stop_early and None not in self.features.values()


class Backbone(nn.Module):
    """A timm-style classifier. Subclasses set the attributes below, ``_forward_body`` and ``forward_head``."""

    pooling: str  # timm's global_pool: "token" or "avg"
    img_size: tuple[int, int]
    in_chans: int
    num_classes: int
    num_features: int
    feature_info: list[dict[str, Any]]
    norm: nn.Module
    head: nn.Module
    grad_checkpointing = False

    def _forward_body(self, x: Tensor, wanted: Wanted) -> Tensor:
        """Images → final tokens; passes the outputs of its modules to ``wanted``."""
        raise NotImplementedError

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Final tokens → logits (or the features before the head)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) → logits."""
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """Images → final tokens."""
        return self._forward_body(x, Wanted())

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """timm's interface for intermediate features; indices refer to ``feature_info``.

        Args:
            x: images (B, 3, H, W).
            indices: indices of the features; the last n if a number, all if None.
            norm: apply the final norm to the features that have its width.
            stop_early: stop after the last requested feature.
            output_fmt: ``NCHW``, ``NHWC`` or ``NLC``.
            intermediates_only: return the features without the final tokens.
        """
        take = take_indices(len(self.feature_info), indices)
        names = [self.feature_info[i]["module"] for i in take]
        wanted = Wanted(names, stop_early=stop_early and intermediates_only)
        x = self._forward_body(x, wanted)
        features = [self._finish_feature(f, norm, output_fmt) for f in wanted.features.values() if f is not None]
        return features if intermediates_only else (x, features)

    def features_of(self, x: Tensor, modules: Sequence[str]) -> list[Tensor]:
        """The outputs of modules by name, as maps (B, C, H, W) without a norm, for heads of other tasks."""
        wanted = Wanted(modules, stop_early=True)
        self._forward_body(x, wanted)
        missing = [name for name, feature in wanted.features.items() if feature is None]
        if missing:
            raise HoldfastError(f"{type(self).__name__} has no feature maps of {', '.join(missing)}")
        return [feature for feature in wanted.features.values() if feature is not None]

    def _finish_feature(self, feature: Tensor, norm: bool, output_fmt: str) -> Tensor:
        feature = feature.permute(0, 2, 3, 1)  # B H W C
        if norm and feature.shape[-1] == self.num_features:
            feature = self.norm(feature)
        if output_fmt == "NCHW":
            return feature.permute(0, 3, 1, 2).contiguous()
        if output_fmt == "NHWC":
            return feature.contiguous()
        if output_fmt == "NLC":
            return feature.flatten(1, 2)
        raise HoldfastError(f"output_fmt must be 'NCHW', 'NHWC' or 'NLC', got {output_fmt!r}")

    def get_classifier(self) -> nn.Module:
        """The classification head of the model."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a new one (0 classes: none)."""
        if global_pool not in (None, "", self.pooling):
            raise HoldfastError(f"global_pool must be {self.pooling!r} for {type(self).__name__}, got {global_pool!r}")
        reference = next(self.parameters())
        self.num_classes = num_classes
        self.head = self._new_head().to(reference.device, reference.dtype).train(self.training)

    def _new_head(self) -> nn.Module:
        head = nn.Linear(self.num_features, self.num_classes) if self.num_classes > 0 else nn.Identity()
        self._init_head(head)
        return head

    def _init_head(self, head: nn.Module) -> None:
        """Initialise a new head; PyTorch's default unless a model overrides it."""

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of storing them."""
        self.grad_checkpointing = enable

    def _run(self, block: nn.Module, *inputs: Any) -> Tensor:
        if self.grad_checkpointing and not torch.jit.is_scripting():
            return checkpoint(block, *inputs)
        return block(*inputs)


def take_indices(count: int, indices: int | Sequence[int] | None) -> list[int]:
    """Feature indices by timm's rules: all if None, the last n if a number; negative ones count from the end."""
    if not (indices is None or isinstance(indices, int)):
        indices = list(indices)
    return feature_take_indices(count, indices)[0]


def as_pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Height and width from a number or a pair."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def check_image(images: Tensor, *, channels: int, stride: int) -> None:
    """Raise a one-line error for images of the wrong shape, before a convolution raises a long one."""
    if images.ndim != 4:
        raise HoldfastError(f"images must have shape (batch, {channels}, height, width), got {tuple(images.shape)}")
    if images.shape[1] != channels:
        raise HoldfastError(f"images must have {channels} channels, got {images.shape[1]}")
    height, width = images.shape[-2:]
    if height % stride or width % stride:
        raise HoldfastError(f"image height and width must be divisible by {stride}, got {height}×{width}")


def check_heads(dim: int, heads: int) -> None:
    """Raise an error for a number of heads that does not divide the token width."""
    if heads < 1 or dim % heads:
        raise HoldfastError(f"num_heads must divide the width {dim}, got {heads}")


def imagenet_cfg(**overrides: Any) -> dict[str, Any]:
    """timm's data configuration of the published models (FAN's evaluation; others override it)."""
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": None,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "classifier": "head",
        **overrides,
    }


def nano_cfg(**overrides: Any) -> dict[str, Any]:
    """timm's data configuration of the 32-px models."""
    return imagenet_cfg(input_size=(3, 32, 32), num_classes=10, **overrides)


def build(
    model: Callable[..., nn.Module],
    variant: str,
    pretrained: bool,
    architecture: dict[str, Any],
    *,
    features: int | tuple[int, ...],
) -> Any:
    """Build a registered model; ``features`` are the default indices of ``features_only``."""
    architecture = dict(architecture)
    feature_cfg = {"out_indices": architecture.pop("out_indices", features), "feature_cls": "getter"}
    return build_model_with_cfg(model, variant, pretrained, feature_cfg=feature_cfg, **architecture)
