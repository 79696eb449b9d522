"""Look inside any model: ``with watch(model) as seen: model(x)``.

Watching changes nothing in the model. It listens to the projections that make queries and keys, and computes attention
maps from them only if somebody asks; the model itself goes on using its fused attention.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from timm.models.cait import ClassAttn
from timm.models.swin_transformer import WindowAttention
from timm.models.vision_transformer import Attention as ViTAttention
from timm.models.xcit import XCA
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from holdfast.errors import HoldfastError
from holdfast.layers.channel_attention import EfficientChannelAttention
from holdfast.layers.tap import TokenAwarePooling
from holdfast.models.fan import TokenAttention
from holdfast.models.rvt import RVTAttention
from holdfast.models.wrappers import without_wrappers

Kind = Literal["token", "window", "channel", "class"]


@dataclass(frozen=True, eq=False)
class AttentionHandle:
    """One block's attention, as the ingredients of its maps.

    Attributes:
        name: the attention module's path in the model.
        kind: ``token`` (all tokens of an image), ``window`` (tokens of a window; windows are in the batch axis),
            ``channel`` (channels attend to channels, XCiT) or ``class`` (the class token reads the others).
        q: queries, (B, h, N, d); of a channel kind (B, h, d, N), normalised.
        k: keys, likewise.
        scale: what multiplies q·kᵀ.
        grid: rows and columns of the tokens (of one window for ``window``), prefix tokens not counted.
        prefix: class and register tokens in front of the grid.
        windows: windows per column and row of the image, for ``window``.
        multiplier: what the scaled scores are multiplied by before the softmax (RVT's PAAS), broadcastable.
        bias: what is then added (relative positions, shift masks), broadcastable.
    """

    name: str
    kind: Kind
    q: Tensor
    k: Tensor
    scale: float
    grid: tuple[int, int] | None = None
    prefix: int = 0
    windows: tuple[int, int] | None = None
    multiplier: Tensor | None = None
    bias: Tensor | None = None

    def maps(self) -> Tensor:
        """Attention after the softmax and before any dropout, (B, h, queries, keys); gradients flow."""
        return self.rows_of(slice(None))

    def rows(self, chunk: int = 256) -> Iterator[Tensor]:
        """The maps of ``chunk`` queries at a time, in order: for sequences whose whole map is too large."""
        if chunk < 1:
            raise HoldfastError(f"chunk must be at least 1, got {chunk}")
        for start in range(0, self.q.shape[-2], chunk):
            yield self.rows_of(slice(start, start + chunk))

    def rows_of(self, rows: slice) -> Tensor:
        """The maps of some queries, (B, h, rows, keys)."""
        scores = self.q[..., rows, :] @ self.k.transpose(-2, -1) * self.scale
        if self.multiplier is not None:
            scores = scores * self.multiplier[..., rows, :]
        if self.bias is not None:
            scores = scores + self.bias[..., rows, :]
        return scores.softmax(dim=-1)


class Seen:
    """What the last forward pass showed, in the order of the blocks."""

    def __init__(self) -> None:
        self.features: list[Tensor] = []
        """The blocks' outputs, as the blocks return them."""
        self._unread: list[Callable[[], AttentionHandle]] = []
        self._handles: list[AttentionHandle] = []
        self._channel_calls: list[tuple[EfficientChannelAttention, Tensor]] = []
        self._pool_calls: list[tuple[TokenAwarePooling, tuple[Any, ...]]] = []

    @property
    def attention(self) -> list[AttentionHandle]:
        """One handle per block."""
        return [handle for handle in self._read() if handle.kind != "class"]

    @property
    def class_attention(self) -> list[AttentionHandle]:
        """The handles of class-attention blocks (FAN, XCiT)."""
        return [handle for handle in self._read() if handle.kind == "class"]

    def channel_gates(self) -> list[Tensor]:
        """FAN's channel gates, (B, C) per block: gates, not attention over tokens."""
        return [channel.gate(x) for channel, x in self._channel_calls]

    def tap_weights(self) -> list[Tensor]:
        """How much every token takes from every dilation, (B, branches, H, W) per block with TAP."""
        return [pool.weights(*inputs) for pool, inputs in self._pool_calls]

    def _read(self) -> list[AttentionHandle]:
        # not while the model runs: gradient checkpointing allows no arithmetic of ours inside a block
        while self._unread:
            self._handles.append(self._unread.pop(0)())
        return self._handles

    def _forget(self) -> None:
        for seen in (self.features, self._unread, self._handles, self._channel_calls, self._pool_calls):
            seen.clear()


@contextmanager
def watch(model: nn.Module) -> Iterator[Seen]:
    """Record attention and block outputs of every forward pass inside the ``with``; the last pass is kept.

    For Holdfast's models and timm's ViT, DeiT, Swin and XCiT, also wrapped for data-parallel training and under
    gradient checkpointing. The hooks are gone when the ``with`` ends, also after an exception.
    """
    model = _watchable(model)
    readers = [
        (name, module, READERS[type(module)]) for name, module in model.named_modules() if type(module) in READERS
    ]
    if not readers:
        raise HoldfastError(
            f"cannot watch {type(model).__name__}: no attention found that we can read "
            "(Holdfast's models and timm's ViT, DeiT, Swin and XCiT are supported)"
        )
    recorder = _Recorder(model)
    try:
        for name, module, reader in readers:
            recorder.listen(name, module, reader)
        yield recorder.seen
        recorder.seen._read()
    finally:
        recorder.stop()


@dataclass
class _Call:
    """What is known when an attention module has run: its own inputs, those of its block, its parts' outputs."""

    module: Any
    inputs: dict[str, Any]
    block_inputs: tuple[Any, ...]
    parts: dict[str, Tensor]
    image_grid: tuple[int, int] | None

    def split(self, part: str, count: int) -> tuple[Tensor, ...]:
        """A fused projection's output (B, N, count · h · d) as ``count`` tensors (B, h, N, d)."""
        heads = self.module.num_heads
        return self.parts[part].unflatten(-1, (count, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


@dataclass(frozen=True)
class _Reader:
    """Which parts of an attention module to listen to, and how to read a handle from a call."""

    parts: tuple[str, ...]
    read: Callable[[_Call], dict[str, Any]]


def _read_handle(name: str, reader: _Reader, call: _Call, with_gradients: bool) -> AttentionHandle:
    with torch.set_grad_enabled(with_gradients):
        return AttentionHandle(name=name, **reader.read(call))


class _Recorder:
    """Owns the hooks and fills ``seen``."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.seen = Seen()
        self._hooks: list[RemovableHandle] = []
        self._block_inputs: dict[str, tuple[Any, ...]] = {}
        self._image_grid: tuple[int, int] | None = None
        if hasattr(getattr(model, "patch_embed", None), "dynamic_feat_size"):
            self._hook(model.patch_embed.register_forward_pre_hook(self._note_image))

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def listen(self, name: str, module: nn.Module, reader: _Reader) -> None:
        parts: dict[str, Tensor] = {}
        for part in filter(partial(hasattr, module), reader.parts):
            self._hook(getattr(module, part).register_forward_hook(_keep_output(parts, part)))

        block = self.model.get_submodule(name.rpartition(".")[0])

        def begin(block: nn.Module, args: tuple[Any, ...]) -> None:
            if _in_backward():
                return
            if name in self._block_inputs:  # the block runs again: a new forward pass has begun
                self._block_inputs.clear()
                self.seen._forget()
            self._block_inputs[name] = args

        def read(attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if _in_backward():
                return
            names = ("x", "mask") if isinstance(attention, WindowAttention) else ("x", "attn_mask", "is_causal")
            inputs = {**dict(zip(names, args, strict=False)), **kwargs}
            call = _Call(attention, inputs, self._block_inputs[name], dict(parts), self._image_grid)
            self.seen._unread.append(partial(_read_handle, name, reader, call, torch.is_grad_enabled()))
            parts.clear()

        def note_output(block: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen.features.append(output)

        def note_gate(channel: EfficientChannelAttention, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen._channel_calls.append((channel, args[0]))

        def note_pool(pool: TokenAwarePooling, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen._pool_calls.append((pool, args))

        self._hook(block.register_forward_pre_hook(begin))
        self._hook(module.register_forward_hook(read, with_kwargs=True))
        if not isinstance(module, ClassAttn):
            self._hook(block.register_forward_hook(note_output))
        if isinstance(getattr(block, "mlp", None), EfficientChannelAttention):
            self._hook(block.mlp.register_forward_hook(note_gate))
        if isinstance(getattr(block, "dilation_predictor", None), TokenAwarePooling):
            self._hook(block.dilation_predictor.register_forward_hook(note_pool))

    def _hook(self, hook: RemovableHandle) -> None:
        self._hooks.append(hook)

    def _note_image(self, patch_embed: nn.Module, args: tuple[Tensor, ...]) -> None:
        height, width = patch_embed.dynamic_feat_size(args[0].shape[-2:])
        self._image_grid = (int(height), int(width))


# ---------------------------------------------------------------------- how each kind of attention is read


def _read_fan(call: _Call) -> dict[str, Any]:
    if call.module.conv_qkv:
        q, k, _ = call.split("fc", 3)
    else:
        q, k = call.split("q", 1)[0], call.split("kv", 2)[0]
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "grid": tuple(call.block_inputs[1:3])}


def _read_rvt(call: _Call) -> dict[str, Any]:
    q, k, _ = call.split("patch_reasoning" if call.module.conv_qkv else "qkv", 3)
    grid = tuple(call.block_inputs[1:3])
    multiplier = call.module.multiplier(grid)
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "grid": grid, "multiplier": multiplier}


def _read_vit(call: _Call) -> dict[str, Any]:
    q, k = call.parts["q_norm"], call.parts["k_norm"]
    grid = call.image_grid
    prefix = q.shape[-2] - grid[0] * grid[1] if grid else 0
    bias = _additive_mask(call.inputs, q)
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "grid": grid, "prefix": prefix, "bias": bias}


def _read_swin(call: _Call) -> dict[str, Any]:
    q, k, _ = call.split("qkv", 3)
    window = call.module.window_size
    bias = call.module._get_rel_pos_bias()  # 1 h N N
    if (mask := call.inputs.get("mask")) is not None:  # windows N N, repeated for every image
        bias = (bias + mask.unsqueeze(1)).repeat(len(q) // len(mask), 1, 1, 1)
    height, width = call.block_inputs[0].shape[1:3]
    windows = (-(-height // window[0]), -(-width // window[1]))
    return {
        "kind": "window",
        "q": q,
        "k": k,
        "scale": call.module.scale,
        "grid": tuple(window),
        "windows": windows,
        "bias": bias,
    }


def _read_xcit(call: _Call) -> dict[str, Any]:
    q, k, _ = (part.transpose(-2, -1) for part in call.split("qkv", 3))  # B h d N
    q = nn.functional.normalize(q, dim=-1) * call.module.temperature
    k = nn.functional.normalize(k, dim=-1)
    return {"kind": "channel", "q": q, "k": k, "scale": 1.0, "grid": tuple(call.block_inputs[1:3])}


def _read_class_attention(call: _Call) -> dict[str, Any]:
    heads = call.module.num_heads
    q = call.parts["q"].unflatten(-1, (heads, 1, -1))  # B h 1 d
    k = call.split("k", 1)[0]
    return {"kind": "class", "q": q, "k": k, "scale": call.module.scale, "prefix": 1}


READERS: dict[type[nn.Module], _Reader] = {
    TokenAttention: _Reader(("q", "kv", "fc"), _read_fan),
    RVTAttention: _Reader(("qkv", "patch_reasoning"), _read_rvt),
    ViTAttention: _Reader(("q_norm", "k_norm"), _read_vit),
    WindowAttention: _Reader(("qkv",), _read_swin),
    XCA: _Reader(("qkv",), _read_xcit),
    ClassAttn: _Reader(("q", "k"), _read_class_attention),
}


def _additive_mask(inputs: dict[str, Any], q: Tensor) -> Tensor | None:
    if inputs.get("is_causal"):
        return q.new_full((q.shape[-2], q.shape[-2]), float("-inf")).triu(1)
    mask = inputs.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return mask


def _keep_output(parts: dict[str, Tensor], part: str) -> Callable[..., None]:
    def keep(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        parts[part] = output

    return keep


def _in_backward() -> bool:
    """True while gradient checkpointing runs a block a second time: that pass was recorded already."""
    return torch._C._current_graph_task_id() != -1


def _watchable(model: nn.Module) -> nn.Module:
    model = without_wrappers(model)
    compiled = any(
        isinstance(module, torch._dynamo.OptimizedModule | torch.jit.ScriptModule)
        or module._compiled_call_impl is not None
        for module in model.modules()
    )
    if compiled:
        raise HoldfastError("cannot watch a compiled model: watch the model that was given to torch.compile instead")
    return model
