"""Readers of attention over all tokens: ViT, DeiT, BEiT (relative positions), EVA-02 and DINOv3 (rotary)."""

from typing import Any

import torch
from timm.layers import Attention, AttentionRope, apply_rot_embed_cat
from timm.models.beit import Attention as BeitAttention
from timm.models.eva import EvaAttention
from torch import Tensor, nn

from holdfast.attention.reader import Call, Reader, embeds_patches


def read_vit(call: Call) -> dict[str, Any]:
    """Queries and keys of ViT, after their norms (which may be identities)."""
    return _tokens(call, call.parts["q_norm"], call.parts["k_norm"], bias=_additive_mask(call, call.parts["q_norm"]))


def read_rotary(call: Call) -> dict[str, Any]:
    """Queries and keys with rotary position embedding (RoPE), which class and register tokens do not get."""
    q, k = call.parts["q_norm"], call.parts["k_norm"]
    if (rope := call.inputs.get("rope")) is not None:
        q, k = (_apply_rope(each, rope, call.module) for each in (q, k))
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # grouped queries share keys
    return _tokens(call, q, k, bias=_additive_mask(call, q))


def read_beit(call: Call) -> dict[str, Any]:
    """Queries, keys and position bias of BEiT, computed from its input and weights: its projection has no hook."""
    module, x = call.module, call.inputs["x"]
    weight, bias = module.qkv.weight, module.q_bias
    width = len(weight) // 3
    q = call.apart(nn.functional.linear(x, weight[:width], bias))[0]
    k = call.apart(nn.functional.linear(x, weight[width : 2 * width]))[0]  # its bias is zero
    own = module._get_rel_pos_bias() if module.relative_position_bias_table is not None else None
    shared = call.inputs.get("shared_rel_pos_bias")
    return _tokens(call, q, k, bias=own + shared if own is not None and shared is not None else _first(own, shared))


def _tokens(call: Call, q: Tensor, k: Tensor, *, bias: Tensor | None) -> dict[str, Any]:
    places = call.patches(q, prefix=call.owner.num_prefix_tokens)
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "bias": bias, **places}


def _apply_rope(x: Tensor, rope: Tensor, module: Any) -> Tensor:
    still, patches = x[:, :, : module.num_prefix_tokens], x[:, :, module.num_prefix_tokens :]
    return torch.cat([still, apply_rot_embed_cat(patches, rope, half=module.rotate_half)], dim=2).type_as(x)


def _first(own: Tensor | None, shared: Tensor | None) -> Tensor | None:
    return own if own is not None else shared


def _additive_mask(call: Call, q: Tensor) -> Tensor | None:
    if call.inputs.get("is_causal"):
        return q.new_full((q.shape[-2], q.shape[-2]), float("-inf")).triu(1)
    mask = call.inputs.get("attn_mask")
    if mask is not None and mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, float("-inf"))
    return mask


READERS = {
    Attention: Reader(read_vit, ("q_norm", "k_norm"), embeds_patches),
    AttentionRope: Reader(read_rotary, ("q_norm", "k_norm"), embeds_patches),
    EvaAttention: Reader(read_rotary, ("q_norm", "k_norm"), embeds_patches),
    BeitAttention: Reader(read_beit, inside=embeds_patches),
}
