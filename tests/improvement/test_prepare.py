"""From a request to a plan: opens model and images, times both, and divides the budget."""

import pytest

from holdfast.errors import HoldfastError
from holdfast.improvement.prepare import model_values


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(HoldfastError, match="has no gradients"):
        model_values("onnx:model.onnx")
    assert model_values("timm:vit_tiny@a.pth") == {"name": "vit_tiny", "init": "a.pth"}
    assert model_values("timm:vit_tiny") == {"name": None, "init": "timm:vit_tiny"}
