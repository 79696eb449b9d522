"""Fingerprints of data change with what is measured, and with nothing else."""

import numpy as np
import pytest

from holdfast.data.fingerprints import content_fingerprint, data_fingerprint, fingerprint, versions
from holdfast.data.source import ArraySource
from holdfast.data.subsets import Joined, Subset


def source(images):
    return ArraySource("name", images, np.arange(len(images)) % 2, ("cat", "dog"), np.arange(len(images)))


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3)).astype(np.uint8)


def test_a_changed_pixel_in_memory_is_another_content_and_a_copy_is_not():
    changed = IMAGES.copy()
    changed[5, 3, 3, 2] ^= 1
    assert content_fingerprint(source(IMAGES)) == content_fingerprint(source(IMAGES.copy()))
    assert content_fingerprint(source(IMAGES)) != content_fingerprint(source(changed))


def test_parts_count_for_what_is_used_of_them():
    changed = IMAGES.copy()
    changed[5] ^= 1
    first = [content_fingerprint(Subset(source(images), np.arange(5))) for images in (IMAGES, changed)]
    assert first[0] == first[1]
    last = [content_fingerprint(Subset(source(images), np.array([5]))) for images in (IMAGES, changed)]
    assert last[0] != last[1]
    joined = [content_fingerprint(Joined((source(IMAGES), source(images)))) for images in (IMAGES, changed)]
    assert joined[0] != joined[1]


@pytest.mark.parametrize("change", ["ids", "targets", "content"])
def test_ids_targets_and_content_each_count(change):
    values = {"ids": ["a", "b"], "targets": np.array([0, 1]), "content": "c"}
    other = {"ids": ["a", "c"], "targets": np.array([1, 1]), "content": "d"}
    both = values, {**values, change: other[change]}
    found = [data_fingerprint(each["ids"], each["targets"], content=each["content"]) for each in both]
    assert found[0] != found[1]


def test_the_order_of_settings_does_not_matter():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1}) != fingerprint({"a": 1, "b": [3]})


def test_versions_name_what_computes():
    assert {"holdfast", "torch", "numpy", "opencv"} <= set(versions())
    assert versions()["numpy"] == np.__version__
