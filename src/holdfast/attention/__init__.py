"""Attention maps and block features of a forward pass: ``with watch(model) as seen: model(x)``.

Watching does not change the model. Hooks record the queries and keys, and attention maps are computed from them only on
demand; the model keeps its fused attention. An unsupported model raises a one-line error; each model family has a
reader in its own file, and `registry` lists them.
"""

from holdfast.attention.attention_map import AttentionHandle, Kind
from holdfast.attention.hooks import Seen, watch
from holdfast.attention.registry import attention_names, can_watch, register_reader, why_not

__all__ = ["AttentionHandle", "Kind", "Seen", "attention_names", "can_watch", "register_reader", "watch", "why_not"]
