"""Occlusion sensitivity: predictions and attention under many random occlusions of patches."""

from holdfast.analysis.occlusion_sensitivity import default_patch


def test_without_tokens_the_patch_is_what_fits_the_image():
    class Stranger:
        token_size = None

        class steps:
            fixed_size = (224, 224)

    assert default_patch(Stranger()) == 16
    Stranger.steps.fixed_size = (32, 32)
    assert default_patch(Stranger()) == 4
