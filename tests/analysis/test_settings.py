"""Settings of analyses: each analysis declares its own, and some are shared."""

import pytest

from holdfast.analysis.settings import Settings
from holdfast.errors import HoldfastError


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"masks": 0}, "masks must be at least 1"),
        ({"cells": ()}, "cells must name at least one"),
        ({"noise_std": 0}, "noise_std must be positive"),
        ({"epsilon": 1.0}, "epsilon must lie between 0 and 1"),
        ({"ratio": 1.5}, r"ratio must lie in \[0, 1\]"),
        ({"clusters": 9}, "clusters must lie between 2 and 8"),
        ({"query": (0.5, 2.0)}, "query must be two shares"),
    ],
)
def test_settings_refuse_what_has_no_meaning(values, sentence):
    with pytest.raises(HoldfastError, match=sentence):
        Settings(**values)
