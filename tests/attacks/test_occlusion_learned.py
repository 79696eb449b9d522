"""Learned occlusion (``occlusion-learned``): fit AFAT's corruption model to a frozen classifier."""

import torch

from holdfast.attacks import GeneratedOcclusion
from holdfast.attacks.occlusion_learned import CrossFitted, halves_of
from tests.attacks.test_occlusion_corruptor import corruptor


def test_generated_occlusion_is_by_alignment_and_each_half_is_covered_by_the_model_of_the_other():
    assert GeneratedOcclusion().objective == "alignment"
    names = [f"image{number}" for number in range(12)]
    halves = halves_of(names)
    both = CrossFitted([corruptor(worst=3), corruptor(worst=60)], halves)
    images = torch.rand(12, 3, 32, 32) + 0.5
    keep = both.keep(images, 1 / 64, names=names).flatten(1)
    for name, kept in zip(names, keep, strict=True):
        fitted_to_other_half = 1 - halves[name]
        assert int((kept == 0).nonzero()) == (3, 60)[fitted_to_other_half]


def test_halves_are_of_equal_size_and_do_not_depend_on_the_order_of_the_images():
    names = [f"image{number}" for number in range(9)]
    assert halves_of(names) == halves_of(names[::-1])
    assert sorted(halves_of(names).values()) == [0] * 5 + [1] * 4
