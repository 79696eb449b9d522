"""Weights and images that depend on names alone, so that two implementations can be compared without a checkpoint."""

import zlib

import numpy as np
import torch
from torch import nn

LEFT_ALONE = ("num_batches_tracked", "relative_position_index", "attn_mask")
NEAR_HALF = ("gamma", "gamma1", "gamma2", "temperature")


def normal(key: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.Generator(np.random.Philox(zlib.crc32(key.encode()))).standard_normal(shape)


def weight(key: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The value of one state-dict entry; None: keep what the model has."""
    leaf = key.rsplit(".", 1)[-1]
    if leaf in LEFT_ALONE:
        return None
    noise = normal(key, shape)
    if leaf == "running_var":
        noise = 1 + 0.2 * np.abs(noise)
    elif leaf == "running_mean":
        noise = 0.1 * noise
    elif leaf in NEAR_HALF:
        noise = 0.5 + 0.1 * noise
    elif leaf == "weight" and len(shape) == 1:
        noise = 1 + 0.1 * noise
    elif leaf in ("bias", "cls_token"):
        noise = 0.05 * noise
    elif leaf not in ("att_mask", "relative_position_bias_table"):
        noise = noise / np.sqrt(np.prod(shape[1:]))
    return noise.astype(np.float32)


def fill(model: nn.Module, prefix: str = "") -> nn.Module:
    """Give the model its golden weights."""
    state = model.state_dict()
    for key, old in state.items():
        value = weight(prefix + key, tuple(old.shape))
        if value is not None:
            state[key] = torch.from_numpy(np.asarray(value))
    model.load_state_dict(state)
    return model


def images(tag: str, batch: int, height: int, width: int) -> torch.Tensor:
    coarse = normal(tag, (batch, 3, height // 8, width // 8)).repeat(8, 2).repeat(8, 3)
    return torch.from_numpy((0.8 * coarse + 0.3 * normal(tag + "/fine", (batch, 3, height, width))).astype(np.float32))


def labels(tag: str, batch: int, height: int, width: int, classes: int = 19) -> torch.Tensor:
    """Label maps of 8×8 blocks, about a tenth of them 255."""
    rng = np.random.Generator(np.random.Philox(zlib.crc32((tag + "/labels").encode())))
    coarse = rng.integers(0, classes + 2, (batch, height // 8, width // 8))
    return torch.from_numpy(np.where(coarse >= classes, 255, coarse).repeat(8, 1).repeat(8, 2).astype(np.int64))


def label_pair(tag: str, batch: int = 3, height: int = 48, width: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true maps of 19 classes: 17 is predicted but never true, 18 is neither, 255 is ignored."""

    def draw(what: str, high: int) -> np.ndarray:
        rng = np.random.Generator(np.random.Philox(zlib.crc32(f"{tag}/{what}".encode())))
        return rng.integers(0, high, (batch, height, width))

    true = draw("labels", 17)
    predicted = np.where(draw("keep", 4) > 0, true, draw("noise", 18))
    return predicted, np.where(draw("ignore", 10) == 0, 255, true)
