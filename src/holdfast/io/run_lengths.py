"""Masks as COCO's run-length encoding (RLE), packed into one array per image."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Rle = dict[str, Any]  # {"size": [height, width], "counts": bytes}


def packed_masks(masks: Sequence[Rle]) -> tuple[np.ndarray, np.ndarray]:
    """Pack RLE masks into one array of bytes, and the length of each."""
    texts = [mask["counts"] if isinstance(mask["counts"], bytes) else mask["counts"].encode() for mask in masks]
    return np.frombuffer(b"".join(texts), np.uint8), np.array([len(text) for text in texts], np.int32)


def unpacked_masks(values: np.ndarray, lengths: np.ndarray, size: Sequence[int]) -> list[Rle]:
    """Unpack the RLE masks of `packed_masks`."""
    ends = np.cumsum(lengths)
    text = values.tobytes()
    shape = [int(length) for length in size]
    return [{"size": shape, "counts": text[end - length : end]} for length, end in zip(lengths, ends, strict=True)]
