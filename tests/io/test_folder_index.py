"""Lists of large folders: the same as a walk by hand, and taken from the cache only if nothing has changed."""

import os

import numpy as np
import pytest

from holdfast.io import folder_index
from holdfast.io.folder_index import FileNames, index_folder

SUFFIXES = frozenset({".jpg", ".png"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(folder_index, "LARGE", 1)
    root = tmp_path / "images"
    for name in ("b/2.jpg", "b/10.JPG", "a/deep/x.png", "a/z.png", "a/notes.txt", "top.png", "ä/ü.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    long_ago(root)
    return root


def long_ago(root):
    """Directories that settled before anybody looked."""
    for place, _, _ in os.walk(root):
        os.utime(place, (1000, 1000))


def names(root, *, links=False):
    return list(index_folder(root, SUFFIXES, links=links).names)


def remembered(root):
    return len(list((root.parent / "cache" / "folders").glob("*.safetensors")))


def test_a_list_is_in_the_order_of_a_walk_by_hand(folder):
    by_hand = []
    for place, folders, files in os.walk(folder):
        folders.sort()
        below = os.path.relpath(place, folder)
        chosen = [file for file in sorted(files) if os.path.splitext(file)[1].lower() in SUFFIXES]
        by_hand += [file if below == "." else f"{below}/{file}" for file in chosen]
    assert names(folder) == by_hand
    assert names(folder) == by_hand, "from the cache"
    assert remembered(folder) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "b" / "new.jpg").touch(),
        lambda root: (root / "a" / "deep" / "x.png").unlink(),
        lambda root: (root / "b" / "2.jpg").rename(root / "b" / "3.jpg"),
        lambda root: (root / "b" / "2.jpg").rename(root / "a" / "2.jpg"),
        lambda root: (root / "a" / "deep").rename(root / "a" / "deeper"),
        lambda root: ((root / "c").mkdir(), (root / "c" / "1.jpg").touch()),
        lambda root: (root / "top.png").unlink(),
    ],
    ids=["added", "removed", "renamed", "moved", "directory renamed", "directory added", "beside the directories"],
)
def test_whatever_changes_is_noticed(folder, change):
    before = names(folder)
    change(folder)
    after = names(folder)
    assert after != before
    assert sorted(after) == sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES
    )


def test_a_directory_that_changed_just_now_is_not_trusted(folder):
    (folder / "b" / "new.jpg").touch()  # a second change within the clock's tick could not be seen
    names(folder)
    assert remembered(folder) == 0


def test_a_damaged_cache_is_read_as_none(folder):
    before = names(folder)
    for file in (folder.parent / "cache" / "folders").iterdir():
        file.write_bytes(b"nothing of the sort")
    assert names(folder) == before


def test_a_small_folder_leaves_nothing_behind(folder, monkeypatch):
    monkeypatch.setattr(folder_index, "LARGE", 100)
    names(folder)
    assert remembered(folder) == 0


def test_links_are_followed_once_and_never_upwards(folder):
    (folder / "b" / "link").symlink_to(folder / "a")
    (folder / "b" / "again").symlink_to(folder / "a")
    (folder / "b" / "up").symlink_to(folder)
    below = [name for name in names(folder, links=True) if name.startswith("b/")]
    assert below == ["b/10.JPG", "b/2.jpg", "b/again/z.png", "b/again/deep/x.png"]
    assert not any("link" in name for name in names(folder))


def test_names_are_a_sequence_whatever_they_hold():
    odd = ["a", "", "ä/b", "with\nline", os.fsdecode(b"\xff.jpg")]
    kept = FileNames.of(odd)
    assert list(kept) == odd
    assert [kept[place] for place in range(-len(odd), len(odd))] == odd + odd
    assert kept[1:4] == odd[1:4]
    assert kept.ends.dtype == np.int64
    with pytest.raises(IndexError):
        kept[5]
