"""The same bytes for any batch size, order, worker count and process count."""

# ruff: noqa: NPY002 - the legacy stream is what must not be touched
import hashlib
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import cv2
import numpy as np
import pytest

from holdfast.corruptions import ALL, KINDS, corrupt, corrupt_batch, keyed
from tests.corruptions.oracle import photograph

IDS = [f"class/{number}.png" for number in range(7)]
RANDOM = [name for name in ALL if KINDS[name].random]


def images():
    picture = photograph(120, 300)
    return [np.ascontiguousarray(picture[8 * n : 8 * n + 40, 30 * n : 30 * n + 48]) for n in range(len(IDS))]


def bytes_of(kind, ids=tuple(IDS), severity=3):
    chosen = [images()[IDS.index(name)] for name in ids]
    return [result.tobytes() for result in corrupt_batch(chosen, kind, ids=ids, severity=severity, seed=4)]


@pytest.mark.parametrize("kind", ALL)
def test_batch_size_and_order_do_not_matter(kind):
    together = dict(zip(IDS, bytes_of(kind), strict=True))
    assert dict(zip(IDS[::-1], bytes_of(kind, IDS[::-1]), strict=True)) == together
    assert [bytes_of(kind, [name])[0] for name in IDS] == list(together.values())
    single = corrupt(images()[2], kind, severity=3, rng=keyed(4, IDS[2], kind, 3))
    assert single.tobytes() == together[IDS[2]]


@pytest.mark.parametrize("kind", ["gaussian_noise", "glass_blur", "snow", "fog", "elastic_transform"])
def test_neighbours_of_other_sizes_do_not_matter(kind):
    mixed = [images()[0], photograph(300, 333), images()[1], photograph(64, 64), images()[2]]
    results = corrupt_batch(mixed, kind, ids=["a", "b", "c", "d", "e"], severity=2)
    for image, name, result in zip(mixed, "abcde", results, strict=True):
        np.testing.assert_array_equal(result, corrupt_batch([image], kind, ids=[name], severity=2)[0])


def test_threads_do_not_matter():
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(bytes_of, ALL)) == [bytes_of(kind) for kind in ALL]


def test_processes_do_not_matter():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(bytes_of, RANDOM)) == [bytes_of(kind) for kind in RANDOM]


@pytest.mark.parametrize("kind", RANDOM)
def test_seed_id_and_severity_all_change_the_draws(kind):
    image = photograph(64, 64)
    base = keyed(0, "a", kind, 3)
    others = [keyed(1, "a", kind, 3), keyed(0, "b", kind, 3), keyed(0, "a", kind, 4), keyed(0, "a", "other", 3)]
    result = corrupt(image, kind, severity=3, rng=base)
    for other in others:
        assert (corrupt(image, kind, severity=3, rng=other) != result).any()


def test_keys_are_pinned_so_that_published_results_stay_reproducible():
    digest = hashlib.blake2b(b"7\0val/n01/a.png\0fog\x003", digest_size=16).digest()
    philox = np.random.Philox(key=int.from_bytes(digest, "little"))
    words = philox.random_raw(1).astype("<u8").view(np.uint16)
    assert keyed(7, "val/n01/a.png", "fog", 3).words(4).tolist() == words.tolist() == [42596, 10471, 10615, 20331]


def test_global_random_state_is_neither_read_nor_changed():
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    results = {kind: bytes_of(kind) for kind in RANDOM}
    assert np.random.get_state()[1].tolist() == before
    np.random.seed(2)
    assert {kind: bytes_of(kind) for kind in RANDOM} == results


@pytest.mark.parametrize("kind", ALL)
def test_opencvs_own_threads_do_not_matter(kind):
    """The workers of ``holdfast corrupt`` run OpenCV on one thread, a notebook on all of them."""
    image, before = photograph(400, 500), cv2.getNumThreads()
    results = []
    try:
        for threads in (1, 2):
            cv2.setNumThreads(threads)
            results.append(corrupt(image, kind, severity=4, rng=1).tobytes())
    finally:
        cv2.setNumThreads(before)
    assert results[0] == results[1]
