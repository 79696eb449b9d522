"""ACDC, adverse conditions (Sakaridis et al. 2021): fog, night, rain and snow, with the classes of Cityscapes."""

import numpy as np
import pytest

from holdfast.data.acdc import condition, open_acdc
from holdfast.errors import HoldfastError
from tests.data.test_label_maps import (
    save_image,
    save_labels,
)


@pytest.mark.parametrize("unpacked", [False, True])
def test_acdc_conditions_and_splits(tmp_path, unpacked):
    images, labels = ("rgb_anon_trainvaltest", "gt_trainval") if unpacked else (".", ".")
    for weather in ("fog", "night", "rain", "snow"):
        for part in ("val", "test"):
            stem = f"GOPR0475_frame_{weather}_000041"
            save_image(tmp_path / images / "rgb_anon" / weather / part / "GOPR0475" / f"{stem}_rgb_anon.png")
        path = (
            tmp_path / labels / "gt" / weather / "val" / "GOPR0475" / f"GOPR0475_frame_{weather}_000041_gt_labelIds.png"
        )
        save_labels(path, [7, 8, 0, 11] * 2)
    source = open_acdc(str(tmp_path), split="test")
    assert [condition(source.id(index)) for index in range(len(source))] == ["fog", "night", "rain", "snow"]
    np.testing.assert_array_equal(source.target(0)[0], [0, 1, 255, 2] * 2)
    assert len(open_acdc(f"{tmp_path},night,fog", split="test")) == 2
    assert not open_acdc(f"{tmp_path},test", split="test").has_labels
    with pytest.raises(HoldfastError, match="did you mean 'night'"):
        open_acdc(f"{tmp_path},nigth", split="val")
