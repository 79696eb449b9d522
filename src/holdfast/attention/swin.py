"""Readers of shifted-window attention: Swin, FAN-Swin and SwinV2."""

import math
from typing import Any

import torch
from timm.layers import to_2tuple
from timm.models.swin_transformer import WindowAttention
from timm.models.swin_transformer_v2 import WindowAttention as CosineWindowAttention
from torch import Tensor, nn

from holdfast.attention.reader import Call, Reader


def read_swin(call: Call) -> dict[str, Any]:
    """Queries, keys and the learned relative position bias of Swin."""
    q, k, _ = call.split("qkv", 3)
    bias = _with_mask(call, call.module._get_rel_pos_bias(), len(q))  # 1 h N N
    return {"q": q, "k": k, "scale": call.module.scale, "bias": bias, **_windows(call)}


def read_swin_v2(call: Call) -> dict[str, Any]:
    """Queries and keys of SwinV2: cosine attention with a scale per head and a continuous position bias.

    Its projection is a function call without a hook, so q and k are computed from its input and weights.
    """
    module, x = call.module, call.inputs["x"]
    width = len(module.qkv.weight) // 3
    q = call.apart(nn.functional.linear(x, module.qkv.weight[:width], module.q_bias))[0]
    k = call.apart(nn.functional.linear(x, module.qkv.weight[width : 2 * width]))[0]  # its bias is zero
    q, k = (nn.functional.normalize(each.float(), dim=-1) for each in (q, k))
    q = q * module.logit_scale.clamp(max=math.log(100)).exp()
    return {"q": q, "k": k, "scale": 1.0, "bias": _with_mask(call, _continuous_bias(module), len(q)), **_windows(call)}


def _continuous_bias(module: Any) -> Tensor:
    area = math.prod(module.window_size)
    table = module.cpb_mlp(module.relative_coords_table).view(-1, module.num_heads)
    bias = table[module.relative_position_index.view(-1)].view(area, area, -1).permute(2, 0, 1)
    return 16 * torch.sigmoid(bias).unsqueeze(0)  # 1 h N N


def _with_mask(call: Call, bias: Tensor, count: int) -> Tensor:
    """The bias plus the mask of a shifted block, (windows, N, N), repeated for each image."""
    if (mask := call.inputs.get("mask")) is None:
        return bias
    return (bias + mask.unsqueeze(1)).repeat(count // len(mask), 1, 1, 1)


def _windows(call: Call) -> dict[str, Any]:
    rows, columns = (int(side) for side in call.module.window_size)
    height, width = call.block_inputs[0].shape[1:3]
    shift = to_2tuple(call.block.shift_size)
    return {
        "kind": "window",
        "grid": (rows, columns),
        "windows": (-(-height // rows), -(-width // columns)),
        "image_grid": (height, width),
        "shift": (int(shift[0]), int(shift[1])),
    }


READERS = {
    WindowAttention: Reader(read_swin, ("qkv",)),
    CosineWindowAttention: Reader(read_swin_v2),
}
