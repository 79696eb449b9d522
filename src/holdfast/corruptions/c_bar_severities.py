"""The kinds of ImageNet-C-bar and CIFAR-10-C-bar as data: names as published, and what each severity means.

Mintun, Kirillov and Xie, NeurIPS 2021. A severity stands for a published magnitude, of which every parameter of a kind
is linear. Both benchmarks have ten kinds, five of them in common, at other magnitudes: the preset says which. A kind
that only one of them has keeps its magnitudes in every preset.
"""

from typing import NamedTuple

C_BAR = "c-bar"  # the heading in tables
C_BAR_PRESETS = {"imagenet-c-bar": ("imagenet", "inception", "any"), "cifar-c-bar": ("cifar", "tiny")}

Magnitudes = tuple[float, float, float, float, float]


class CBarKind(NamedTuple):
    """One kind: its published name, a heading for narrow tables, and its magnitudes in the benchmarks that have it."""

    name: str
    short: str
    imagenet: Magnitudes | None
    cifar: Magnitudes | None

    def magnitudes(self, preset: str) -> Magnitudes:
        """What the five severities mean in a preset."""
        small = preset in C_BAR_PRESETS["cifar-c-bar"]
        found = (self.cifar if small else self.imagenet) or self.imagenet or self.cifar
        assert found is not None
        return found


C_BAR_KINDS = (
    CBarKind("blue_noise_sample", "BSmp", (0.8, 1.6, 2.4, 4, 5.6), (0.7, 1.4, 2.1, 3.5, 4.2)),
    CBarKind("plasma_noise", "Plsm", (4.75, 7, 8.5, 9.25, 10), None),
    CBarKind("checkerboard_cutout", "Ckbd", (2, 3, 4, 5, 6), (1, 2, 3, 4, 5)),
    CBarKind("cocentric_sine_waves", "CSin", (3, 5, 8, 9, 10), None),
    CBarKind("single_frequency_greyscale", "SFrq", (1, 1.5, 2, 4.5, 5), None),
    CBarKind("brownish_noise", "Brwn", (1, 2, 3, 4, 5), (2.5, 4, 5.5, 6.5, 7)),
    CBarKind("perlin_noise", "Prln", (4.6, 5.2, 5.8, 7.6, 8.8), None),
    CBarKind("sparkles", "Sprk", (1, 2, 3, 5, 6), (0.7, 3.5, 5.6, 6.3, 7)),
    CBarKind("inverse_sparkles", "ISpk", (1, 2, 4, 9, 10), (1, 1.5, 2.5, 4.5, 5)),
    CBarKind("caustic_refraction", "Rfrc", (2.35, 3.2, 4.9, 6.6, 9.15), None),
    CBarKind("circular_motion_blur", "CBlr", None, (2.8, 3.6, 4.4, 5.2, 6)),
    CBarKind("lines", "Line", None, (0.5, 1, 1.5, 2, 2.5)),
    CBarKind("pinch_and_twirl", "P&T", None, (5.5, 6, 6.5, 8.5, 10)),
    CBarKind("ripple", "Rppl", None, (5.5, 6, 6.5, 7.5, 8)),
    CBarKind("transverse_chromatic_abberation", "TCA", None, (1, 2, 5, 9, 10)),
)
C_BAR_SUITES = {
    "imagenet-c-bar": tuple(kind.name for kind in C_BAR_KINDS if kind.imagenet),
    "cifar-c-bar": tuple(kind.name for kind in C_BAR_KINDS if kind.cifar),
}
