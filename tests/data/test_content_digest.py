"""What files hold: all of them, or a sample that is called one; times and places never count."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from holdfast.data import Subset, content_digest, open_data
from holdfast.data.content_digest import content_of_files, content_of_sample
from holdfast.io.folder_index import cache_folder

HOUR = 3600


@pytest.fixture
def folder(tmp_path):
    for number in range(100):
        path = tmp_path / "set" / f"{number % 2}" / f"{number:03d}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(path)
    return tmp_path / "set"


def content(folder):
    return content_of_files(open_data(f"folder:{folder}"))


def change(path):
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def test_small_sets_are_read_whole(folder):
    before = content(folder)
    assert before.startswith("all 100 files: ")
    change(folder / "1" / "057.bmp")
    assert content(folder) != before


def test_of_large_sets_64_files_are_read_and_the_text_says_so(folder, monkeypatch):
    monkeypatch.setattr(content_digest, "MOST", 1000)
    before = content(folder)
    assert before.startswith("a sample of 64 of 100 files: ")
    change(folder / "0" / "000.bmp")  # the first is always among them
    assert content(folder) != before


def test_of_large_sets_every_size_counts(folder, monkeypatch):
    monkeypatch.setattr(content_digest, "MOST", 1000)
    seen = {content(folder)}
    for path in sorted(folder.rglob("*.bmp"))[:5]:
        path.write_bytes(path.read_bytes() + b"!")
        seen.add(content(folder))
    assert len(seen) == 6


def test_copies_and_times_do_not_count(folder, tmp_path):
    before = content(folder)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    assert content(tmp_path / "copy") == before
    for path in folder.rglob("*.bmp"):
        os.utime(path, (HOUR, HOUR))
    assert content(folder) == before


def test_only_the_files_that_are_used_count(folder):
    half = Subset(open_data(f"folder:{folder}"), np.arange(50))  # all of class 0
    before = content_of_files(half)
    change(folder / "1" / "057.bmp")
    assert content_of_files(half) == before


def test_a_digest_is_remembered_for_files_as_they_are(folder, monkeypatch):
    """A remembered digest is not computed again, and never taken for files that were changed since."""
    monkeypatch.setattr(content_digest, "WORTH", 1)
    monkeypatch.setattr(content_digest, "SETTLED", -1)  # the files are new
    before = content(folder)
    assert list((cache_folder() / "contents").glob("*.json"))
    with monkeypatch.context() as nobody_reads:
        nobody_reads.setattr(content_digest, "_file_digest", lambda path: b"")
        assert content(folder) == before
    state = (folder / "0" / "000.bmp").stat()
    change(folder / "0" / "000.bmp")
    os.utime(folder / "0" / "000.bmp", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert content(folder) != before


def test_files_that_were_just_changed_are_not_remembered(folder, monkeypatch):
    monkeypatch.setattr(content_digest, "WORTH", 1)
    before = set(cache_folder().rglob("*.json"))
    content(folder)
    assert set(cache_folder().rglob("*.json")) == before


def test_what_cannot_be_read_is_told_from_what_can(folder):
    before = content(folder)
    (folder / "0" / "000.bmp").unlink()
    (folder / "0" / "000.bmp").symlink_to(folder / "nowhere")
    assert content(folder) != before


def test_of_stored_sets_a_few_files_of_every_part_are_read(folder):
    parts = [Subset(open_data(f"folder:{folder}"), np.arange(start, start + 50)) for start in (0, 50)]
    before = content_of_sample(parts)
    assert before.startswith("a sample of 64 files: ")
    change(folder / "1" / "001.bmp")
    assert content_of_sample(parts) != before


def test_data_in_memory_have_no_files():
    assert content_of_files(open_data("digits", split="test")) == ""
