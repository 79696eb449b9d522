"""``Cell`` and ``Plan``: one condition applied to all images, and all images and cells of an evaluation."""

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.evaluation.plan import limit_rows


def test_a_limit_keeps_the_share_of_every_class_and_is_nested():
    ids = [f"image {number}" for number in range(200)]
    targets = np.array([0] * 100 + [1] * 60 + [2] * 40)
    fifty, twenty = limit_rows(ids, targets, 50), limit_rows(ids, targets, 20)
    assert np.bincount(targets[fifty]).tolist() == [25, 15, 10]
    assert np.bincount(targets[twenty]).tolist() == [10, 6, 4]
    assert set(twenty) < set(fifty)
    mixed = np.random.default_rng(0).permutation(200)
    again = limit_rows([ids[i] for i in mixed], targets[mixed], 20)
    assert sorted(mixed[again].tolist()) == sorted(twenty.tolist())
    assert len(limit_rows(ids, targets, 1000)) == 200
    for wrong in ("ten", 1.5):
        with pytest.raises(HoldfastError, match=f"limit must be a whole number, got {wrong!r}"):
            limit_rows(ids, targets, wrong)
