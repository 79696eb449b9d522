"""The golden heads' weights: made for the published (mmdetection) keys, put where torchvision's modules keep them."""

import torch
from torch import Tensor

from tests.golden_weights import weight


def golden(key: str, *shape: int) -> Tensor:
    return torch.from_numpy(weight(key, shape))


def conv(ours: str, key: str, *shape: int, bias: bool = True) -> dict[str, Tensor]:
    state = {f"{ours}.weight": golden(f"{key}.weight", *shape)}
    return state | ({f"{ours}.bias": golden(f"{key}.bias", shape[0])} if bias else {})


def background_first(published: Tensor, *, last: bool = False, rows: int = 1) -> Tensor:
    """torchvision's row 0 is the background: the published last row of logits, nothing for boxes and masks."""
    if last:
        return torch.cat([published[-1:], published[:-1]])
    return torch.cat([torch.zeros(rows, *published.shape[1:]), published])


def neck(channels: list[int]) -> dict[str, Tensor]:
    state = {}
    for i, width in enumerate(channels):
        state |= conv(f"inner_blocks.{i}.0", f"neck.lateral_convs.{i}.conv", 256, width, 1, 1)
        state |= conv(f"layer_blocks.{i}.0", f"neck.fpn_convs.{i}.conv", 256, 256, 3, 3)
    return state


def region_proposals() -> dict[str, Tensor]:
    return (
        conv("head.conv.0.0", "rpn_head.rpn_conv", 256, 256, 3, 3)
        | conv("head.cls_logits", "rpn_head.rpn_cls", 3, 256, 1, 1)
        | conv("head.bbox_pred", "rpn_head.rpn_reg", 12, 256, 1, 1)
    )


def stage(s: int, *, prefix: str) -> dict[str, Tensor]:
    box, mask = f"roi_head.bbox_head.{s}", f"roi_head.mask_head.{s}"
    state: dict[str, Tensor] = {}
    for i in range(4):
        state |= conv(f"box_head.{i}.0", f"{box}.shared_convs.{i}.conv", 256, 256, 3, 3, bias=False)
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            state[f"box_head.{i}.1.{leaf}"] = golden(f"{box}.shared_convs.{i}.bn.{leaf}", 256)
        state[f"box_head.{i}.1.num_batches_tracked"] = torch.tensor(0)
        state |= conv(f"mask_head.{i}.0", f"{mask}.convs.{i}.conv", 256, 256, 3, 3)
    state |= conv("box_head.5", f"{box}.shared_fcs.0", 1024, 12544)
    state |= conv("mask_predictor.conv5_mask", f"{mask}.upsample", 256, 256, 2, 2)
    for leaf, width in (("weight", (1024,)), ("bias", ())):
        state[f"box_predictor.cls_score.{leaf}"] = background_first(
            golden(f"{box}.fc_cls.{leaf}", 81, *width), last=True
        )
        state[f"box_predictor.bbox_pred.{leaf}"] = background_first(golden(f"{box}.fc_reg.{leaf}", 320, *width), rows=4)
    for leaf, width in (("weight", (256, 1, 1)), ("bias", ())):
        state[f"mask_predictor.mask_fcn_logits.{leaf}"] = background_first(
            golden(f"{mask}.conv_logits.{leaf}", 80, *width)
        )
    return {prefix + key: value for key, value in state.items()}
