"""Noise decay and significant eigenvalues, block by block.

FAN, Sec. 3.1 and Fig. 3: how much of a Gaussian perturbation of the image is left in the features of each block,
beside the number of significant eigenvalues of the tokens' affinity S = Z Zᵀ, an estimate of the number of groups.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from timm.models.swin_transformer import SwinTransformerBlock
from torch import Tensor, nn

from holdfast.attention import attention_names
from holdfast.errors import HoldfastError, nearest
from holdfast.models.fan_swin import FANSwinBlock
from holdfast.models.wrappers import without_wrappers

CHANNELS_LAST = (SwinTransformerBlock, FANSwinBlock)  # modules whose 4-D output is (B, H, W, C)


def relative_change(clean: Tensor, noisy: Tensor) -> Tensor:
    """‖noisy − clean‖ / ‖clean‖ of every image, over all other axes, (B,)."""
    if clean.shape != noisy.shape:
        raise HoldfastError(f"clean and noisy features must be alike, got {tuple(clean.shape)}, {tuple(noisy.shape)}")
    clean, noisy = clean.flatten(1).double(), noisy.flatten(1).double()
    length = clean.norm(dim=1)
    return ((noisy - clean).norm(dim=1) / length.clamp_min(torch.finfo(length.dtype).tiny)).float()


def significant_eigenvalues(tokens: Tensor, *, epsilon: float) -> Tensor:
    """How many eigenvalues of Z Zᵀ exceed ε · the largest, (B, N, C) → (B,).

    The eigenvalues of Z Zᵀ that are not zero are those of Zᵀ Z: the smaller of the two is decomposed.
    """
    if not 0 < epsilon < 1:
        raise HoldfastError(f"epsilon must lie between 0 and 1, got {epsilon}")
    z = tokens.detach().double()
    gram = z.mT @ z if z.shape[1] > z.shape[2] else z @ z.mT
    values = torch.linalg.eigvalsh(gram)  # ascending
    return (values > epsilon * values[:, -1:]).sum(dim=1)


def as_tokens(features: Tensor, *, channels_last: bool = False) -> tuple[Tensor, tuple[int, int] | None]:
    """A block's output as (B, N, C), and its grid if it is a map (of 4 axes)."""
    if features.ndim == 3:
        return features, None
    if features.ndim != 4:
        raise HoldfastError(
            f"a module's output must have 3 or 4 axes, got {tuple(features.shape)}; choose other modules"
        )
    tokens = features if channels_last else features.movedim(1, -1)  # B H W C
    return tokens.flatten(1, 2), (tokens.shape[1], tokens.shape[2])


@contextmanager
def outputs_of(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Keep the outputs of named modules of every forward pass inside the ``with``; the last pass is kept."""
    modules = dict(without_wrappers(model).named_modules())
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
    """Refuse names that are no modules of the model."""
    for name in names:
        if not name or name not in modules:
            raise HoldfastError(f"modules must name parts of the model, got {name!r}{nearest(name, modules)}")


def first_tensor(output: Any) -> Tensor:
    """A module's features: its output, or the first tensor of a tuple (blocks that also return the grid)."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    raise HoldfastError(f"a module must return a tensor to be measured, got {type(output).__name__}")


def default_modules(model: nn.Module) -> list[str]:
    """The blocks of a model, first to last: those with attention, else residual blocks, else stages, else children."""
    model = without_wrappers(model)
    return (
        [name.rpartition(".")[0] for name in attention_names(model) if "." in name]
        or _residual_blocks(model)
        or [name for name, _ in model.named_children()]
    )


def _residual_blocks(model: nn.Module) -> list[str]:
    """What timm calls the stages' blocks: the direct children of layer1…, stages.0.blocks, blocks.0…"""
    info = [entry["module"] for entry in getattr(model, "feature_info", []) if isinstance(entry, dict)]
    blocks = []
    for stage in info:
        module = dict(model.named_modules()).get(stage)
        children = list(getattr(module, "blocks", module).named_children()) if module is not None else []
        prefix = f"{stage}.blocks" if hasattr(module, "blocks") else stage
        numbered = [f"{prefix}.{name}" for name, _ in children if name.isdigit()]
        blocks += numbered or ([stage] if module is not None else [])
    return blocks
