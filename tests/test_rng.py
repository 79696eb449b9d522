"""Keyed random numbers: the same for the same key, unlike for any other, as stored records were made with."""

import hashlib

import numpy as np
import pytest

from holdfast import rng


def test_a_stream_is_philox_with_the_digest_of_its_key():
    key = np.frombuffer(hashlib.blake2b(b"7\0dog/1.png\0fog\x003", digest_size=16).digest(), "<u8")
    independent = np.random.Generator(np.random.Philox(key=key))
    ours = rng.stream(7, "dog/1.png", "fog", 3)
    np.testing.assert_array_equal(ours.random(1000), independent.random(1000))
    np.testing.assert_array_equal(ours.standard_normal(1000), independent.standard_normal(1000))


@pytest.mark.parametrize("other", [(8, "a", "fog", 3), (7, "b", "fog", 3), (7, "a", "snow", 3), (7, "a", "fog", 4)])
def test_every_part_of_the_key_counts(other):
    assert not np.array_equal(rng.stream(7, "a", "fog", 3).random(8), rng.stream(*other).random(8))


def test_a_number_has_the_bytes_of_the_digest_and_any_file_name_has_one():
    digest = hashlib.blake2b(b"dog/1.png", digest_size=8).digest()
    assert rng.number("dog/1.png") == int.from_bytes(digest, "big")
    assert rng.number("dog/1.png", order="little") == int.from_bytes(digest, "little")
    assert 0 <= rng.number("fog/3", "dog/1.png", size=6) < 2**48
    assert rng.number("caf\udce9.png") != rng.number("cafe.png")  # a name that is not UTF-8
