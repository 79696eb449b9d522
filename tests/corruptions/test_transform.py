"""`RandomCorruption` as a step of a training pipeline."""

import pickle
import random

import numpy as np
import pytest
from PIL import Image

from holdfast.corruptions import EXTRA, STANDARD, RandomCorruption, corrupt
from holdfast.errors import HoldfastError
from tests.corruptions.oracle import photograph

ARRAY = photograph(48, 64)
PICTURE = Image.fromarray(ARRAY)


def test_takes_and_gives_pictures_and_arrays():
    transform = RandomCorruption("contrast", [3])
    expected = corrupt(ARRAY, "contrast", severity=3)
    np.testing.assert_array_equal(transform(ARRAY), expected)
    result = transform(PICTURE)
    assert isinstance(result, Image.Image)
    np.testing.assert_array_equal(np.asarray(result), expected)
    assert transform(PICTURE.convert("L")).mode == "RGB"


def test_composes_with_torchvision():
    transforms = pytest.importorskip("torchvision.transforms")
    pipeline = transforms.Compose([transforms.Resize(40), RandomCorruption(p=1.0), transforms.ToTensor()])
    assert pipeline(PICTURE).shape == (3, 40, 53)


def test_is_reproducible_by_seed_generator_or_pythons_random():
    transform = RandomCorruption()
    np.testing.assert_array_equal(transform(ARRAY, seed=5), transform(ARRAY, seed=5))
    results = []
    for _ in range(2):
        random.seed(3)
        results.append([transform(ARRAY).tobytes() for _ in range(4)])
    assert results[0] == results[1]
    assert len(set(results[0])) == 4
    first, second = (RandomCorruption(generator=np.random.default_rng(1)) for _ in range(2))
    assert [first(ARRAY).tobytes() for _ in range(3)] == [second(ARRAY).tobytes() for _ in range(3)]


def test_all_kinds_and_severities_come_up_and_p_is_kept():
    transform = RandomCorruption(("brightness", "contrast"), (1, 5))
    expected = {corrupt(ARRAY, k, severity=s).tobytes() for k in ("brightness", "contrast") for s in (1, 5)}
    assert {transform(ARRAY, seed=seed).tobytes() for seed in range(60)} == expected
    kept = sum(RandomCorruption("contrast", p=0.25)(ARRAY, seed=seed) is ARRAY for seed in range(400))
    assert 260 < kept < 340


def test_survives_the_trip_to_a_worker():
    transform = RandomCorruption(EXTRA, (2,), p=0.5, preset="any")
    copy = pickle.loads(pickle.dumps(transform))
    np.testing.assert_array_equal(copy(ARRAY, seed=1), transform(ARRAY, seed=1))
    assert repr(copy) == repr(transform)
    assert repr(RandomCorruption()) == "RandomCorruption(standard; severities (1, 2, 3, 4, 5), p=1, preset='any')"
    assert RandomCorruption().kinds == STANDARD


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (("fogg",), {}, "kind: unknown corruption 'fogg'"),
        (("fog", [0]), {}, "severity: expected a whole number from 1 to 5, got 0"),
        (([],), {}, "kinds, severities: expected at least one of each"),
        (("fog",), {"p": 1.5}, "p: expected a probability from 0 to 1, got 1.5"),
        (("fog",), {"preset": "x"}, "preset: expected one of"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, options, sentence):
    with pytest.raises(HoldfastError) as error:
        RandomCorruption(*arguments, **options)
    assert str(error.value).startswith(sentence)
