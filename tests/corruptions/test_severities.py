"""The catalogue as data."""

import inspect

import pytest

from holdfast.corruptions import (
    ALL,
    EXTRA,
    GROUPS,
    KINDS,
    PRESETS,
    PUBLISHED,
    SEVERITIES,
    STANDARD,
    catalog_table,
    parameters,
    select,
)
from holdfast.corruptions.apply import FUNCTIONS
from holdfast.errors import HoldfastError


def test_canonical_order_and_groups():
    assert STANDARD[:4] == ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur")
    assert len(STANDARD) == 15
    assert EXTRA == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert [len(names) for names in GROUPS.values()] == [3, 4, 4, 4]
    assert sum(GROUPS.values(), ()) == STANDARD


def test_eight_kinds_draw_nothing():
    still = {name for name in ALL if not KINDS[name].random}
    blurs, others = {"defocus_blur", "zoom_blur", "gaussian_blur"}, {"brightness", "contrast", "saturate"}
    assert still == blurs | others | {"pixelate", "jpeg_compression"}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", ALL)
def test_every_cell_calls_its_function_with_known_arguments(kind, preset):
    accepted = set(inspect.signature(FUNCTIONS[kind]).parameters)
    cells = [parameters(kind, severity, preset=preset) for severity in SEVERITIES]
    assert all(set(cell) <= accepted for cell in cells)
    assert len({str(cell) for cell in cells}) == 5


@pytest.mark.parametrize(
    ("preset", "kind", "severity", "expected"),
    [
        ("imagenet", "snow", 4, (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65, True)),
        ("imagenet", "elastic_transform", 1, (488, 170.8, 24.4)),
        ("imagenet", "elastic_transform", 5, (29.28, 2.44, 4.88)),
        ("inception", "elastic_transform", 2, (720, 28.8, 72.0)),
        ("cifar", "elastic_transform", 2, (1.6, 6.4, 2.24)),
        ("tiny", "elastic_transform", 5, (10.24, 1.92, 1.28)),
        ("any", "elastic_transform", 3, (21.25,)),
        ("cifar", "frost", 5, (0.75, 0.45, 0.2)),
        ("tiny", "frost", 1, (1, 0.3, 0.3)),
        ("inception", "fog", 3, (2.5, 1.8, 512)),
        ("cifar", "zoom_blur", 4, (0.01, 21)),
        ("imagenet", "zoom_blur", 5, (0.03, 11)),
        ("tiny", "saturate", 5, (30, 0.2)),
        ("inception", "jpeg_compression", 5, (5,)),
    ],
)
def test_published_constants(preset, kind, severity, expected):
    assert tuple(parameters(kind, severity, preset=preset).values()) == pytest.approx(expected)


def test_select_understands_sets_groups_and_names():
    assert select("all") == ALL
    assert select("noise,fog,noise") == ("gaussian_noise", "shot_noise", "impulse_noise", "fog")
    assert select("extra") == EXTRA
    with pytest.raises(HoldfastError, match="unknown corruption 'fogg'; did you mean 'fog'"):
        select("snow,fogg")


def test_table_has_one_row_per_kind():
    header, rows = catalog_table()
    assert [row[0] for row in rows] == list(PUBLISHED)
    assert all(len(row) == len(header) for row in rows)
