"""CamVid in SegNet's form: 701 street scenes of 11 classes, 480×360, from four recordings."""

from pathlib import Path

import numpy as np
import pytest

from holdfast.data.camvid import held_out, open_camvid, recording_of
from holdfast.errors import HoldfastError
from tests.data.test_label_maps import (
    save_image,
    save_labels,
)

CAMVID = Path(__file__).parents[3] / "shared" / "data" / "camvid"


def write_camvid(root: Path, *, segnet: bool) -> Path:
    names = {"train": ["0006R0_f1", "0001TP_1"], "val": ["0016E5_9"], "test": ["0001TP_2", "Seq05VD_f1"]}
    for split, held in names.items():
        lines = [f"/SegNet/{split}/{n}.png /SegNet/{split}annot/{n}.png" if segnet else n for n in held]
        (root / f"{split}.txt").parent.mkdir(parents=True, exist_ok=True)
        (root / f"{split}.txt").write_text("\n".join(lines) + "\n")
        for name in held:
            save_image(root / split / f"{name}.png" if segnet else root / "images" / split / f"{name}.webp")
            save_labels(root / (f"{split}annot" if segnet else f"labels/{split}") / f"{name}.png", [0, 10, 11, 3] * 2)
    return root


@pytest.mark.parametrize("segnet", [False, True])
def test_camvid_splits_recordings_and_void(tmp_path, segnet):
    root = write_camvid(tmp_path, segnet=segnet)
    test = open_camvid(str(root), split="test")
    assert [test.id(index) for index in range(len(test))] == ["test/0001TP_2", "test/Seq05VD_f1"]
    assert len(test.classes) == 11
    np.testing.assert_array_equal(test.target(0)[0], [0, 10, 255, 3] * 2)
    dark = open_camvid(f"{root},all,0001TP", split="train")
    assert [dark.id(index) for index in range(len(dark))] == ["train/0001TP_1", "test/0001TP_2"]
    assert [recording_of(dark.id(index)) for index in range(2)] == ["0001TP", "0001TP"]
    assert len(open_camvid(f"{root},trainval", split="test")) == 3
    with pytest.raises(HoldfastError, match="got '0001PT'; did you mean '0001TP'"):
        open_camvid(f"{root},0001PT", split="train")


def test_every_sixth_stretch_of_ten_frames_of_a_recording_can_be_held_out():
    names = [("train", f"{drive}_{frame:04d}") for drive in ("0006R0", "0016E5") for frame in range(65)]
    held = held_out(names)
    assert [index for index, one in enumerate(held) if one] == [*range(50, 60), *range(115, 125)]


@pytest.mark.skipif(not CAMVID.is_dir(), reason="CamVid is not here")
def test_frames_are_kept_or_held_and_never_both():
    spec = f"{CAMVID},train,0006R0,0016E5"
    parts = [open_camvid(f"{spec},{part}", split="train") for part in ("kept", "held")]
    kept, held = ({part.id(index) for index in range(len(part))} for part in parts)
    assert (len(kept), len(held)) == (265, 40)
    assert not kept & held


@pytest.mark.skipif(not CAMVID.is_dir(), reason="CamVid is not here")
def test_the_real_camvid_has_its_701_frames_and_shares():
    assert [len(open_camvid(str(CAMVID), split=split)) for split in ("train", "val", "test")] == [367, 101, 233]
    source = open_camvid(str(CAMVID), split="test")
    assert source.image(0).size == (480, 360)
    counts = sum(np.bincount(source.target(index).ravel(), minlength=256) for index in range(0, 233, 10))
    shares = counts / counts.sum()
    assert shares[3] == pytest.approx(0.258, abs=0.05)  # road
    assert shares[255] == pytest.approx(0.038, abs=0.02)  # void
    assert shares[11:255].sum() == 0
