"""Blurs: defocus, glass, motion, zoom and gaussian."""

import numpy as np
import pytest
import scipy.ndimage as nd

from holdfast.corruptions import LegacyDraws, parameters
from tests.corruptions.oracle import photograph, share_beyond
from tests.corruptions.test_presets import SIDES


@pytest.mark.parametrize(("radius", "total"), [(3, 1.0), (7, 1.00286), (8, 1.01298), (10, 1.01079), (12, 1.00775)])
def test_large_defocus_disks_brighten(radius, total):
    flat = np.full((64, 64, 3), 200, np.uint8)
    from holdfast.corruptions.blur import defocus_blur

    blurred = defocus_blur(flat[None], [None], radius=radius, alias_sigma=0.5 if radius > 3 else 0.1)
    assert np.unique(blurred).tolist() in ([int(200 * total)], [int(200 * total) - 1])


@pytest.mark.parametrize("preset", SIDES)
def test_glass_copies_one_way_in_the_published_order(preset):
    """The plain loop: from the last pixel to the first, each takes a neighbour's current value."""
    image = np.ascontiguousarray(photograph(SIDES[preset], SIDES[preset])[:40, :48])
    for severity in (2, 5):
        p = parameters("glass_blur", severity, preset=preset)
        stream, smooth = np.random.RandomState(severity), nd.gaussian_filter
        pixels = (255 * smooth(image / 255, (p["sigma"], p["sigma"], 0), mode="nearest")).astype(np.uint8)
        height, width = pixels.shape[:2]
        for _ in range(p["passes"]):
            for h in range(height - p["delta"], p["delta"], -1):
                for w in range(width - p["delta"], p["delta"], -1):
                    dx, dy = stream.randint(-p["delta"], p["delta"], size=2)
                    pixels[h, w] = pixels[h + dy, w + dx]
        expected = (255 * np.clip(smooth(pixels / 255, (p["sigma"], p["sigma"], 0), mode="nearest"), 0, 1)).astype(
            np.uint8
        )
        from holdfast.corruptions.blur import glass_blur

        ours = glass_blur(image[None], [LegacyDraws(severity)], **p)[0]
        assert share_beyond(ours, expected) <= 0.001
