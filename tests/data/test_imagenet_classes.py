"""ImageNet's classes: wnids and names in timm's order, ambiguous names, and names for tables."""

import numpy as np
import pytest
from timm.data import ImageNetInfo

from holdfast.data import imagenet_classes
from holdfast.data.class_maps import Outputs, wnid_map
from holdfast.errors import HoldfastError


def test_wnids_are_those_of_timm_and_foreign_ones_are_named():
    info = ImageNetInfo()
    assert all(imagenet_classes.find_class(info.index_to_label_name(n)) == (n,) for n in range(1000))
    assert imagenet_classes.find_class("crane") == (134, 517)
    with pytest.raises(HoldfastError, match="but n00000001 is not; map them with --class-map"):
        wnid_map(["n01440764", "n00000001"], Outputs(1000), data="folder:x", restricted=True)


def test_names_for_tables_are_distinct():
    names = imagenet_classes.display_names(imagenet_classes.wnids())
    assert len(set(names)) == 1000
    assert (names[0], names[134]) == ("tench", "crane (n02012849)")
    assert imagenet_classes.display_names(("n01440764", "dog")) == ("n01440764", "dog")


def test_a_model_of_a_thousand_other_classes_is_not_imagenets():
    shoes = Outputs(1000, tuple(f"shoe {n}" for n in range(1000)))
    short = Outputs(1000, tuple(names[0] for names in imagenet_classes.synonyms()))
    assert (shoes.of_imagenet, short.of_imagenet, Outputs(999).of_imagenet) == (False, True, False)
    assert Outputs(1000, tuple(np.random.default_rng(0).permutation(short.names))).of_imagenet is False
