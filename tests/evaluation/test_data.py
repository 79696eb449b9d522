"""Evaluation data: a source of images, or a stored robustness set, with labels matched to the model's classes."""

import pytest
from PIL import Image

from holdfast.errors import HoldfastError
from holdfast.evaluation.data import open_evaluation_data
from holdfast.evaluation.suites import check_suites
from holdfast.published import published


def test_label_maps_are_refused():
    with pytest.raises(HoldfastError, match="suite 'imagenet-c-bar' needs images with a class"):
        check_suites(["imagenet-c-bar"], open_evaluation_data("scenes"))


def test_folders_of_imagenet_must_have_its_order(tmp_path):
    names = [f"n{number:08d}" for number in range(1000)]
    for table in ("imagenet_a_indices", "imagenet_r_indices"):
        for wnid, index in zip(published(table)["wnids"], published(table)["indices"], strict=True):
            names[index] = wnid
    wrong = [name if name != names[6] else "n99999999" for name in names]
    for number, name in enumerate(wrong):
        (tmp_path / name).mkdir()
        if number == 0:
            Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    with pytest.raises(HoldfastError, match="must have ImageNet's 1000 class folders, but number"):
        open_evaluation_data(f"folder:{tmp_path}")
