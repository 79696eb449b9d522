"""Masks in one array per image."""

import numpy as np
from faster_coco_eval import mask as coco_mask

from holdfast.io.run_lengths import packed_masks, unpacked_masks


def test_masks_come_back_from_one_array_also_given_as_text():
    rng = np.random.default_rng(0)
    bitmaps = rng.integers(0, 2, (3, 7, 5)).astype(np.uint8)
    masks = [coco_mask.encode(np.asfortranarray(bitmap)) for bitmap in bitmaps]
    masks[1] = {**masks[1], "counts": masks[1]["counts"].decode()}
    values, lengths = packed_masks(masks)
    assert values.dtype == np.uint8
    assert lengths.sum() == len(values)
    found = unpacked_masks(values, lengths, (7, 5))
    np.testing.assert_array_equal([coco_mask.decode(mask) for mask in found], bitmaps)


def test_an_image_without_masks_has_empty_arrays():
    values, lengths = packed_masks([])
    assert (len(values), len(lengths)) == (0, 0)
    assert unpacked_masks(values, lengths, (7, 5)) == []
