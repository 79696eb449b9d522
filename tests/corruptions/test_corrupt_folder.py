"""A folder's corruption from Python: bytes of the images alone, unreadable files named, finished files left alone."""

import json

import numpy as np
import pytest
from PIL import Image

from holdfast.corruptions import corrupt_batch
from holdfast.corruptions.corrupt_folder import (
    MANIFEST,
    FolderSettings,
    KindAtSeverity,
    corrupt_folder,
    find_images,
    is_complete,
)
from holdfast.errors import HoldfastError

CELLS = (KindAtSeverity("contrast", 2), KindAtSeverity("shot_noise", 5))


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    for number, name in enumerate(("a.png", "deep/b.png")):
        pixels = np.random.default_rng(number).integers(0, 256, (33, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / ".hidden.png").write_bytes(b"x")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_every_file_is_the_corruption_of_its_image_by_its_path(source, tmp_path):
    seen = []
    outcomes = corrupt_folder(source, tmp_path / "out", cells=CELLS, settings=FolderSettings(), on_outcome=seen.append)
    assert [(each.relative, each.written, each.found, each.error) for each in outcomes] == [
        ("a.png", 2, 0, None),
        ("deep/b.png", 2, 0, None),
    ]
    assert {each.relative for each in seen} == set(find_images(source)) == {"a.png", "deep/b.png"}
    for name in find_images(source):
        image = np.asarray(Image.open(source / name))
        for cell in CELLS:
            (expected,) = corrupt_batch([image], cell.kind, ids=[name], severity=cell.severity, preset="any", seed=0)
            written = np.asarray(Image.open(tmp_path / "out" / cell.kind / str(cell.severity) / name))
            np.testing.assert_array_equal(written, expected)
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["seed"] == 0


def test_going_on_writes_what_is_missing_or_cut_short(source, tmp_path):
    settings, out = FolderSettings(quality=90), tmp_path / "out"
    corrupt_folder(source, out, cells=CELLS, settings=settings)
    first, second = sorted(out.rglob("a*.jpg"))
    whole = first.read_bytes()
    first.write_bytes(whole[:-20])
    second.unlink()
    assert not is_complete(first, settings)
    outcomes = corrupt_folder(source, out, cells=CELLS, settings=settings)
    assert [(each.written, each.found) for each in outcomes] == [(2, 0), (0, 2)]
    assert first.read_bytes() == whole


def test_an_unreadable_image_is_an_outcome_and_the_others_are_done(source, tmp_path):
    (source / "broken.png").write_bytes(b"no image")
    outcomes = corrupt_folder(source, tmp_path / "out", cells=CELLS[:1], settings=FolderSettings())
    assert [bool(each.error) for each in outcomes] == [False, True, False]
    assert len(list((tmp_path / "out" / "contrast").rglob("*.png"))) == 2


@pytest.mark.parametrize(
    ("inside", "settings", "sentence"),
    [
        (True, FolderSettings(), "expected a folder outside of"),
        (False, FolderSettings(exif="turn"), "exif must be ignore or apply"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(source, tmp_path, inside, settings, sentence):
    target = (source if inside else tmp_path) / "out"
    with pytest.raises(HoldfastError, match=sentence):
        corrupt_folder(source, target, cells=CELLS, settings=settings)
    assert not target.exists()
