"""The header and the image list of a record set."""

import json

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.records.header import FORMAT, HEADER, check_images, read_header, read_images, write_header, write_images

VALUES = {"fingerprint": "f", "shard_size": 4, "views": [""], "model": "fan_nano"}
IDS, TARGETS = ["a/1", "ü/2"], np.array([3, 1])


def test_a_header_comes_back_with_the_digest_of_its_images(tmp_path):
    write_images(tmp_path, IDS, TARGETS)
    write_header(tmp_path, VALUES)
    header = read_header(tmp_path)
    assert {key: header[key] for key in VALUES} == VALUES
    assert header["task"] == "classification"
    ids, targets = read_images(tmp_path)
    assert ids.tolist() == IDS
    check_images(header, ids, targets, folder=tmp_path)
    for wrong in ((ids[::-1], targets), (ids, targets[::-1]), (ids, targets.astype(np.int32))):
        with pytest.raises(HoldfastError, match="its ids or targets are not those that were measured"):
            check_images(header, *wrong, folder=tmp_path)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"fingerprint": None}, "must hold fingerprint as str, got None"),
        ({"shard_size": True}, "must hold shard_size as int, got True"),
        ({"shard_size": 0}, "shard_size have invalid values"),
        ({"views": []}, "have invalid values"),
        ({"class_names": ["cat", 3]}, "have invalid values"),
        ({"format": FORMAT - 1}, "which Holdfast no longer reads: evaluate again"),
        ({"format": FORMAT + 1}, "written by a later version of Holdfast"),
    ],
)
def test_a_header_that_was_not_written_like_this_is_one_sentence(tmp_path, changed, sentence):
    (tmp_path / HEADER).write_text(json.dumps({**VALUES, **changed}))
    with pytest.raises(HoldfastError, match=sentence):
        read_header(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_damaged_files_and_missing_ones_cannot_be_read(tmp_path, text):
    with pytest.raises(HoldfastError, match="cannot be read as the header of records"):
        read_header(tmp_path)
    (tmp_path / HEADER).write_text(text)
    with pytest.raises(HoldfastError, match=r"cannot be read as the header|must contain fingerprint"):
        read_header(tmp_path)


def test_a_limit_may_be_none(tmp_path):
    write_header(tmp_path, {**VALUES, "limit": None})
    assert read_header(tmp_path)["limit"] is None
