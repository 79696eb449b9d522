"""Options of an evaluation are refused when they are made."""

import pytest

from holdfast import ComputeConfig, EvalProtocol
from holdfast.errors import HoldfastError


def test_options_that_cannot_be_are_refused_when_they_are_made():
    with pytest.raises(HoldfastError, match="batch_size must be at least 1, got 0"):
        ComputeConfig(batch_size=0)
    with pytest.raises(HoldfastError, match="exif must be ignore or apply, got 'turn'"):
        EvalProtocol(exif="turn")
