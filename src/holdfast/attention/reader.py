"""`Call` and `Reader`: one recorded call of an attention module, and the function that reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from holdfast.errors import HoldfastError


@dataclass(frozen=True)
class Embedded:
    """The last call of a patch embedding: number of images, their grid, and whether gradients are enabled."""

    images: int
    grid: tuple[int, int] | None
    with_gradients: bool


@dataclass(frozen=True)
class Call:
    """One call of an attention module.

    Attributes:
        model: the watched model's name, for error messages.
        module: the attention module.
        block: the block that contains it.
        owner: the nearest enclosing module with a patch embedding, if any.
        inputs: the arguments of the attention, by name.
        block_inputs: the arguments of its block.
        parts: the outputs of the submodules that its reader needs.
        embedded: the last call of the owner's patch embedding.
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
        """Split heads: (B, N, count · h · d) → ``count`` tensors (B, h, N, d)."""
        heads = self.module.num_heads
        return projected.unflatten(-1, (count, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def patches(self, q: Tensor, *, prefix: int) -> dict[str, Any]:
        """The grid of patches and the number of prefix tokens; raises an error if the queries do not match them."""
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
    """Whether a module's tokens are prefix tokens and the patches of a timm embedding."""
    return hasattr(module, "num_prefix_tokens") and has_patch_grid(module)


def has_patch_grid(module: nn.Module) -> bool:
    """Whether a module's patch embedding has a grid size."""
    return hasattr(getattr(module, "patch_embed", None), "dynamic_feat_size")


def anywhere(module: nn.Module | None) -> bool:
    """True for any owner: for attention that knows its own grid."""
    return True


@dataclass(frozen=True)
class Reader:
    """Reader of one kind of attention module.

    Attributes:
        read: function from a call to the fields of an `AttentionHandle`.
        parts: the submodules whose outputs are recorded.
        inside: whether the reader knows the tokens of an owner; other owners raise an error.
    """

    read: Callable[[Call], dict[str, Any]]
    parts: tuple[str, ...] = ()
    inside: Callable[[Any], bool] = anywhere
