"""RVT: position-aware attention scaling on any grid, and the choices of its release."""

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.models.rvt import resize_mask


@given(old=st.tuples(st.integers(1, 4), st.integers(1, 4)), new=st.tuples(st.integers(1, 5), st.integers(1, 5)))
@settings(max_examples=30, deadline=None)
def test_masks_are_interpolated_over_both_grids(old, new):
    """A mask that is a product of a smooth map of queries and one of keys stays the product of the resized maps."""

    def resized(values):
        return torch.nn.functional.interpolate(values.reshape(1, 1, *old), size=new, mode="bilinear").reshape(-1)

    of_queries, of_keys = torch.randn(2, old[0] * old[1]).unbind(0)
    mask = torch.outer(of_queries, of_keys)[None]
    expected = torch.outer(resized(of_queries), resized(of_keys))[None]
    torch.testing.assert_close(resize_mask(mask, old=old, new=new), expected, atol=1e-5, rtol=1e-4)


def test_a_mask_of_the_same_grid_is_left_alone():
    mask = torch.randn(2, 6, 6)
    assert resize_mask(mask, old=(2, 3), new=(2, 3)) is mask


def test_a_constant_mask_scales_every_grid_alike():
    """With equal masks everywhere the interpolated model must equal one whose masks were built for that grid."""
    built_for_32, built_for_48 = (timm.create_model("rvt_nano", img_size=size).eval() for size in (32, 48))
    state = {key: value for key, value in built_for_32.state_dict().items() if "att_mask" not in key}
    built_for_48.load_state_dict(state, strict=False)
    with torch.no_grad():
        for model in (built_for_32, built_for_48):
            for key, parameter in model.named_parameters():
                if key.endswith("att_mask"):
                    parameter.fill_(0.7)
        images = torch.randn(2, 3, 48, 48)
        torch.testing.assert_close(built_for_32(images), built_for_48(images), atol=1e-5, rtol=1e-4)


def test_base_has_a_linear_mlp_and_the_others_a_convolutional_one():
    with torch.device("meta"):
        assert not hasattr(timm.create_model("rvt_base").transformers[0].blocks[0].mlp, "dwconv")
        assert hasattr(timm.create_model("rvt_small").transformers[0].blocks[0].mlp, "dwconv")
        assert hasattr(timm.create_model("rvt_base", mlp="conv").transformers[0].blocks[0].mlp, "dwconv")
        assert hasattr(timm.create_model("tap_rvt_base_plus").transformers[0].blocks[0].mlp, "dwconv")


def test_masks_start_near_one_half():
    mask = timm.create_model("rvt_nano").transformers[0].blocks[0].attn.att_mask
    assert mask.std().item() == pytest.approx(0.02, rel=0.05)


def test_tap_cuts_the_start_of_the_masks_at_one_deviation():
    """A normal law cut at ±σ has a deviation of 0.54 σ; RSPC cuts at ±2, a hundred σ."""
    small = {"img_size": 64, "depths": (1,), "masked_blocks": 1}
    for name, largest, deviation in (("tap_rvt_small_plus", 0.02, 0.0108), ("rvt_small_plus", 2.0, 0.02)):
        mask = timm.create_model(name, **small).transformers[0].blocks[0].attn.att_mask
        assert mask.abs().max() <= largest
        assert mask.std().item() == pytest.approx(deviation, rel=0.1)


def test_drop_path_rises_with_depth():
    model = timm.create_model("rvt_nano", drop_path_rate=0.7)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for block in model.transformers[0].blocks]
    assert rates == pytest.approx([0.1 * i for i in range(7)])


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"masked_blocks": 8}, "masked_blocks must be between 0 and 7, got 8"),
        ({"mlp": "dense"}, "mlp must be 'conv' or 'linear', got 'dense'"),
        ({"patch_size": 8}, "patch_size must be 4 or 16, got 8"),
        ({"num_heads": (5,)}, "num_heads must divide the width 96, got 5"),
    ],
)
def test_impossible_choices_get_one_sentence(kwargs, sentence):
    with pytest.raises(holdfast.HoldfastError, match=sentence.replace("(", r"\(")):
        timm.create_model("rvt_nano", **kwargs)
