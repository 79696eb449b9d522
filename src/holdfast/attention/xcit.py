"""Reader of XCiT: cross-covariance attention of channels to channels, which is not attention of tokens."""

from typing import Any

from timm.models.xcit import XCA
from torch import nn

from holdfast.attention.reader import Call, Reader


def read_xcit(call: Call) -> dict[str, Any]:
    """Channels as unit vectors over all tokens, with a temperature per head."""
    q, k, _ = (part.transpose(-2, -1).float() for part in call.split("qkv", 3))  # B h d N
    q = nn.functional.normalize(q, dim=-1) * call.module.temperature
    k = nn.functional.normalize(k, dim=-1)
    return {"kind": "channel", "q": q, "k": k, "scale": 1.0, "grid": tuple(call.block_inputs[1:3])}


READERS = {XCA: Reader(read_xcit, ("qkv",))}
