"""What a reader gets to know of one call of an attention module, and what it may ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Embedded:
    """What was seen when a model's images became patches: how many images, their grid, and whether gradients flow."""

    images: int
    grid: tuple[int, int] | None
    with_gradients: bool


@dataclass(frozen=True)
class Call:
    """What is known when an attention module has run.

    Attributes:
        model: the watched model's name, for sentences.
        module: the attention.
        block: what it is part of.
        owner: the nearest module around it that embeds patches, if any.
        inputs: what the attention was given, by name.
        block_inputs: what its block was given.
        parts: the outputs of the parts that its reader listens to.
        embedded: what the owner's patch embedding was given in this pass.
    """

    model: str
    module: Any
    block: Any
    owner: Any
    inputs: dict[str, Any]
    block_inputs: tuple[Any, ...]
    parts: dict[str, Tensor]
    embedded: Embedded | None

    def split(self, part: str, count: int) -> tuple[Tensor, ...]:
        """A fused projection's output (B, N, count · h · d) as ``count`` tensors (B, h, N, d)."""
        return self.apart(self.parts[part], count)

    def apart(self, projected: Tensor, count: int = 1) -> tuple[Tensor, ...]:
        """(B, N, count · h · d) as ``count`` tensors (B, h, N, d)."""
        heads = self.module.num_heads
        return projected.unflatten(-1, (count, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def patches(self, q: Tensor, *, prefix: int) -> dict[str, Any]:
        """The grid of the image's patches and the tokens in front of it, if they are what the queries are."""
        if self.embedded is None or self.embedded.grid is None:
            raise HoldfastError(
                f"cannot watch {self.model}: its blocks ran without its patch embedding, so the tokens' grid is unknown"
            )
        height, width = self.embedded.grid
        if len(q) != self.embedded.images or q.shape[-2] != prefix + height * width:
            raise HoldfastError(
                f"cannot watch {self.model}: it attends to {q.shape[-2]} tokens, which are not the {height}×{width} "
                f"patches of an image and {prefix} more; watch it without patch dropout and masks"
            )
        return {"grid": (height, width), "prefix": prefix}


def embeds_patches(module: nn.Module) -> bool:
    """Whether a module's tokens are the patches of a timm embedding, with so many others in front."""
    return hasattr(module, "num_prefix_tokens") and has_patch_grid(module)


def has_patch_grid(module: nn.Module) -> bool:
    """Whether a module's patch embedding says how many rows and columns of patches an image has."""
    return hasattr(getattr(module, "patch_embed", None), "dynamic_feat_size")


def anywhere(module: nn.Module | None) -> bool:
    """For attention that tells its own grid, wherever it stands."""
    return True


@dataclass(frozen=True)
class Reader:
    """How one kind of attention module is read.

    Attributes:
        read: what `AttentionHandle` is made of, from a call.
        parts: the parts of the module to listen to.
        inside: whether a module that embeds patches is one whose tokens are known; other owners are refused.
    """

    read: Callable[[Call], dict[str, Any]]
    parts: tuple[str, ...] = ()
    inside: Callable[[Any], bool] = anywhere
