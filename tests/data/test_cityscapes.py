"""Cityscapes (Cordts et al. 2016) as it is distributed, and stored Cityscapes-C trees."""

from pathlib import Path

import numpy as np
import pytest

from holdfast.data.cityscapes import CLASSES, LABEL_IDS, city, cityscapes_c_cells, open_cityscapes, open_cityscapes_c
from holdfast.errors import HoldfastError
from tests.data.test_label_maps import (
    save_image,
    save_labels,
)


def test_the_class_table_is_torchvisions():
    from torchvision.datasets import Cityscapes

    scored = sorted((c for c in Cityscapes.classes if c.train_id not in (-1, 255)), key=lambda c: c.train_id)
    assert {c.name: c.id for c in scored} == LABEL_IDS
    assert tuple(c.name for c in scored) == CLASSES


def write_cityscapes(root: Path) -> Path:
    for split, place in (("train", "aachen"), ("val", "frankfurt"), ("test", "berlin")):
        stem = f"{place}_000000_000019"
        save_image(root / "leftImg8bit" / split / place / f"{stem}_leftImg8bit.png")
        save_labels(root / "gtFine" / split / place / f"{stem}_gtFine_labelIds.png", [7, 0, 33, 255, 11, 14, 26, 34])
    return root


def test_cityscapes_ids_are_mapped_and_the_rest_is_ignored(tmp_path):
    root = write_cityscapes(tmp_path)
    val = open_cityscapes(str(root), split="test")  # what is evaluated on: test has no labels
    assert val.id(0) == "val/frankfurt/frankfurt_000000_000019"
    assert city(val.id(0)) == "frankfurt"
    np.testing.assert_array_equal(val.target(0)[0], [0, 255, 18, 255, 2, 255, 13, 255])
    assert open_cityscapes(str(root), split="train").id(0).startswith("train/aachen/")
    test = open_cityscapes(f"{root},test", split="val")
    assert not test.has_labels
    assert test.image(0).size == (8, 6)
    with pytest.raises(HoldfastError, match="only be exported"):
        test.target(0)
    with pytest.raises(HoldfastError, match="did you mean 'val'"):
        open_cityscapes(f"{root},vall", split="val")
    with pytest.raises(HoldfastError, match="but has none"):
        open_cityscapes(str(tmp_path / "elsewhere"), split="val")


@pytest.mark.parametrize("form", ["{k}/{s}/frankfurt", "{k}/{s}/val/frankfurt", "leftImg8bit/{k}/{s}/val/frankfurt"])
def test_stored_cityscapes_c_is_found_in_all_its_forms(tmp_path, form):
    root = write_cityscapes(tmp_path / "cityscapes")
    stored = tmp_path / "stored"
    name = "frankfurt_000000_000019_leftImg8bit.png"
    for kind, severity in (("fog", 3), ("gaussian_noise", 1)):
        save_image(stored / form.format(k=kind, s=severity) / name)
    assert cityscapes_c_cells(stored) == ["gaussian_noise/1", "fog/3"]
    cell = open_cityscapes_c(stored, kind="fog", severity=3, labels=root)
    assert cell.id(0) == open_cityscapes(str(root), split="val").id(0)
    np.testing.assert_array_equal(cell.target(0), open_cityscapes(str(root), split="val").target(0))
    with pytest.raises(HoldfastError, match="must hold fog/2"):
        open_cityscapes_c(stored, kind="fog", severity=2, labels=root)
    with pytest.raises(HoldfastError, match="gtFine/val"):
        open_cityscapes_c(stored, kind="fog", severity=3)
