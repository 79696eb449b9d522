"""Catalogue of the corruptions: their order and groups, and the parameters of each severity in each preset.

ImageNet-C, Tiny-ImageNet-C and CIFAR-C, Hendrycks & Dietterich 2019; preset ``any`` follows imagecorruptions,
Michaelis et al. 2019. The kinds of C-bar come from `holdfast.corruptions.c_bar_severities`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.corruptions.c_bar_severities import C_BAR, C_BAR_KINDS, C_BAR_SUITES
from holdfast.errors import HoldfastError, nearest

SEVERITIES = (1, 2, 3, 4, 5)
MIN_SIDE = 32
OWN = "own"


@dataclass(frozen=True)
class Kind:
    """One corruption: its group, whether it is one of the standard 15, whether it is random, its parameters' names.

    ``short`` is a heading of at most four letters for narrow tables; by default the name is cut. ``line`` describes it.
    """

    name: str
    group: str
    standard: bool
    random: bool
    parameters: tuple[str, ...]
    short: str = ""
    line: str = ""


@dataclass(frozen=True)
class Preset:
    """One published generator: the image side it is defined for (None: any), and its rules beside the severities."""

    name: str
    side: int | None
    source: str
    rules: dict[str, dict[str, Any]]


def _kinds() -> dict[str, Kind]:
    rows = [
        ("gaussian_noise", "noise", True, True, "sigma"),
        ("shot_noise", "noise", True, True, "photons"),
        ("impulse_noise", "noise", True, True, "amount"),
        ("defocus_blur", "blur", True, False, "radius alias_sigma"),
        ("glass_blur", "blur", True, True, "sigma delta passes"),
        ("motion_blur", "blur", True, True, "radius sigma"),
        ("zoom_blur", "blur", True, False, "step count"),
        ("snow", "weather", True, True, "loc scale zoom threshold radius sigma mix"),
        ("frost", "weather", True, True, "image_weight frost_weight"),
        ("fog", "weather", True, True, "amount decay"),
        ("brightness", "weather", True, False, "shift"),
        ("contrast", "digital", True, False, "gain"),
        ("elastic_transform", "digital", True, True, "alpha sigma affine"),
        ("pixelate", "digital", True, False, "scale"),
        ("jpeg_compression", "digital", True, False, "quality"),
        ("speckle_noise", "noise", False, True, "sigma"),
        ("gaussian_blur", "blur", False, False, "sigma"),
        ("spatter", "weather", False, True, "loc scale sigma threshold gain mud"),
        ("saturate", "digital", False, False, "factor shift"),
    ]
    short = {"jpeg_compression": "JPEG", "gaussian_blur": "GBlu"}
    return {row[0]: Kind(*row[:4], tuple(row[4].split()), short.get(row[0], "")) for row in rows}


KINDS = _kinds() | {
    kind.name: Kind(kind.name, C_BAR, False, kind.name != "circular_motion_blur", ("magnitude",), kind.short)
    for kind in C_BAR_KINDS
}
STANDARD = tuple(name for name, kind in KINDS.items() if kind.standard)
EXTRA = tuple(name for name, kind in KINDS.items() if not kind.standard and kind.group != C_BAR)
ALL = STANDARD + EXTRA
PUBLISHED = ALL + tuple(kind.name for kind in C_BAR_KINDS)
GROUPS = {
    group: tuple(name for name in STANDARD if KINDS[name].group == group)
    for group in ("noise", "blur", "weather", "digital")
}

Row = tuple[Any, ...]


def _elastic(unit: float, *rows: tuple[float, float, float]) -> Row:
    return tuple(tuple(unit * value for value in row) for row in rows)


def _elastic_imagenet(unit: float) -> Row:  # 244 is a typo for 224 in the released code that made the images
    return _elastic(unit, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))


_IMAGENET: dict[str, Row] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": (60, 25, 12, 5, 3),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    # severity 1 has 12 factors and not 11: the published floating-point arange(1, 1.11, 0.01) includes its end
    "zoom_blur": ((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "elastic_transform": _elastic_imagenet(244),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": (25, 18, 15, 10, 7),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": (1, 2, 3, 4, 6),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}

# imagecorruptions uses ImageNet-C's constants in pixels at every image size: on large images the same severity is
# milder. Only its elastic transform is another algorithm, with constants of its own
_ANY = _IMAGENET | {"elastic_transform": ((12.5,), (16.25,), (21.25,), (25.0,), (30.0,))}

_INCEPTION = _IMAGENET | {
    "gaussian_noise": (0.09, 0.13, 0.19, 0.27, 0.40),
    "shot_noise": (50, 20, 10, 5, 3),
    "impulse_noise": (0.04, 0.07, 0.10, 0.18, 0.28),
    "defocus_blur": ((4, 0.1), (5, 0.5), (7, 0.5), (10, 0.5), (12, 0.5)),
    "glass_blur": ((0.8, 1, 3), (1, 3, 1), (1.1, 2, 4), (1.2, 4, 2), (1.6, 5, 2)),
    "motion_blur": ((12, 4), (17, 6), (17, 9), (17, 13), (22, 16)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.8), (2.5, 1.6), (3, 1.5)),
    "elastic_transform": _elastic_imagenet(360),
    "pixelate": (0.5, 0.4, 0.3, 0.25, 0.2),
    "jpeg_compression": (23, 16, 13, 8, 5),
    "speckle_noise": (0.16, 0.21, 0.36, 0.46, 0.61),
    "gaussian_blur": (1.5, 2.5, 3.5, 4.5, 6.5),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.9, 0),
        (0.65, 0.3, 3.5, 0.68, 0.9, 0),
        (0.65, 0.3, 3, 0.68, 0.8, 0),
        (0.65, 0.3, 1.2, 0.65, 1.8, 1),
        (0.67, 0.4, 1.2, 0.65, 1.8, 1),
    ),
}

_CIFAR: dict[str, Row] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "elastic_transform": _elastic(
        32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
    ),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": (80, 65, 58, 50, 40),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

_TINY: dict[str, Row] = {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.15, 0.18),
    "shot_noise": (250, 100, 50, 30, 15),
    "impulse_noise": (0.01, 0.02, 0.05, 0.08, 0.14),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": _CIFAR["zoom_blur"],
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "brightness": _IMAGENET["brightness"],
    "contrast": _IMAGENET["contrast"],
    "elastic_transform": _elastic(
        64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)
    ),
    "pixelate": (0.9, 0.8, 0.7, 0.6, 0.5),
    "jpeg_compression": (65, 58, 50, 40, 25),
    "speckle_noise": (0.15, 0.2, 0.25, 0.3, 0.35),
    "gaussian_blur": (0.5, 0.75, 1, 1.25, 1.5),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0),
        (0.65, 0.1, 0.8, 0.7, 0.6, 0),
        (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1),
        (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
}

_TABLES: dict[str, dict[str, Row]] = {
    "imagenet": _IMAGENET,
    "tiny": _TINY,
    "cifar": _CIFAR,
    "inception": _INCEPTION,
    "any": _ANY,
}
for _preset, _table in _TABLES.items():
    _table |= {kind.name: kind.magnitudes(_preset) for kind in C_BAR_KINDS}


def _generator_rules(*, fog_map: int, texture_scale: float) -> dict[str, dict[str, Any]]:
    return {
        "snow": {"eight_bit": True},
        "frost": {"texture_scale": texture_scale},
        "fog": {"map_side": fog_map},
    }


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("imagenet", 224, "ImageNet-C", _generator_rules(fog_map=256, texture_scale=1.0)),
        Preset("tiny", 64, "Tiny-ImageNet-C", _generator_rules(fog_map=64, texture_scale=0.3)),
        Preset("cifar", 32, "CIFAR-C", _generator_rules(fog_map=32, texture_scale=0.2)),
        Preset("inception", 299, "ImageNet-C for Inception", _generator_rules(fog_map=512, texture_scale=1.0)),
        Preset("any", None, "imagecorruptions", {}),
    )
}


def kind_of(name: str) -> Kind:
    """The catalogue entry of a corruption."""
    if name not in KINDS:
        raise HoldfastError(
            f"kind: unknown corruption {name!r}{nearest(name, KINDS) or '; expected one of ' + ', '.join(KINDS)}"
        )
    return KINDS[name]


def preset_of(name: str) -> Preset:
    """The catalogue entry of a preset."""
    if name not in PRESETS:
        raise HoldfastError(f"preset: expected one of {', '.join(PRESETS)}, got {name!r}{nearest(name, PRESETS)}")
    return PRESETS[name]


def check_severity(severity: int) -> int:
    """The severity as an int; raises an error unless it is 1 to 5."""
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise HoldfastError(f"severity: expected a whole number from 1 to 5, got {severity!r}")
    return int(severity)


def own_kinds() -> tuple[str, ...]:
    """The registered corruptions that are not published ones, in the order of registration."""
    return tuple(name for name in KINDS if name not in PUBLISHED)


def short_heading(name: str) -> str:
    """A heading of at most four letters for a corruption, or any other name, in narrow tables."""
    kind = KINDS.get(name)
    return (kind.short if kind is not None else "") or name[:4].capitalize()


def table_group(name: str) -> str:
    """The group of a corruption in tables; unknown ones count as user-defined."""
    if name in EXTRA:
        return "extra"
    return KINDS[name].group if name in KINDS else OWN


def add_kind(kind: Kind, severities: Mapping[str, Row]) -> None:
    """Add a corruption and its severities in each preset; see `holdfast.corruptions.register`."""
    KINDS[kind.name] = kind
    for preset, row in severities.items():
        _TABLES[preset][kind.name] = row


def severities_of(kind: str) -> dict[str, Row]:
    """The parameters of each severity of a corruption, by preset."""
    return {preset: table[kind] for preset, table in _TABLES.items() if kind in table}


def parameters(kind: str, severity: int, *, preset: str = "any") -> dict[str, Any]:
    """The arguments of a kind's function at this severity: the published constants and the preset's rules."""
    entry, rules = kind_of(kind), preset_of(preset).rules
    if kind not in _TABLES[preset]:
        known = ", ".join(severities_of(kind))
        raise HoldfastError(f"preset must be one that defines severities of {kind} ({known}), got {preset!r}")
    row = _TABLES[preset][kind][check_severity(severity) - 1]
    values = row if isinstance(row, tuple) else (row,)
    return dict(zip(entry.parameters, values, strict=False)) | rules.get(kind, {})


def select(kinds: str) -> tuple[str, ...]:
    """The kinds named by ``all``, ``standard``, ``extra``, a group, or a comma-separated list of these and of kinds.

    ``all`` are the 19 of ImageNet-C; ``c-bar``, ``imagenet-c-bar`` and ``cifar-c-bar`` are those of C-bar.
    Registered corruptions belong to ``all`` and to their groups, and together they are ``own``.
    """
    sets = {"all": ALL + own_kinds(), "standard": STANDARD, "extra": EXTRA, **GROUPS, **_own_groups()}
    sets |= {C_BAR: PUBLISHED[len(ALL) :], **C_BAR_SUITES}
    chosen: list[str] = []
    for word in (part.strip() for part in kinds.split(",")):
        if word not in sets and word not in KINDS:
            known = [*sets, *KINDS]
            raise HoldfastError(
                f"kinds: unknown corruption {word!r}{nearest(word, known) or '; expected one of ' + ', '.join(known)}"
            )
        chosen += [name for name in sets.get(word, (word,)) if name not in chosen]
    return tuple(chosen)


def _own_groups() -> dict[str, tuple[str, ...]]:
    own = own_kinds()
    groups = dict.fromkeys(KINDS[name].group for name in own)
    return {group: tuple(name for name in own if KINDS[name].group == group) for group in groups} | (
        {OWN: own} if own else {}
    )


def catalog_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of ``holdfast list corruptions``, in canonical order."""
    header = ("kind", "group", "set", "random", "parameters of a severity")
    return header, [_table_row(KINDS[name]) for name in PUBLISHED + own_kinds()]


def _table_row(kind: Kind) -> tuple[str, ...]:
    suites = [suite.removesuffix(f"-{C_BAR}") for suite, kinds in C_BAR_SUITES.items() if kind.name in kinds]
    kind_set = "standard" if kind.standard else "extra" if kind.name in EXTRA else ", ".join(suites) or OWN
    return kind.name, kind.group, kind_set, "yes" if kind.random else "no", kind.line or ", ".join(kind.parameters)
