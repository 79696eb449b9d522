"""Stored example images."""

import numpy as np

from holdfast.records.examples import EXAMPLES, Example, read_examples, write_examples

ONE = Example("a/1", "fog/3", b"png", {"boxes": np.arange(8.0)}, b"clean")
OTHER = Example("a/2", "clean", b"another", {})


def test_examples_come_back_as_they_were(tmp_path):
    write_examples(tmp_path, [ONE, OTHER], fingerprint="f")
    found = read_examples(tmp_path, fingerprint="f")
    assert [(each.id, each.cell, each.picture, each.clean) for each in found] == [
        ("a/1", "fog/3", b"png", b"clean"),
        ("a/2", "clean", b"another", b""),
    ]
    np.testing.assert_array_equal(found[0].fields["boxes"], ONE.fields["boxes"])
    assert found[1].fields == {}


def test_examples_of_other_records_missing_or_damaged_ones_are_none(tmp_path):
    assert read_examples(None, fingerprint="f") == read_examples(tmp_path, fingerprint="f") == []
    write_examples(tmp_path, [ONE], fingerprint="f")
    assert read_examples(tmp_path, fingerprint="other") == []
    (tmp_path / EXAMPLES).write_bytes((tmp_path / EXAMPLES).read_bytes()[:50])
    assert read_examples(tmp_path, fingerprint="f") == []


def test_no_examples_are_a_file_too(tmp_path):
    write_examples(tmp_path, [], fingerprint="f")
    assert read_examples(tmp_path, fingerprint="f") == []
