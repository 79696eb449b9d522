"""Readers of CaiT's talking heads and of the class attention of CaiT, XCiT and FAN."""

from typing import Any

from timm.models.cait import Cait, ClassAttn, TalkingHeadAttn

from holdfast.attention.reader import Call, Reader


def read_talking_heads(call: Call) -> dict[str, Any]:
    """Heads whose scores are mixed before the softmax; the mixing's bias is constant over a row, so it has no effect.

    CaiT mixes the maps again after the softmax; that is left out here, since rows would no longer sum to one.
    """
    q, k, _ = call.split("qkv", 3)
    mixing = call.module.proj_l.weight
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "mixing": mixing, **call.patches(q, prefix=0)}


def read_class_attention(call: Call) -> dict[str, Any]:
    """Class attention: the class token is the only query; keys are all tokens, itself included."""
    q = call.parts["q"].unflatten(-1, (call.module.num_heads, 1, -1))  # B h 1 d
    return {"kind": "class", "q": q, "k": call.split("k", 1)[0], "scale": call.module.scale, "prefix": 1}


READERS = {
    TalkingHeadAttn: Reader(read_talking_heads, ("qkv",), lambda owner: isinstance(owner, Cait)),
    ClassAttn: Reader(read_class_attention, ("q", "k")),
}
