"""AFAT's figures compare an image with itself under occlusion: ``occlusion/10`` is a cell like ``fog/3``."""

import numpy as np
import pytest
import timm
import torch

from holdfast import analyze
from holdfast.analysis.settings import Settings


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    model = timm.create_model("vit_nano", depth=2).eval()
    settings = Settings(cells=("occlusion/10", "occlusion/50"), pictures=1, masks=3, occlusion_images=4)
    analysed = analyze(model, "digits:test", "stability,occlusion,maps", limit=4, settings=settings)
    return analysed.results


def test_more_patches_move_attention_further(found):
    tenth, half = found["stability"].arrays["flattened"].mean(axis=(1, 2, 3))
    assert half < tenth < 1


def test_a_cell_has_the_first_mask_of_the_analysis_of_many_masks(found):
    of_cell = found["stability"].arrays["flattened"][0].mean(axis=(1, 2))
    np.testing.assert_allclose(of_cell, found["occlusion"].arrays["scores"][:, 0], rtol=1e-5)
