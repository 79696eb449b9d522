"""Presets have the settings of their papers."""

import pytest

from holdfast.attacks.presets import PRESETS


@pytest.mark.parametrize(
    ("name", "eps", "alpha", "steps"),
    [
        ("fgsm", 1, 1, 1),  # RVT, Section 5
        ("pgd5", 1, 0.5, 5),
        ("pgd3-rvt-adv", 4, 8 / 3, 3),
        ("pgd5-rspc", 8, 2, 5),
    ],
)
def test_gradient_attacks_are_those_of_the_papers_in_255ths(name, eps, alpha, steps):
    attack = PRESETS[name]
    assert (255 * attack.eps, 255 * attack.alpha, attack.steps) == pytest.approx((eps, alpha, steps))
    assert attack.norm == "linf"
    assert attack.random_start == (name != "fgsm")


def test_autoattack_has_the_radii_of_robustbench():
    radii = {name: (attack.norm, attack.eps) for name, attack in PRESETS.items() if name.startswith("autoattack")}
    assert radii == {
        "autoattack-imagenet": ("linf", 4 / 255),
        "autoattack-cifar": ("linf", 8 / 255),
        "autoattack-cifar-l2": ("l2", 0.5),
    }


def test_occlusions_cover_a_tenth_of_the_patches():
    assert PRESETS["occlusion-random"].ratio == PRESETS["occlusion-attention"].ratio == 0.1
    assert PRESETS["patch-fool-sparse"].pixels == 250
