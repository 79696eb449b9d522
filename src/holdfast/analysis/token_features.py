"""Block outputs as tokens on a grid: infers the channel axis, the prefix tokens and the order of tokens."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.attention import AttentionHandle, attention_names
from holdfast.errors import HoldfastError, nearest
from holdfast.runtime.device import unwrap_model

Grid = tuple[int, int]


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """Layout of a module's output.

    Attributes:
        channels_last: whether a map of 4 axes is (B, H, W, C).
        prefix: number of class and register tokens at the start of a sequence (B, N, C).
        grid: rows and columns of the tokens; None if unknown.
        order: position, row by row, of each token of a sequence if the order differs.
    """

    channels_last: bool = False
    prefix: int = 0
    grid: Grid | None = None
    order: Tensor | None = None

    def tokens(self, features: Tensor) -> Tensor:
        """The tokens on the grid, row by row, (B, N, C); without class and register tokens."""
        if features.ndim == 4:
            return (features if self.channels_last else features.movedim(1, -1)).flatten(1, 2)
        tokens = features[:, self.prefix :]
        return tokens if self.order is None else tokens[:, self.order.argsort().to(tokens.device)]


def layouts(
    model: nn.Module, outputs: Mapping[str, Tensor], handles: Sequence[AttentionHandle], size: Grid
) -> dict[str, TokenLayout]:
    """The layout of each named output, inferred from the model, its attention and the shapes of one pass.

    Args:
        model: the model.
        outputs: outputs by module name.
        handles: attention handles of the same pass; empty if `watch` does not support the model.
        size: height and width of the images.
    """
    found = known_layouts(model, outputs, handles, size)
    for name, output in outputs.items():
        if output.ndim not in (3, 4):
            raise HoldfastError(
                f"a module's output must have 3 or 4 axes, got {tuple(output.shape)}; choose other modules"
            )
        if name not in found:
            raise HoldfastError(
                f"the channel axis of {name}'s output in {type(model).__name__} is ambiguous; use images of another "
                "size (--size), or choose other modules"
            )
    return found


def known_layouts(
    model: nn.Module, outputs: Mapping[str, Tensor], handles: Sequence[AttentionHandle], size: Grid
) -> dict[str, TokenLayout]:
    """The layouts of the outputs whose axes are not ambiguous."""
    blocks = {handle.name.rpartition(".")[0]: handle for handle in handles}
    last = {name: _channels_last(output, size) for name, output in outputs.items() if output.ndim == 4}
    found = {}
    for name, output in outputs.items():
        if output.ndim == 3:
            found[name] = _of_sequence(model, name, output.shape[1], blocks.get(name), size)
        elif output.ndim == 4 and (answer := _like_others(model, name, last)) is not None:
            found[name] = _of_map(output, answer)
    return found


def _of_map(output: Tensor, channels_last: bool) -> TokenLayout:
    height, width = output.shape[1:3] if channels_last else output.shape[2:4]
    return TokenLayout(channels_last, grid=(int(height), int(width)))


def _channels_last(output: Tensor, size: Grid) -> bool | None:
    """Whether the axes with the image's aspect ratio, exactly or after rounding, come first; None if ambiguous."""
    for rounding in (0, max(size) // 2, max(size)):
        first, last = (_proportions(output.shape[at : at + 2], size, rounding) for at in (2, 1))
        if first != last:
            return last
    return None


def _proportions(grid: Sequence[int], size: Grid, rounding: int) -> bool:
    off = abs(grid[0] * size[1] - grid[1] * size[0])
    return off <= rounding and grid[0] <= size[0] and grid[1] <= size[1]


def _like_others(model: nn.Module, name: str, last: Mapping[str, bool | None]) -> bool | None:
    """The layout from an output's own shape, else from those of modules of the same class."""
    if last[name] is not None:
        return last[name]
    kind = type(model.get_submodule(name))
    known = {answer for other, answer in last.items() if type(model.get_submodule(other)) is kind} - {None}
    return known.pop() if len(known) == 1 else None


def _of_sequence(model: nn.Module, name: str, count: int, handle: AttentionHandle | None, size: Grid) -> TokenLayout:
    """The layout of a sequence from the block's attention, else from the model's number of prefix tokens."""
    if handle is not None and (known := _of_attention(handle, count)) is not None:
        return known
    prefix = _prefix(model, name)
    grid = find_grid(count - prefix, size)
    return TokenLayout(prefix=prefix if grid else 0, grid=grid)


def _of_attention(handle: AttentionHandle, count: int) -> TokenLayout | None:
    grid = handle.image_grid or handle.grid
    if grid is not None and handle.query_grid is not None and handle.grid is not None:  # one output per query
        grid = tuple(a * b // c for a, b, c in zip(grid, handle.query_grid, handle.grid, strict=True))  # type: ignore[assignment]
    if grid is None or handle.prefix + grid[0] * grid[1] != count:
        return None
    return TokenLayout(prefix=handle.prefix, grid=grid, order=handle.unrolled)


def _prefix(model: nn.Module, name: str) -> int:
    """The number of prefix tokens of the nearest enclosing module that has any; 0 by default."""
    while name:
        name = name.rpartition(".")[0]
        around = model.get_submodule(name)
        if isinstance(prefix := getattr(around, "num_prefix_tokens", None), int):
            return prefix
        if isinstance(getattr(around, "cls_token", None), Tensor):
            return 1
    return 0


def find_grid(count: int, size: Grid) -> Grid | None:
    """Rows and columns of a number of tokens with the image's aspect ratio; None if there are none."""
    rows = round((count * size[0] / size[1]) ** 0.5) if count > 0 else 0
    columns = rows * size[1] // size[0]
    return (rows, columns) if rows and rows * columns == count and rows * size[1] == columns * size[0] else None


# ---------------------------------------------------------------------------------------------- which modules


@contextmanager
def outputs_of(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Record the outputs of named modules in forward passes inside the ``with``; the last pass is kept."""
    modules = dict(unwrap_model(model).named_modules())
    check_names(modules, names)
    kept: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            kept[name] = first_tensor(output)

        return hook

    hooks = [modules[name].register_forward_hook(keep(name)) for name in names]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def check_names(modules: Mapping[str, nn.Module], names: Sequence[str]) -> None:
    """Raise an error for names that are not modules of the model."""
    for name in names:
        if not name or name not in modules:
            raise HoldfastError(f"modules must name parts of the model, got {name!r}{nearest(name, modules)}")


def check_reached(seen: Mapping[str, Tensor], names: Sequence[str]) -> None:
    """Raise an error for modules that the forward pass does not call."""
    for name in names:
        if name not in seen:
            raise HoldfastError(f"modules must take part in the forward pass, but {name!r} is never called")


def first_tensor(output: Any) -> Tensor:
    """A module's features: its output, or the first tensor of a tuple (blocks that also return the grid) or mapping."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):  # of transformers and of torchvision's segmenters
        output = list(output.values())
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    raise HoldfastError(f"a module must return a tensor to be measured, got {type(output).__name__}")


def default_modules(model: nn.Module) -> list[str]:
    """The blocks of a model, first to last: those with attention, else residual blocks, else stages, else children."""
    model = unwrap_model(model)
    return (
        [name.rpartition(".")[0] for name in attention_names(model) if "." in name]
        or _residual_blocks(model)
        or [name for name, _ in model.named_children()]
    )


def _residual_blocks(model: nn.Module) -> list[str]:
    """The blocks of timm's stages: the direct children of layer1…, stages.0.blocks, blocks.0…"""
    info = [entry["module"] for entry in getattr(model, "feature_info", []) if isinstance(entry, dict)]
    blocks = []
    for stage in info:
        module = dict(model.named_modules()).get(stage)
        children = list(getattr(module, "blocks", module).named_children()) if module is not None else []
        prefix = f"{stage}.blocks" if hasattr(module, "blocks") else stage
        numbered = [f"{prefix}.{name}" for name, _ in children if name.isdigit()]
        blocks += numbered or ([stage] if module is not None else [])
    return blocks


def unit_mean(matrix: Tensor) -> Tensor:
    """Scale a matrix to mean 1, because a solver's accuracy depends on the scale."""
    return matrix / matrix.mean().clamp_min(torch.finfo(matrix.dtype).tiny)
