"""Folders of images and label maps."""

import numpy as np
import pytest

from holdfast.data.label_maps import IGNORED
from holdfast.data.mask_folder import open_masks
from holdfast.errors import HoldfastError
from tests.data.test_label_maps import SIZE, masks


def test_a_class_file_names_the_classes_and_one_number_can_be_ignored(folders):
    (folders / "labels" / "classes.txt").write_text("road\nsky\ntree\nvoid\n")
    source = masks(folders, "ignore=3")
    assert source.classes == ("road", "sky", "tree", "void")
    np.testing.assert_array_equal(source.target(1) == IGNORED, np.arange(48).reshape(SIZE) % 4 == 3)
    (folders / "other.txt").write_text("a\nb\nc\nd\n")
    assert masks(folders, f"classes={folders / 'other.txt'}").classes == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("only", "IMAGES,LABELS"),
        ("nowhere,neither", "'nowhere' is not a folder"),
        ("{0}/images,{0}/labels,clases=x", "did you mean 'classes'"),
        ("{0}/images,{0}/labels,ignore=many", "ignore must be a number"),
        ("{0}/images,{0}/labels,classes=nowhere.txt", "one name per line"),
    ],
)
def test_what_masks_cannot_be_gets_one_sentence(folders, rest, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        open_masks(rest.format(folders), split="val")
