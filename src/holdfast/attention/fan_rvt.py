"""Readers of FAN's and RVT's token attention."""

from typing import Any

from holdfast.attention.reader import Call, Reader
from holdfast.models.fan import TokenAttention
from holdfast.models.rvt import RVTAttention


def read_fan(call: Call) -> dict[str, Any]:
    """Queries and keys of FAN's token attention."""
    if call.module.conv_qkv:
        q, k, _ = call.split("fc", 3)
    else:
        q, k = call.split("q", 1)[0], call.split("kv", 2)[0]
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "grid": tuple(call.block_inputs[1:3])}


def read_rvt(call: Call) -> dict[str, Any]:
    """Queries and keys of RVT's attention, with PAAS's mask as a multiplier of the scores."""
    q, k, _ = call.split("patch_reasoning" if call.module.conv_qkv else "qkv", 3)
    grid = tuple(call.block_inputs[1:3])
    multiplier = call.module.multiplier(grid)
    return {"kind": "token", "q": q, "k": k, "scale": call.module.scale, "grid": grid, "multiplier": multiplier}


READERS = {
    TokenAttention: Reader(read_fan, ("q", "kv", "fc")),
    RVTAttention: Reader(read_rvt, ("qkv", "patch_reasoning")),
}
