"""The kinds of C-bar against the published code: exact for its own draws, in distribution for ours.

`tests/golden/c_bar.json` holds outputs of the published code on the versions that it was written for (``crc32``) and on
today's NumPy (``crc32_new``), which differ in seven bytes, and statistics over 64 free draws.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from holdfast.corruptions import (
    ALL,
    C_BAR_SUITES,
    FUNCTIONS,
    KINDS,
    PRESETS,
    PUBLISHED,
    SEVERITIES,
    LegacyDraws,
    catalog_table,
    corrupt,
    corrupt_batch,
    keyed,
    own_kinds,
    parameters,
    register,
    select,
)
from holdfast.errors import HoldfastError
from tests.corruptions.oracle import photograph

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "c_bar.json").read_text(encoding="utf-8"))
NAMES = PUBLISHED[len(ALL) :]
# old stack and new stack differ by one level in 1, 5 and 1 bytes of these; everything else is equal on both
ON_THE_NEW_STACK_ALONE = {("caustic_refraction", 224, 1), ("pinch_and_twirl", 224, 3), ("circular_motion_blur", 224, 3)}


def normals(key, shape):
    return np.random.Generator(np.random.Philox(zlib.crc32(key.encode()))).standard_normal(shape)


def clean(side):
    coarse = normals(f"c-bar/{side}", (1, 3, side // 8, side // 8)).repeat(8, 2).repeat(8, 3)
    field = (0.8 * coarse + 0.3 * normals(f"c-bar/{side}/fine", (1, 3, side, side))).astype(np.float32)
    levels = np.floor(np.clip(128 + 56 * field.astype(np.float64), 0, 255)).astype(np.uint8)
    return np.ascontiguousarray(levels[0].transpose(1, 2, 0))


class SeedOfPerlin(LegacyDraws):
    """The one cell that names the inner seed alone."""

    def __init__(self, seed):
        self.seed = seed

    def integers(self, low, high, shape=()):
        return self.seed


def cell_name(cell):
    return f"{cell['kind']}-{cell['size']}-{cell['severity_index']}-{cell['numpy_seed']}"


@pytest.mark.parametrize("cell", GOLDEN["fixed"], ids=cell_name)
def test_published_draws_give_the_published_bytes(cell):
    image, seed = clean(cell["size"]), cell["numpy_seed"]
    draws = LegacyDraws(seed) if seed is not None else SeedOfPerlin(cell["draws"]["seed"])
    result = FUNCTIONS[cell["kind"]](image[None], [draws], magnitude=cell["severity"])[0]
    samples = [result[row, column].tolist() for row, column in GOLDEN["positions"][str(cell["size"])]]
    assert np.abs(np.subtract(samples, cell["samples"])).max() <= 1
    pixels = result.reshape(-1, 3).astype(np.float64)
    assert pixels.mean(axis=0) == pytest.approx(cell["mean"], abs=0.02)
    assert pixels.std(axis=0) == pytest.approx(cell["std"], abs=0.02)
    checksum = zlib.crc32(result.tobytes())
    assert checksum == cell["crc32_new"]
    old_stack = (cell["kind"], cell["size"], cell["severity_index"]) not in ON_THE_NEW_STACK_ALONE
    assert (checksum == cell["crc32"]) == old_stack


def statistics(image, results):
    """Mean and standard error over draws of what the golden file holds about the change of an image."""
    found = {"mean": [], "std": [], "hist": [], "lag1": []}
    for result in results:
        change = result.astype(np.float64) - image
        found["mean"].append(change.mean(axis=(0, 1)))
        found["std"].append(change.std(axis=(0, 1)))
        found["hist"].append(np.histogram(np.abs(change), GOLDEN["histogram_edges"])[0] / change.size)
        centred = change - change.mean(axis=(0, 1))
        if centred.any():
            pairs = ((centred[:, 1:], centred[:, :-1]), (centred[1:], centred[:-1]))
            found["lag1"].append([(one * other).mean() / (centred**2).mean() for one, other in pairs])
    arrays = {name: np.array(values) for name, values in found.items()}
    return {name: (each.mean(axis=0), each.std(axis=0, ddof=1) / len(each) ** 0.5) for name, each in arrays.items()}


def quick_first(cells):
    """One severity of the large images in every run, all of them in full ones."""
    return [
        pytest.param(
            cell, id=cell_name({**cell, "numpy_seed": "free"}), marks=[pytest.mark.full] if is_slow(cell) else []
        )
        for cell in cells
    ]


def is_slow(cell):
    return cell["size"] == 224 and cell["severity_index"] == 1


@pytest.mark.parametrize("cell", quick_first(GOLDEN["statistics"]))
def test_own_draws_have_the_published_distribution(cell):
    image, kind, severity = clean(cell["size"]), cell["kind"], cell["severity_index"]
    preset = {32: "cifar", 224: "imagenet"}[cell["size"]]
    assert parameters(kind, severity, preset=preset) == {"magnitude": cell["severity"]}
    count = {32: 192, 224: 64}[cell["size"]]
    results = corrupt_batch([image] * count, kind, ids=range(count), severity=severity, preset=preset, seed=1)
    for name, (mean, error) in statistics(image, results).items():
        expected, expected_error = np.array(cell[name]), np.array(cell[f"{name}_se"])
        allowed = 4 * np.hypot(error, expected_error) + 5e-4 * np.abs(expected) + 1e-5  # stored with four digits
        assert (np.abs(mean - expected) <= allowed).all(), (name, mean, expected, allowed)


def test_both_benchmarks_have_ten_kinds_and_share_five():
    first, second = C_BAR_SUITES["imagenet-c-bar"], C_BAR_SUITES["cifar-c-bar"]
    assert (len(first), len(second), len({*first, *second})) == (10, 10, 15)
    assert {*first} & {*second} == {
        *("blue_noise_sample", "brownish_noise", "checkerboard_cutout", "sparkles", "inverse_sparkles")
    }
    assert {*NAMES} == {*first, *second}


def test_a_severity_is_the_published_magnitude_of_the_presets_benchmark():
    assert parameters("sparkles", 3, preset="imagenet") == {"magnitude": 3}
    assert parameters("sparkles", 3, preset="any") == {"magnitude": 3}
    assert parameters("sparkles", 3, preset="cifar") == {"magnitude": 5.6}
    assert parameters("lines", 5, preset="imagenet") == {"magnitude": 2.5}
    assert parameters("perlin_noise", 1, preset="cifar") == {"magnitude": 4.6}


def test_c_bar_is_neither_own_nor_part_of_all_nineteen():
    assert len(ALL) == 19
    assert own_kinds() == ()
    assert select("all") == ALL
    assert select("c-bar") == NAMES
    assert select("cifar-c-bar") == C_BAR_SUITES["cifar-c-bar"]
    rows = {row[0]: row[1:3] for row in catalog_table()[1]}
    assert rows["lines"] == ("c-bar", "cifar")
    assert rows["sparkles"] == ("c-bar", "imagenet, cifar")
    with pytest.raises(HoldfastError, match="group must not be a published one"):
        register(FUNCTIONS["lines"], severities=[{"magnitude": 1}] * 5, group="c-bar", name="my_lines")


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("shape", [(32, 32), (32, 300), (300, 32), (33, 47), (48, 33)], ids=str)
def test_every_size_and_severity_works(kind, shape):
    image = photograph(*shape)
    results = [corrupt(image, kind, severity=severity, rng=1) for severity in SEVERITIES]
    assert {(result.shape, result.dtype) for result in results} == {(image.shape, np.dtype(np.uint8))}
    assert all(result.flags.writeable and not np.shares_memory(result, image) for result in results)
    assert any((result != image).any() for result in results)


@pytest.mark.parametrize("kind", NAMES)
def test_an_image_is_corrupted_alike_in_every_batch(kind):
    images = [photograph(32, 40), photograph(40, 32), photograph(32, 40)[::-1].copy()]
    together = corrupt_batch(images, kind, ids="abc", severity=4, seed=3)
    named = zip("abc", images, strict=True)
    alone = [corrupt(image, kind, severity=4, rng=keyed(3, name, kind, 4)) for name, image in named]
    assert all((one == other).all() for one, other in zip(together, alone, strict=True))
    other_seed = corrupt_batch(images, kind, ids="abc", severity=4, seed=4)
    assert KINDS[kind].random == any((one != other).any() for one, other in zip(together, other_seed, strict=True))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("kind", NAMES)
def test_every_preset_has_five_different_severities(kind, preset):
    assert len({parameters(kind, severity, preset=preset)["magnitude"] for severity in SEVERITIES}) == 5


def test_a_zero_gradient_of_perlin_noise_gives_black_patches():
    image = np.full((224, 224, 3), 200, np.uint8)
    result = FUNCTIONS["perlin_noise"](image[None], [SeedOfPerlin(83)], magnitude=5.8)[0]
    assert (result == 0).all(axis=2).mean() == pytest.approx(0.102, abs=0.002)
    other = FUNCTIONS["perlin_noise"](image[None], [SeedOfPerlin(84)], magnitude=5.8)[0]
    assert other.min() > 100


def test_flat_images_keep_their_level_where_nothing_is_moved_in():
    for level in (0, 77, 255):
        image = np.full((64, 64, 3), level, np.uint8)
        for kind in ("transverse_chromatic_abberation", "pinch_and_twirl"):
            assert (corrupt(image, kind, severity=5, rng=1) == level).all(), kind
        middle = corrupt(image, "ripple", severity=5, rng=1)[8:-8, 8:-8]
        assert np.abs(middle.astype(int) - level).max() <= 1


def test_stored_speed_holds_the_bars_and_the_page_shows_it():
    root = Path(__file__).parents[2]
    results = json.loads((root / "perf" / "results" / "c_bar.json").read_text(encoding="utf-8"))
    assert results["summary"]["sum"] >= 50
    assert results["summary"]["lowest"] >= 1
    assert list(results["kinds"]) == list(NAMES)
    table = (root / "perf" / "results" / "c_bar.md").read_text(encoding="utf-8").strip()
    assert table in (root / "docs" / "c-bar.md").read_text(encoding="utf-8")
