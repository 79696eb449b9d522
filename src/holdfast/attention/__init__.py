"""Look inside any model: ``with watch(model) as seen: model(x)``.

Watching changes nothing in the model. It listens to the projections that make queries and keys, and computes attention
maps from them only if somebody asks; the model itself goes on using its fused attention. A model is read right or
refused in one sentence; each model family has a reader in a file of its own, and `registry` lists them.
"""

from holdfast.attention.attention_map import AttentionHandle, Kind
from holdfast.attention.hooks import Seen, watch
from holdfast.attention.registry import attention_names, can_watch, why_not

__all__ = ["AttentionHandle", "Kind", "Seen", "attention_names", "can_watch", "watch", "why_not"]
