"""``watch``: forward hooks that record the attention and features of a model's blocks."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from timm.models.cait import ClassAttn
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from holdfast.attention.attention_map import AttentionHandle
from holdfast.attention.reader import Call, Embedded, Reader
from holdfast.attention.registry import READERS, check_watchable, owner_of
from holdfast.errors import HoldfastError
from holdfast.layers.channel_attention import EfficientChannelAttention
from holdfast.layers.tap import TokenAwarePooling
from holdfast.runtime.device import unwrap_model


class Seen:
    """Attention and features of the last forward pass, in the order of the blocks."""

    def __init__(self) -> None:
        self.features: list[Tensor] = []
        """The outputs of the blocks, in the blocks' own layout."""
        self._unread: list[Callable[[], AttentionHandle]] = []
        self._handles: list[AttentionHandle] = []
        self._channel_calls: list[tuple[EfficientChannelAttention, Tensor]] = []
        self._pool_calls: list[tuple[TokenAwarePooling, tuple[Any, ...]]] = []

    @property
    def attention(self) -> list[AttentionHandle]:
        """One attention handle per block."""
        return [handle for handle in self._read() if handle.kind != "class"]

    @property
    def class_attention(self) -> list[AttentionHandle]:
        """The handles of class-attention blocks (FAN, XCiT, CaiT)."""
        return [handle for handle in self._read() if handle.kind == "class"]

    def channel_gates(self) -> list[Tensor]:
        """FAN's channel gates, (B, C) per block; they are gates, not attention over tokens."""
        return [channel.gate(x) for channel, x in self._channel_calls]

    def tap_weights(self) -> list[Tensor]:
        """The weights of TAP's dilations for each token, (B, branches, H, W) per block with TAP."""
        return [pool.weights(*inputs) for pool, inputs in self._pool_calls]

    def _read(self) -> list[AttentionHandle]:
        # not during the forward pass: under gradient checkpointing a block may not run operations that its
        # recomputation lacks
        while self._unread:
            self._handles.append(self._unread.pop(0)())
        return self._handles

    def _forget(self) -> None:
        for seen in (self.features, self._unread, self._handles, self._channel_calls, self._pool_calls):
            seen.clear()


@contextmanager
def watch(model: nn.Module) -> Iterator[Seen]:
    """Record attention and block outputs of each forward pass inside the ``with``; the last pass is kept.

    For Holdfast's models and timm's ViT, DeiT, BEiT, EVA-02, DINOv3, CaiT, Swin, SwinV2, Hiera and XCiT, also wrapped
    for data-parallel training and under gradient checkpointing; others raise an error. The hooks are removed when the
    ``with`` ends, also after an exception.
    """
    model = unwrap_model(model)
    check_watchable(model)
    recorder = _Recorder(model)
    try:
        for name, module in model.named_modules():
            if type(module) in READERS:
                recorder.listen(name, module, READERS[type(module)])
        yield recorder.seen
        recorder.seen._read()
    finally:
        recorder.stop()


class _Recorder:
    """Registers the hooks and fills ``seen``."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.seen = Seen()
        self._hooks: list[RemovableHandle] = []
        self._block_inputs: dict[str, tuple[Any, ...]] = {}
        self._embedded: dict[nn.Module, Embedded | None] = {}

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def listen(self, name: str, module: nn.Module, reader: Reader) -> None:
        parts: dict[str, Tensor] = {}
        for part in reader.parts:
            if isinstance(getattr(module, part, None), nn.Module):
                self._hook(getattr(module, part).register_forward_hook(_keep_output(parts, part)))
        block = self.model.get_submodule(name.rpartition(".")[0])
        owner = owner_of(self.model, name)
        if owner is not None and owner not in self._embedded:
            self._embedded[owner] = None
            self._hook(owner.patch_embed.register_forward_pre_hook(partial(self._note_images, owner)))
        names = inspect.signature(module.forward)

        def begin(block: nn.Module, args: tuple[Any, ...]) -> None:
            if _in_backward():
                return
            if name in self._block_inputs:  # the block runs again, so a new forward pass has started
                self._block_inputs.clear()
                self.seen._forget()
            self._block_inputs[name] = args

        def read(attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if _in_backward():
                return
            embedded = self._embedded.get(owner)
            self._check_gradients(embedded)
            inputs = dict(names.bind(*args, **kwargs).arguments)
            model = type(self.model).__name__
            given = self._block_inputs[name]
            call = Call(model, attention, block, owner, inputs, given, dict(parts), embedded)
            self.seen._unread.append(partial(_read_handle, name, reader, call, _precision(args)))
            parts.clear()

        self._hook(block.register_forward_pre_hook(begin))
        self._hook(module.register_forward_hook(read, with_kwargs=True))
        self._listen_to_block(block, with_output=not isinstance(module, ClassAttn))

    def _listen_to_block(self, block: nn.Module, *, with_output: bool) -> None:
        def note_output(block: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen.features.append(output)

        def note_gate(channel: EfficientChannelAttention, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen._channel_calls.append((channel, args[0]))

        def note_pool(pool: TokenAwarePooling, args: tuple[Any, ...], output: Tensor) -> None:
            if not _in_backward():
                self.seen._pool_calls.append((pool, args))

        if with_output:
            self._hook(block.register_forward_hook(note_output))
        if isinstance(getattr(block, "mlp", None), EfficientChannelAttention):
            self._hook(block.mlp.register_forward_hook(note_gate))
        if isinstance(getattr(block, "dilation_predictor", None), TokenAwarePooling):
            self._hook(block.dilation_predictor.register_forward_hook(note_pool))

    def _hook(self, hook: RemovableHandle) -> None:
        self._hooks.append(hook)

    def _note_images(self, owner: Any, patch_embed: Any, args: tuple[Any, ...]) -> None:
        images, grid = args[0], None
        if hasattr(patch_embed, "dynamic_feat_size"):
            height, width = patch_embed.dynamic_feat_size(images.shape[-2:])
            grid = (int(height), int(width))
        self._embedded[owner] = Embedded(len(images), grid, torch.is_grad_enabled())

    def _check_gradients(self, embedded: Embedded | None) -> None:
        if embedded is not None and embedded.with_gradients and not torch.is_grad_enabled():
            raise HoldfastError(
                f"cannot watch {type(self.model).__name__} under reentrant checkpointing, where maps have no gradient: "
                "checkpoint with use_reentrant=False"
            )


def _precision(args: tuple[Any, ...]) -> Callable[[], Any]:
    """The current gradient mode and autocast state, restored when a handle is read."""
    device = args[0].device.type
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    with_gradients = torch.is_grad_enabled()

    @contextmanager
    def same() -> Iterator[None]:
        with torch.set_grad_enabled(with_gradients), torch.autocast(device, dtype=dtype, enabled=enabled):
            yield

    return same


def _read_handle(name: str, reader: Reader, call: Call, same_precision: Callable[[], Any]) -> AttentionHandle:
    with same_precision():
        return AttentionHandle(name=name, **reader.read(call))


def _keep_output(parts: dict[str, Tensor], part: str) -> Callable[..., None]:
    def keep(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        parts[part] = output

    return keep


def _in_backward() -> bool:
    """True while gradient checkpointing recomputes a block: that pass has been recorded already."""
    return torch._C._current_graph_task_id() != -1
